/**
 * The partial reply of an agent while it works: `GET /sessions/{id}/words`. The stored message replaces it.
 */
import { at, Problem, send } from "./api.js";
import { useEffect, useState } from "./html.js";
import { Frames } from "./reduce.js";

const AGAIN = 1000; // milliseconds until a broken stream is opened again
const FADE = 400; // milliseconds that a stored reply stays, so that the message appears first

/** The partial reply of a session at work, or "". @param {string} id @param {boolean} isAtWork */
export function useWords(id, isAtWork) {
  const [text, setText] = useState("");
  useEffect(() => {
    if (!isAtWork) return undefined;
    const stop = new AbortController();
    void hear(id, stop.signal, setText);
    return () => (stop.abort(), setText(""));
  }, [id, isAtWork]);
  return text;
}

/** @param {string} id @param {AbortSignal} signal @param {(text: any) => void} show */
async function hear(id, signal, show) {
  let fading = 0;
  const take = (/** @type {{text: string, begins: boolean}} */ spoken) => {
    clearTimeout(fading);
    if (spoken.begins && !spoken.text) fading = setTimeout(() => signal.aborted || show(""), FADE);
    else show((/** @type {string} */ before) => (spoken.begins ? spoken.text : before + spoken.text));
  };
  while (!signal.aborted) {
    try {
      await read(await send("GET", at`/sessions/${id}/words`, { headers: { Accept: "text/event-stream" }, signal }), take);
    } catch (error) {
      if (error instanceof Problem && error.status) return; // refused, or the session was deleted
    }
    await new Promise((resolve) => setTimeout(resolve, AGAIN));
  }
}

/** @param {Response} response @param {(spoken: any) => void} take */
async function read(response, take) {
  const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).getReader();
  const frames = new Frames(), decoder = new TextDecoder();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    for (const frame of frames.push(decoder.decode(value, { stream: true }))) take(JSON.parse(frame.data));
  }
}
