/** One session: what was said, what runs, what it remembers, and what can be done to it. */
import { Actions, deleteSessions, finalizeSessions, fork, newSession, release, resume, save, stop, suspend } from "../actions.js";
import { at, get, Problem } from "../api.js";
import { moment, nameOf, plain, reason, shortId } from "../format.js";
import { fetchHead, touch, useHead } from "../heads.js";
import { html, useEffect, useState } from "../html.js";
import { useKeys } from "../keys.js";
import { generation, listen } from "../live.js";
import { isHeld } from "../reduce.js";
import { link, refine } from "../router.js";
import { ask, complain, Do, Empty, Failed, Id, Loading, Phase, Status, Time, useLoad } from "../ui.js";
import { Conversation } from "./session/conversation.js";
import { Entries } from "./session/entries.js";
import { Checkpoints, Context, Facts, Log, Runs, Verdict } from "./session/panels.js";
import { Phases } from "./session/phases.js";

const LOOK_AGAIN = 5000; // milliseconds
const TABS = [["conversation", "Conversation"], ["runs", "Runs"], ["context", "Context"], ["checkpoints", "Checkpoints"], ["log", "Log"], ["verdict", "Resume?"], ["facts", "Facts"]];

/** @param {{args: string[], query: Record<string, string>}} props */
function View({ args, query }) {
  // A name will do as an address; everything else goes by the id.
  const found = useLoad(() => fetchHead(args[0] ?? ""), [args[0]]);
  if (found.error) return html`<${Missing} error=${found.error} name=${args[0]} again=${found.again} />`;
  if (!found.value) return html`<${Loading} />`;
  return html`<${Shown} key=${found.value.session_id} id=${found.value.session_id} query=${query} />`;
}

/** @param {{error: any, name: string, again: () => void}} props */
function Missing({ error, name, again }) {
  if (error instanceof Problem && error.status === 410) return html`<${Deleted} facts=${error.facts} name=${name} />`;
  if (error instanceof Problem && error.status === 404) return html`<${Empty} title="There is no such session"><p><code>${plain(name)}</code></p><p><a href="#/sessions">See the sessions</a></p><//>`;
  return html`<${Failed} error=${error} retry=${again} />`;
}

/** @param {{facts: any, name: string}} props */
function Deleted({ facts, name }) {
  const when = facts.deleted_at ?? facts.at;
  return html`<${Empty} title="This session was deleted"><p><strong>${plain(name)}</strong>${when ? html` went ${moment(when)} (<${Time} at=${when} />)` : ""}${facts.deleted_by ? `, by ${facts.deleted_by}` : ""}${facts.reason ? `: ${facts.reason}` : ""}.</p><p><a href="#/sessions">Go on with the others</a></p><//>`;
}

/** @param {{id: string, query: Record<string, string>}} props */
function Shown({ id, query }) {
  const session = useHead(id);
  const [entries] = useState(() => new Entries(id));
  const tab = query.tab || "conversation";
  useEffect(() => {
    void entries.load();
    return listen((events) => entries.hear(events));
  }, [id, generation.value]);
  useKeys([
    ...TABS.map(([name, title], index) => ({ keys: String(index + 1), does: title, run: () => refine({ tab: index ? name : "" }) })),
    { keys: "r", does: "Write a message", run: () => /** @type {HTMLElement | null} */ (document.querySelector(".composer textarea"))?.focus() },
    { keys: "f", does: "Its family", run: () => (location.hash = link("family", id)) },
    { keys: "s", does: "Stop what runs", run: () => void stop(id).catch(complain) },
    { keys: "p", does: "Suspend or resume", run: () => void (session?.state === "suspended" ? resume(id) : suspend(id)).catch(complain) },
    { keys: "c", does: "Close it", run: () => void finalizeSessions([id]).catch(complain) },
    { keys: "y", does: "Fork it", run: () => void fork(id).catch(complain) },
    { keys: "d", does: "Delete it", run: () => void deleteSessions([id]) },
    { keys: "n", does: "New child", run: () => void newSession({ parent: id }).catch(complain) },
  ], [id, session?.state]);
  if (!session) return html`<${Loading} />`;
  return html`<article class="session">
    <${Top} session=${session} />
    ${session.deleted ? html`<${Deleted} facts=${session.deleted} name=${nameOf(session)} />` : html`
    <${Phases} session=${session} entries=${entries.all.value} />
    <div class="tabs" role="tablist" aria-label="Sides of the session">${TABS.map(([name, title]) => html`<button type="button" role="tab" key=${name} id=${`tab-${name}`} aria-selected=${tab === name ? "true" : "false"} aria-controls="panel" onClick=${() => refine({ tab: name === "conversation" ? "" : name, entry: "" })}>${title}</button>`)}</div>
    <div id="panel" role="tabpanel" aria-labelledby=${`tab-${tab}`}>
      ${tab === "runs" ? html`<${Runs} session=${session} />` : tab === "context" ? html`<${Context} session=${session} />` : tab === "checkpoints" ? html`<${Checkpoints} session=${session} />`
        : tab === "log" ? html`<${Log} entries=${entries} />` : tab === "verdict" ? html`<${Verdict} session=${session} />` : tab === "facts" ? html`<${Facts} session=${session} />`
        : html`<${Conversation} session=${session} entries=${entries} entry=${query.entry ? Number(query.entry) : undefined} />`}</div>`}
  </article>`;
}

