/** Actions on sessions. Each first shows its effect, as the server counts it, and offers undo where possible. */
import { at, ask as request, del, get, post, Problem } from "./api.js";
import { clock, plain, plural, seconds } from "./format.js";
import { inWords, together } from "./deletion.js";
import { expect } from "./gone.js";
import { head, touch } from "./heads.js";
import { html, useState } from "./html.js";
import { isFinal, isLive } from "./reduce.js";
import { go } from "./router.js";
import { ask, complain, confirm, Do, toast } from "./ui.js";

// Delete --------------------------------------------------------------------------------------------

/** Ask the server for the effect of a deletion. @param {string} id */
export async function wouldDelete(id) {
  try {
    return { ...(await del(at`/sessions/${id}`, { dry_run: true })), running: [] };
  } catch (problem) {
    if (!(problem instanceof Problem) || problem.code !== "session_running") throw problem;
    const taken = await del(at`/sessions/${id}`, { dry_run: true, force: true });
    return { ...taken, running: problem.facts.session_ids };
  }
}

/** Delete sessions with their trees, after a preview. @param {string[]} ids @returns {Promise<boolean>} whether they were deleted */
export async function deleteSessions(ids) {
  let preview;
  try {
    preview = together(await Promise.all(ids.map(wouldDelete)));
  } catch (problem) {
    complain(problem);
    return false;
  }
  const names = preview.ids.slice(0, 6).map((id) => head(id).peek()?.session_name || id);
  const agreed = await confirm("Delete permanently?", html`
    <p class="would"><strong>${inWords(preview)}</strong></p>
    <p class="muted">With ${plural(preview.messages, "message")}, ${plural(preview.runs, "run")} and ${plural(preview.checkpoints, "checkpoint")}. You cannot undo this; export first if in doubt.</p>
    <ul class="names">${names.map((name) => html`<li class="mono">${name}</li>`)}${preview.ids.length > 6 && html`<li class="muted">and ${preview.ids.length - 6} more</li>`}</ul>
    ${preview.running.length > 0 && html`<p class="warn">Running sessions are stopped first.</p>`}`,
    { yes: preview.running.length ? "Stop and delete" : "Delete", danger: true });
  if (!agreed) return false;
  expect(preview.ids);
  try {
    for (const id of preview.roots) await del(at`/sessions/${id}`, { force: preview.running.length > 0 });
    toast(`${plural(preview.ids.length, "session")} deleted`, { kind: "good" });
    return true;
  } catch (problem) {
    complain(problem);
    return false;
  }
}

// Finalize, suspend, resume -------------------------------------------------------------------------------

/** Finalize sessions, after a preview. @param {string[]} ids */
export async function finalizeSessions(ids) {
  const sessions = await Promise.all(ids.map(async (id) => head(id).peek() ?? (await get(at`/sessions/${id}`))));
  const open = sessions.filter((session) => !isFinal(session) && !isLive(session));
  const running = sessions.filter(isLive).length;
  const closed = sessions.filter(isFinal).length;
  const answer = await ask("Finalize sessions", (close) => html`<form class="dialog-body" onSubmit=${(event) => {
    event.preventDefault();
    const data = new FormData(event.target);
    close({ outcome: data.get("outcome"), summary: data.get("summary") });
  }}>
    <p class="would"><strong>Finalizes ${plural(open.length, "session")}</strong>${running ? `; ${running} running, not changed` : ""}${closed ? `; ${closed} already final` : ""}</p>
    <label>Outcome <select name="outcome" autofocus><option>completed</option><option>failed</option><option>abandoned</option></select></label>
    <label>Summary <textarea name="summary" rows="3" placeholder="The result (optional)"></textarea></label>
    <p class="muted">You can read, export and fork a final session, but not continue it.</p>
    <footer><button type="button" onClick=${() => close()}>Cancel</button><button type="submit" class="primary" disabled=${!open.length}>Finalize ${plural(open.length, "session")}</button></footer></form>`);
  if (!answer) return false;
  const body = { outcome: answer.outcome, ...(answer.summary ? { summary: answer.summary } : {}) };
  const results = await Promise.allSettled(open.map((session) => post(at`/sessions/${session.session_id}/finalize`, body)));
  for (const { session_id } of open) touch(session_id);
  const refused = results.filter((result) => result.status === "rejected");
  if (refused.length) complain(/** @type {PromiseRejectedResult} */ (refused[0]).reason);
  if (refused.length < results.length) toast(`${plural(results.length - refused.length, "session")} finalized`, { kind: "good" });
  return true;
}

