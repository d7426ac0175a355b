/** The other tabs of a session: runs, context, checkpoints, log, verdict, facts. */
import { retry } from "../../actions.js";
import { at, del, get, post, put } from "../../api.js";
import { clock, json, moment, oneLine, plain, plural, reason, saidBy, seconds, span, worded } from "../../format.js";
import { html, useRef, useState } from "../../html.js";
import { isFinal } from "../../reduce.js";
import { link } from "../../router.js";
import { complain, Do, Empty, Failed, Id, Loading, Mark, now, Status, Time, toast, useLoad } from "../../ui.js";
import { Text, Value } from "./conversation.js";

/** Show a loaded value, a spinner or an error. @param {any} load @param {(value: any) => any} draw */
function shown(load, draw) {
  if (load.error && !load.value) return html`<${Failed} error=${load.error} retry=${load.again} />`;
  return load.value ? draw(load.value) : html`<${Loading} />`;
}

// Runs ----------------------------------------------------------------------------------------------

/** @param {{session: any}} props */
export function Runs({ session }) {
  const load = useLoad((signal) => get("/runs", { session: session.session_id, limit: 100 }, signal), [session.session_id, session.last_entry]);
  return shown(load, ({ items }) => items.length
    ? html`<ul class="runs stack">${items.map((run) => html`<${Run} key=${run.run_id} run=${run} />`)}</ul>`
    : html`<${Empty} title="No runs"><p>Sessions driven by a library, hooks or the command line have entries, but no runs.</p><//>`);
}