/** @param {{session: any}} props */
function Top({ session }) {
  const above = useLoad(() => (session.parent_session_id ? get(at`/sessions/${session.session_id}/ancestors`) : Promise.resolve({ items: [] })), [session.session_id]);
  const trail = [...(above.value?.items ?? [])].reverse();
  return html`<header class="top">
    <nav aria-label="Ancestors" class="trail"><a href="#/sessions">Sessions</a>${trail.map((each) => html`<span aria-hidden="true">›</span><a key=${each.session_id} href=${link("session", each.session_id)}>${nameOf(each)}</a>`)}</nav>
    <div class="head"><h1><bdi>${plain(nameOf(session))}</bdi></h1><div class="bar">
      <a class="button" href=${link("family", session.session_id)}>Family</a><${Do} run=${() => exportDialog(session)}>Export<//><${Actions} session=${session} /></div></div>
    <div class="row facts-row"><${Status} status=${session.deleted ? "deleted" : session.status} /><${Waiting} session=${session} /><${Phase} phase=${session.phase} /><span>${session.agent_name}</span>
      <span class="muted">task</span><${Id} id=${session.task_id} /><span class="muted">id</span><${Id} id=${session.session_id} />
      <span class="muted">made <${Time} at=${session.created_at} />, last heard <${Time} at=${session.last_activity_at} /></span>
      ${session.expires_at && html`<span class="muted">deleted <${Time} at=${session.expires_at} /></span>`}
      ${isHeld(session) && html`<span class="chip">held by ${plain(session.hold.holder)} <${Do} class="link" run=${() => release(session)}>Release<//></span>`}
      ${session.forked_from && html`<span class="muted">forked from <a href=${link("session", session.forked_from)}>${session.forked_from.slice(-8)}</a></span>`}
      ${session.error_count > 0 && html`<span class="chip s-failed">${session.error_count} errors</span>`}</div>
    ${session.summary && html`<p class="summary">${plain(session.summary)}</p>`}
  </header>`;
}

/** What the session waits for, and why what was asked has not started. @param {{session: any}} props */
function Waiting({ session }) {
  const { waiting_for: awaited, because, status } = session;
  useEffect(() => {
    // Launchers come and holds end without an entry in the log of this session.
    if (status !== "queued" && !session.hold) return undefined;
    const timer = setInterval(() => document.hidden || touch(session.session_id), LOOK_AGAIN);
    return () => clearInterval(timer);
  }, [session.session_id, status, Boolean(session.hold)]);
  if (session.deleted) return null;
  if (status === "waiting" && awaited?.child) return html`<${Child} key=${awaited.child.session_id} id=${awaited.child.session_id} />`;
  if (status === "waiting" && awaited?.approval_id) return html`<span class="chip">for <a href=${link("approvals", [], { id: awaited.approval_id })}>an approval</a></span>`;
  if (status === "run_failed") return html`<span class="chip s-failed">${plain(session.last_run?.reason ?? "failed")} <${Time} at=${session.last_run?.settled_at} /></span>`;
  return because && (/^(queued|suspended)$/.test(status) || because.reason === "unresponsive") ? html`<span class="chip">${reason(because)}</span>` : null;
}

/** The child that a session waits for. @param {{id: string}} props */
function Child({ id }) {
  const child = useHead(id);
  return html`<span class="chip">for <a href=${link("session", id)}>${child ? plain(nameOf(child)) : shortId(id)}</a></span>`;
}

/** @param {any} session */
async function exportDialog(session) {
  const answer = await ask("Export", (close) => html`<form class="dialog-body" onSubmit=${(event) => (event.preventDefault(), close(Object.fromEntries(new FormData(event.target))))}>
    <label>Form <select name="format" autofocus><option value="jsonl">JSON lines: whole, can be imported</option><option value="markdown">Markdown: to read</option></select></label>
    <label class="inline"><input type="checkbox" name="tree" /> With all that hangs on it</label>
    <footer><button type="button" onClick=${() => close()}>Cancel</button><button type="submit" class="primary">Save a file</button></footer></form>`);
  if (answer) await save(session.session_id, answer.format, answer.tree === "on");
}

/** @type {import("../views.js").View} */
export default { name: "session", title: "Session", View };