/** @param {string} id */
export async function suspend(id) {
  await post(at`/sessions/${id}/suspend`, { reason: "suspended on the web page" });
  touch(id);
  toast("Suspended. New input waits.", { kind: "good", action: { label: "Undo", run: () => resume(id).catch(complain) } });
}

/** Let the agent of a suspended session continue; this tab takes no hold. @param {string} id */
export async function resume(id) {
  await post(at`/sessions/${id}/resume`, { hold: false });
  touch(id);
  toast("Resumed", { kind: "good", action: { label: "Undo", run: () => suspend(id).catch(complain) } });
}

/** End the hold of another driver, after a confirmation. @param {any} session */
export async function release({ session_id: id, hold }) {
  const agreed = await confirm("End the hold?", html`<p class="would"><strong>${plain(hold.holder)} holds this session until ${clock(hold.until)}</strong></p>
    <p class="muted">Then its agent can continue and others can resume it. Later writes by ${plain(hold.holder)} are refused.</p>`, { yes: "End the hold", danger: true });
  if (!agreed) return;
  await post(at`/sessions/${id}/release`, {});
  toast("The hold has ended", { kind: "good" });
  touch(id);
}

/** Stop the runs of a session and its descendants. @param {string} id */
export async function stop(id) {
  const [{ running }, open] = await Promise.all([wouldDelete(id), get("/runs", { session: id, open_only: true, limit: 1 })]);
  const ids = [...new Set([...(open.items.length ? [id] : []), ...running])];
  if (!ids.length) {
    toast("Nothing is running");
    return;
  }
  const agreed = await confirm("Stop?", html`<p class="would"><strong>Stops ${plural(ids.length, "session")}</strong></p>
    <ul class="names">${ids.slice(0, 6).map((each) => html`<li class="mono">${head(each).peek()?.session_name || each}</li>`)}</ul>
    <p class="muted">Messages so far are kept; the sessions stay open.</p>`, { yes: "Stop", danger: true });
  if (!agreed) return;
  const { items } = await post(at`/sessions/${id}/stop`, { tree: true });
  toast(`${plural(items.length, "session")} stopping`, { kind: "good" });
  touch(id);
}

/** Start a new session from an entry of another. @param {string} id @param {number} [entry] */
export async function fork(id, entry) {
  const name = await ask("Fork", (close) => html`<form class="dialog-body" onSubmit=${(event) => (event.preventDefault(), close({ name: new FormData(event.target).get("name") }))}>
    <p>A new session continues from ${entry ? `entry ${entry}` : "the end"}, with a copy of the context. This one does not change.</p>
    <label>Name (optional) <input name="name" autofocus autocomplete="off" /></label>
    <footer><button type="button" onClick=${() => close()}>Cancel</button><button type="submit" class="primary">Fork</button></footer></form>`);
  if (!name) return;
  const made = await post(at`/sessions/${id}/fork`, { ...(entry ? { at: entry } : {}), ...(name.name ? { session_name: name.name } : {}) });
  toast("Forked", { kind: "good" });
  go("session", made.session_id);
}

/** Save a session as a file. @param {string} id @param {"jsonl" | "markdown"} format @param {boolean} tree */
export async function save(id, format, tree) {
  const text = await request("GET", at`/sessions/${id}/export`, { query: { format, tree } });
  const blob = new Blob([typeof text === "string" ? text : `${JSON.stringify(text)}\n`]);
  const anchor = document.createElement("a");
  anchor.href = URL.createObjectURL(blob);
  anchor.download = `${id}.${format === "jsonl" ? "jsonl" : "md"}`;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(anchor.href), 1000);
}