/** @param {{run: any}} props */
function Run({ run }) {
  const until = run.settled_at ? Date.parse(run.settled_at) : now.value;
  return html`<li class="card"><div class="row"><${Status} status=${run.state} /><strong>${oneLine(run.asked, 100) || "a run"}</strong><span class="muted">${run.mode}</span>${run.problems > 0 && html`<span class="chip s-failed" title="Invalid output of the agent: see the conversation">${plural(run.problems, "problem")}</span>`}
      <span class="end muted">${run.started_at ? span((until - Date.parse(run.started_at)) / 1000) : run.because ? reason(run.because) : "waiting for a launcher"} · <${Time} at=${run.created_at} /></span>
      <a class="button small" href=${link("session", run.session_id, { tab: "trace", run: run.run_id })}>Trace</a>
      ${!run.settled_at && html`<${Do} class="small danger" run=${async () => (await post(at`/runs/${run.run_id}/stop`), toast("Stopping"))}>Stop<//>`}
      ${/^(failed|expired)$/.test(run.state) && html`<${Do} class="small" run=${() => retry(run.run_id, run.session_id)}>Retry<//>`}</div>
    <details class="tool" open=${Boolean(run.error)}><summary>${run.error ? html`<span class="warn">${oneLine(run.error, 160)}</span>` : "Output"}</summary>
      ${run.result ? html`<${Text} text=${run.result} />` : html`<p class="muted">${run.settled_at ? "The run returned no result." : "No result yet."}</p>`}
      <dl class="facts"><dt>Run</dt><dd><${Id} id=${run.run_id} short=${false} /></dd>
        <dt>Turns</dt><dd>${run.turns}${run.failures ? `, ${run.failures} failed in a row` : ""}</dd>
        ${run.parent_session_id && html`<dt>Asked by</dt><dd><a href=${link("session", run.parent_session_id)}>${run.parent_session_id}</a>${run.callback ? `, callback ${run.callback}` : ""}</dd>`}
        ${run.retry_of && html`<dt>Repeats</dt><dd><${Id} id=${run.retry_of} short=${false} /></dd>`}
        ${run.reason && html`<dt>Reason</dt><dd>${worded(run.reason)}</dd>`}</dl></details></li>`;
}

// Context -------------------------------------------------------------------------------------------

/** @param {{session: any}} props */
export function Context({ session }) {
  const id = session.session_id;
  const load = useLoad((signal) => get(at`/sessions/${id}/context-items`, {}, signal), [id, session.last_entry]);
  const [edited, setEdited] = useState(/** @type {string | null} */ (null));
  const changed = (key, before) => {
    setEdited(null);
    load.again();
    const undo = async () => {
      if (before === undefined) await del(at`/sessions/${id}/context/${key}`);
      else await put(at`/sessions/${id}/context/${key}`, before);
      load.again();
    };
    toast(`Context: ${key} changed`, { kind: "good", action: { label: "Undo", run: () => void undo().catch(complain) } });
  };
  return shown(load, (items) => {
    const keys = Object.keys(items).sort();
    return html`<div class="stack">
      ${!keys.length && edited === null && html`<${Empty} title="The context is empty"><p>Agents store values here for later turns.</p><//>`}
      ${keys.length > 0 && html`<table class="plain card memory"><thead><tr><th>Key</th><th>Value</th><th>Expires</th><th>Version</th><th><span class="sr">Actions</span></th></tr></thead><tbody>
        ${keys.map((key) => html`<tr key=${key}><td class="mono">${plain(key)}</td><td><pre class="cell">${oneLine(json(items[key].value), 400)}</pre></td><td><${Time} at=${items[key].expires_at} /></td><td class="num">${items[key].version}</td>
          <td class="row"><button type="button" class="small" onClick=${() => setEdited(key)}>Edit</button><${Do} class="small" aria-label=${`Forget ${key}`} run=${async () => (await del(at`/sessions/${id}/context/${key}`), changed(key, items[key].value))}>Forget<//></td></tr>`)}</tbody></table>`}
      ${edited === null ? html`<div><button type="button" onClick=${() => setEdited("")}>Add a value</button></div>`
        : html`<${ContextForm} key=${edited} id=${id} name=${edited} item=${items[edited]} close=${() => setEdited(null)} changed=${changed} />`}</div>`;
  });
}

/** @param {any} props */
function ContextForm({ id, name, item, close, changed }) {
  const [problem, setProblem] = useState("");
  const form = useRef();
  const save = async (event) => {
    event.preventDefault();
    const data = new FormData(form.current);
    const key = name || String(data.get("key"));
    const text = String(data.get("value"));
    try {
      const ttl = data.get("ttl") ? seconds(String(data.get("ttl"))) : undefined;
      await put(at`/sessions/${id}/context/${key}`, valueOf(text), { ttl, version: item?.version });
      changed(key, item?.value);
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error));
    }
  };
  return html`<form ref=${form} class="card stack" onSubmit=${save} aria-label="Edit the context">
    ${!name && html`<label>Key <input name="key" required autocomplete="off" /></label>`}
    <label>${name ? `Value of ${name}` : "Value"} (JSON, or a text) <textarea name="value" class="code" rows="6" spellcheck="false">${item ? JSON.stringify(item.value, null, 2) : ""}</textarea></label>
    <label>Expires after <input name="ttl" placeholder="never; or 90, 30m, 2h, 7d" pattern="\\s*[0-9.]+\\s*[smhdw]?\\s*" /></label>
    ${problem && html`<p class="warn" role="alert">${problem}</p>`}
    <div class="bar"><button type="submit" class="primary">Save</button><button type="button" onClick=${close}>Cancel</button></div></form>`;
}

/** Typed text as JSON if it is valid, else as text. @param {string} text */
function valueOf(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

// Checkpoints ---------------------------------------------------------------------------------------

/** @param {{session: any}} props */
export function Checkpoints({ session }) {
  const id = session.session_id;
  const load = useLoad((signal) => get(at`/sessions/${id}/checkpoints`, { limit: 50 }, signal), [id, session.last_entry]);
  return html`<div class="stack">${shown(load, ({ items }) => items.length
    ? items.map((each, index) => html`<details class="card" key=${each.number} open=${index === 0}><summary>Entry ${each.number} · <${Time} at=${each.at} />${each.by ? ` · ${each.by}` : ""}</summary><${Value} value=${each.checkpoint ?? each.data?.checkpoint ?? each} /></details>`)
    : html`<${Empty} title="No checkpoints"><p>An agent saves one when it suspends, and gets it back when it resumes.</p><//>`)}
    ${!isFinal(session) && html`<${NewCheckpoint} id=${id} onDone=${load.again} />`}</div>`;
}

/** @param {{id: string, onDone: () => void}} props */
function NewCheckpoint({ id, onDone }) {
  const area = useRef();
  return html`<details class="card"><summary>Save a checkpoint</summary><div class="stack">
    <label>State (JSON) <textarea ref=${area} class="code" rows="5">{}</textarea></label>
    <div><${Do} run=${async () => (await post(at`/sessions/${id}/checkpoints`, { checkpoint: JSON.parse(area.current.value) }), toast("Checkpoint saved", { kind: "good" }), onDone())}>Save<//></div></div></details>`;
}

// Log -----------------------------------------------------------------------------------------------

/** @param {{entries: import("./entries.js").Entries}} props */
export function Log({ entries }) {
  const [kind, setKind] = useState("");
  const [text, setText] = useState("");
  const all = entries.all.value;
  const kinds = [...new Set(all.map((entry) => entry.kind))].sort();
  const fitting = all.filter((entry) => (!kind || entry.kind === kind) && (!text || JSON.stringify(entry).toLowerCase().includes(text.toLowerCase())));
  return html`<div class="stack"><div class="bar"><select aria-label="Kind" value=${kind} onChange=${(event) => setKind(event.target.value)}><option value="">All kinds</option>${kinds.map((each) => html`<option>${each}</option>`)}</select>
      <input class="grow" type="search" placeholder="Filter by text" aria-label="Filter by text" value=${text} onInput=${(event) => setText(event.target.value)} />
      <span class="muted">${plural(fitting.length, "entry", "entries")}</span>${entries.hasEarlier.value && html`<${Do} class="small" run=${() => entries.earlier()}>Load earlier<//>`}</div>
    <table class="plain card log"><thead><tr><th>No.</th><th>Time</th><th>Kind</th><th>By</th><th>Content</th></tr></thead><tbody>
      ${fitting.slice(-500).reverse().map((entry) => html`<tr key=${entry.number}><td class="num">${entry.number}</td><td title=${moment(entry.at)}>${clock(entry.at)}</td><td>${entry.kind.replaceAll("_", "_\u200b")}</td><td class="muted">${entry.by}</td>
        <td><details><summary class="mono">${oneLine(entry.role ? `${entry.role}: ${saidBy(entry.content)}` : JSON.stringify(entry.data), 160)}</summary><${Value} value=${entry} /></details></td></tr>`)}</tbody></table></div>`;
}

// Verdict -------------------------------------------------------------------------------------------

const ASKED = {
  exists: "The session exists", whole: "It reads without errors", open: "It is not final", phase: "Its phase allows resuming",
  resume_ready: "It is marked ready", idle_seconds: "Its idle time is below the limit", error_count: "Its errors are below the limit", held_by: "No other driver holds it",
};

/** @param {{session: any}} props */
export function Verdict({ session }) {
  const load = useLoad((signal) => get(at`/sessions/${session.session_id}/resume-verdict`, {}, signal), [session.session_id, session.version, session.last_entry]);
  return shown(load, (verdict) => html`<div class="stack"><p class="verdict ${verdict.decision ? "s-completed" : "s-failed"}"><${Mark} status=${verdict.decision ? "completed" : "failed"} /> <strong>${verdict.decision ? "Moorage would resume this session" : "Moorage would not resume this session"}</strong> <code>${verdict.reason}</code></p>
    <table class="plain card"><thead><tr><th>Criterion</th><th>Value</th><th>Limit</th><th>Met</th></tr></thead><tbody>
    ${Object.entries(verdict.criteria).map(([name, each]) => html`<tr key=${name}><td>${ASKED[name] ?? name} <code class="muted">${name}</code></td><td class="mono">${name === "idle_seconds" ? span(each.value) : json(each.value)}</td><td class="mono">${each.limit === null ? "–" : name === "idle_seconds" ? span(each.limit) : json(each.limit)}</td><td><span class=${`status s-${each.ok ? "completed" : "failed"}`}><${Mark} status=${each.ok ? "completed" : "failed"} />${each.ok ? "yes" : "no"}</span></td></tr>`)}</tbody></table></div>`);
}

// Facts ---------------------------------------------------------------------------------------------

/** @param {{session: any}} props */
export function Facts({ session }) {
  const skip = new Set(["metadata", "messages", "deleted"]);
  return html`<div class="stack"><div class="card"><dl class="facts">${Object.entries(session).filter(([name]) => !skip.has(name)).map(([name, value]) => html`<dt>${name}</dt><dd>${fact(name, value, session.session_id)}</dd>`)}</dl></div>
    <div class="card"><h3>Metadata</h3><${Value} value=${session.metadata ?? {}} /></div></div>`;
}

/** @param {string} name @param {any} value @param {string} own the id of the session */
function fact(name, value, own) {
  if (value === null || value === undefined) return html`<span class="muted">–</span>`;
  if (value === own && name !== "session_id") return html`<span class="muted">this session</span>`;
  if (/_at$/.test(name)) return html`${moment(value)} (<${Time} at=${value} />)`;
  if (/(^|_)id$|_from$/.test(name) && typeof value === "string") return html`<${Id} id=${value} short=${false} />`;
  return typeof value === "object" ? html`<code>${JSON.stringify(value)}</code>` : plain(String(value));
}
