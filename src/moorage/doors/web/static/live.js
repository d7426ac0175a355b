/**
 * Events as they happen: one stream over all sessions (`GET /events`), read with `fetch`, because an EventSource
 * cannot send a key. After a break it continues from its cursor, so it misses no event and repeats none.
 * Views get events in batches, some ten times a second, so that a busy store does not keep the page busy.
 */
import { Problem, send } from "./api.js";
import { batch, signal } from "./html.js";
import { Frames } from "./reduce.js";

/** @typedef {import("./reduce.js").Event} Event */

const BUNCH_EVERY = 100; // milliseconds
const SILENCE = 40_000; // the server sends a heartbeat every 15 s
const MOST_AT_ONCE = 2000; // beyond this views load again instead of replaying
const OPENS_WITHIN = 1000; // milliseconds; views load without the stream then

/** @type {import("./vendor/signals.mjs").Signal<"connecting" | "live" | "lost">} */
export const connection = signal(/** @type {any} */ ("connecting"));
/** The time when the stream broke, in milliseconds. @type {import("./vendor/signals.mjs").Signal<number | null>} */
export const lostAt = signal(/** @type {number | null} */ (null));
/** 0 until the stream is open: views load afterwards, so that no event falls between their data and the stream.
 * Grows when the page missed events, and views must load again. */
export const generation = signal(0);

/** @type {Set<(events: Event[]) => void>} */
const listeners = new Set();
/** @type {Event[]} */
let bunch = [];
let timer = 0;
/** @type {string | null} */
let cursor = null;
let caughtUp = 0;
let wake = () => {};

/** Receive events in batches; call the returned function to stop. @param {(events: Event[]) => void} listener */
export function listen(listener) {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

/** Try again now instead of after the pause. */
export function retry() {
  wake();
}

/** Follow the stream for as long as the page is open. @param {(count: number) => void} onCaughtUp */
export async function follow(onCaughtUp) {
  const load = () => void (generation.value ||= 1);
  setTimeout(load, OPENS_WITHIN);
  for (let pause = 500; ; pause = Math.min(pause * 2, 8000)) {
    const began = Date.now();
    try {
      await read(onCaughtUp);
    } catch (error) {
      if (error instanceof Problem && error.status === 403) return load();
    }
    load();
    if (Date.now() - began > 5000) pause = 500;
    if (connection.value !== "lost") lostAt.value = Date.now();
    connection.value = "lost";
    await new Promise((resolve) => {
      wake = () => resolve(undefined);
      setTimeout(resolve, pause);
    });
  }
}

/** @param {(count: number) => void} onCaughtUp */
async function read(onCaughtUp) {
  const abort = new AbortController();
  let heard = Date.now();
  const watch = setInterval(() => Date.now() - heard > SILENCE && abort.abort(), 5000);
  try {
    const response = await send("GET", "/events", {
      query: { after: cursor ?? "end" },
      headers: { Accept: "text/event-stream" },
      signal: abort.signal,
    });
    const wasLost = connection.value === "lost";
    const isFirst = cursor === null;
    cursor ??= response.headers.get("Last-Event-ID");
    connection.value = "live";
    if (isFirst) generation.value += 1;
    lostAt.value = null;
    caughtUp = 0;
    if (wasLost) setTimeout(() => onCaughtUp(caughtUp), 600);
    const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).getReader();
    const frames = new Frames();
    const decoder = new TextDecoder();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      heard = Date.now();
      take(frames.push(decoder.decode(value, { stream: true })));
      if (frames.id !== null) cursor = frames.id;
    }
  } finally {
    clearInterval(watch);
    abort.abort();
  }
}

/** @param {Array<{type: string, data: string}>} frames */
function take(frames) {
  for (const frame of frames) if (frame.type !== "refused") bunch.push(JSON.parse(frame.data));
  caughtUp += frames.length;
  if (bunch.length && !timer) timer = setTimeout(tell, BUNCH_EVERY);
}

function tell() {
  const events = bunch;
  bunch = [];
  timer = 0;
  if (events.length > MOST_AT_ONCE) {
    generation.value += 1;
    return;
  }
  batch(() => {
    for (const listener of listeners) listener(events);
  });
}