// New -----------------------------------------------------------------------------------------------

/** Create a session; with a prompt its agent starts at once. @param {{parent?: string, agent?: string}} [given] */
export async function newSession(given = {}) {
  const { items } = await get("/agents");
  const made = await ask("New session", (close) => html`<${NewSession} agents=${items} given=${given} close=${close} />`);
  if (made) go("session", made);
}

/** @param {{agents: any[], given: {parent?: string, agent?: string}, close: any}} props */
function NewSession({ agents, given, close }) {
  const [problem, setProblem] = useState("");
  const submit = async (event) => {
    event.preventDefault();
    const fields = Object.fromEntries([...new FormData(event.target)].filter(([, value]) => value !== ""));
    try {
      close(await make(/** @type {any} */ ({ ...fields, ...(given.parent ? { parent_session_id: given.parent } : {}) })));
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error));
    }
  };
  return html`<form class="dialog-body" onSubmit=${submit}>
    <label>Agent <input name="agent_name" list="agents" autofocus=${!given.agent} required autocomplete="off" defaultValue=${given.agent ?? ""} placeholder=${agents[0]?.name} /></label>
    <datalist id="agents">${agents.map((agent) => html`<option value=${agent.name}>${agent.description}</option>`)}</datalist>
    <label>Prompt <textarea name="prompt" rows="5" autofocus=${Boolean(given.agent)} placeholder="The task for the agent. Without a prompt the session waits."></textarea></label>
    <div class="pair"><label>Name (optional) <input name="session_name" autocomplete="off" /></label>
    <label>Task (optional) <input name="task_id" autocomplete="off" /></label></div>
    <div class="pair"><label>Purpose (optional) <input name="purpose" autocomplete="off" /></label>
    <label>Delete after (optional) <input name="ttl" autocomplete="off" placeholder="7d" pattern="\\s*[0-9.]+\\s*[smhdw]?\\s*" /></label></div>
    ${problem && html`<p class="warn" role="alert">${problem}</p>`}
    <footer><button type="button" onClick=${() => close()}>Cancel</button><button type="submit" class="primary">Start</button></footer></form>`;
}

/** @param {Record<string, string>} fields @returns {Promise<string>} the session's id */
async function make({ prompt, ttl, ...fields }) {
  /** @type {Record<string, any>} */
  const body = { ...fields, ...(ttl ? { ttl_seconds: seconds(ttl) } : {}) };
  if (!prompt) return (await post("/sessions", body)).session_id;
  const { parent_session_id: parent, ...rest } = body;
  return (await post("/runs", { ...rest, ...(parent ? { parent } : {}), prompt, mode: "async_poll" })).session.session_id;
}

/** Retry a failed run. @param {string} run @param {string} id of its session */
export async function retry(run, id) {
  await post(at`/runs/${run}/retry`);
  toast("Retrying", { kind: "good" });
  touch(id);
}

/** Whether a session may have an open run. @param {any} session */
const isStoppable = ({ status }) => /^(running|waiting|queued)$/.test(status);

/** The buttons that fit a session's state. @param {{session: any}} props */
export function Actions({ session }) {
  const id = session.session_id;
  if (session.deleted) return null;
  return html`
    ${isStoppable(session) && html`<${Do} run=${() => stop(id)}>Stop<//>`}
    ${session.status === "run_failed" && session.last_run && html`<${Do} class="primary" run=${() => retry(session.last_run.id, id)}>Retry<//>`}
    ${!isFinal(session) && session.state !== "suspended" && !isLive(session) && html`<${Do} run=${() => suspend(id)}>Suspend<//>`}
    ${session.state === "suspended" && html`<${Do} class=${session.status === "waiting" ? "" : "primary"} run=${() => resume(id)}>Resume<//>`}
    ${!isFinal(session) && !isLive(session) && html`<${Do} run=${() => finalizeSessions([id])}>Finalize<//>`}
    <${Do} run=${() => fork(id)}>Fork<//>
    <${Do} class="danger" run=${() => deleteSessions([id])}>Delete<//>`;
}
