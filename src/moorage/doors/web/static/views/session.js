/** One session: its conversation, runs, context and log, and the actions on it. */
import { Actions, deleteSessions, finalizeSessions, fork, newSession, release, resume, save, stop, suspend } from "../actions.js";
import { at, get, Problem } from "../api.js";
import { moment, nameOf, plain, plural, shortId } from "../format.js";
import { fetchHead, useHead } from "../heads.js";
import { html, useEffect, useState } from "../html.js";
import { useKeys } from "../keys.js";
import { generation, listen } from "../live.js";
import { isFinal, isHeld } from "../reduce.js";
import { link, refine } from "../router.js";
import { useFresh, Why } from "../status.js";
import { ask, complain, Do, Empty, Failed, Id, Loading, Phase, Status, Time, useLoad } from "../ui.js";
import { Conversation } from "./session/conversation.js";
import { Entries } from "./session/entries.js";
import { Checkpoints, Context, Facts, Log, Runs, Verdict } from "./session/panels.js";
import { Phases } from "./session/phases.js";
import { Trace } from "./session/trace.js";

const LOOK_AGAIN = 5000; // milliseconds
const TABS = [["conversation", "Conversation"], ["trace", "Trace"], ["runs", "Runs"], ["context", "Context"], ["checkpoints", "Checkpoints"], ["log", "Log"], ["verdict", "Resume?"], ["facts", "Facts"]];

/** @param {{args: string[], query: Record<string, string>}} props */
function View({ args, query }) {
  // The address may be a name; everything else uses the id.
  const found = useLoad(() => fetchHead(args[0] ?? ""), [args[0]]);
  if (found.error) return html`<${Missing} error=${found.error} name=${args[0]} again=${found.again} />`;
  if (!found.value) return html`<${Loading} />`;
  return html`<${Shown} key=${found.value.session_id} id=${found.value.session_id} query=${query} />`;
}

/** @param {{error: any, name: string, again: () => void}} props */
function Missing({ error, name, again }) {
  if (error instanceof Problem && error.status === 410) return html`<${Deleted} facts=${error.facts} name=${name} />`;
  if (error instanceof Problem && error.status === 404) return html`<${Empty} title="Session not found"><p><code>${plain(name)}</code></p><p><a href="#/sessions">See the sessions</a></p><//>`;
  return html`<${Failed} error=${error} retry=${again} />`;
}

/** @param {{facts: any, name: string}} props */
function Deleted({ facts, name }) {
  const when = facts.deleted_at ?? facts.at;
  return html`<${Empty} title="This session was deleted"><p><strong>${plain(name)}</strong>${when ? html` was deleted ${moment(when)} (<${Time} at=${when} />)` : ""}${facts.deleted_by ? `, by ${facts.deleted_by}` : ""}${facts.reason ? `: ${facts.reason}` : ""}.</p><p><a href="#/sessions">See the other sessions</a></p><//>`;
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
    { keys: "f", does: "Open the family", run: () => (location.hash = link("family", id)) },
    { keys: "s", does: "Stop the run", run: () => void stop(id).catch(complain) },
    { keys: "p", does: "Suspend or resume", run: () => void (session?.state === "suspended" ? resume(id) : suspend(id)).catch(complain) },
    { keys: "c", does: "Finalize", run: () => void finalizeSessions([id]).catch(complain) },
    { keys: "y", does: "Fork", run: () => void fork(id).catch(complain) },
    { keys: "d", does: "Delete", run: () => void deleteSessions([id]) },
    { keys: "n", does: "New child", run: () => void newSession({ parent: id }).catch(complain) },
  ], [id, session?.state]);
  useEffect(() => {
    // A phone has no room for all tabs: show the chosen one.
    if (tab !== "conversation") document.getElementById(`tab-${tab}`)?.scrollIntoView({ block: "nearest", inline: "center" });
  }, [tab, Boolean(session)]);
  if (!session) return html`<${Loading} />`;
  return html`<article class="session">
    <${Top} session=${session} />
    ${session.deleted ? html`<${Deleted} facts=${session.deleted} name=${nameOf(session)} />` : html`
    <${Phases} session=${session} entries=${entries.all.value} />
    <div class="tabs" role="tablist" aria-label="Parts of the session">${TABS.map(([name, title]) => html`<button type="button" role="tab" key=${name} id=${`tab-${name}`} aria-selected=${tab === name ? "true" : "false"} aria-controls="panel" onClick=${() => refine({ tab: name === "conversation" ? "" : name, entry: "", run: "" })}>${title}</button>`)}</div>
    <div id="panel" role="tabpanel" aria-labelledby=${`tab-${tab}`}>
      ${tab === "trace" ? html`<${Trace} session=${session} wanted=${query.run} />` : tab === "runs" ? html`<${Runs} session=${session} />` : tab === "context" ? html`<${Context} session=${session} />` : tab === "checkpoints" ? html`<${Checkpoints} session=${session} />`
        : tab === "log" ? html`<${Log} entries=${entries} />` : tab === "verdict" ? html`<${Verdict} session=${session} />` : tab === "facts" ? html`<${Facts} session=${session} />`
        : html`<${Conversation} session=${session} entries=${entries} entry=${query.entry ? Number(query.entry) : undefined} />`}</div>`}
  </article>`;
}

/** Name, status, phase and actions, which stay in sight; above them the ancestors, below them the details. @param {{session: any}} props */
function Top({ session }) {
  const above = useLoad(() => (session.parent_session_id ? get(at`/sessions/${session.session_id}/ancestors`) : Promise.resolve({ items: [] })), [session.session_id]);
  const trail = [...(above.value?.items ?? [])].reverse();
  useFresh(session, LOOK_AGAIN);
  return html`<header class="top">
    <nav aria-label="Ancestors" class="trail"><a href="#/sessions">Sessions</a>${trail.map((each) => html`<span aria-hidden="true">›</span><a key=${each.session_id} href=${link("session", each.session_id)}>${nameOf(each)}</a>`)}</nav>
    <div class="head"><div class="title"><h1 title=${session.session_id}><bdi>${plain(nameOf(session))}</bdi></h1>
      <div class="row now"><${Status} status=${session.deleted ? "deleted" : session.status} /><${Why} session=${session} />${!isFinal(session) && html`<${Phase} phase=${session.phase} />`}
        ${isHeld(session) && html`<span class="chip">held by ${plain(session.hold.holder)} <${Do} class="link" run=${() => release(session)}>Release<//></span>`}
        ${session.error_count > 0 && session.status !== "run_failed" && html`<span class="chip s-failed" title=${session.last_error}>${plural(session.error_count, "error")}</span>`}</div></div>
      <div class="bar actions"><${Actions} session=${session} /><a class="button" href=${link("family", session.session_id)}>Family</a><${Do} run=${() => exportDialog(session)}>Export<//></div></div>
    ${session.purpose && html`<p class="purpose">${plain(session.purpose)}</p>`}
    <div class="row facts-row">${session.agent_name && html`<span>${plain(session.agent_name)}</span>`}
      ${session.task_id !== session.session_id && html`<span><span class="muted">task</span> <a href=${link("sessions", [], { task: session.task_id })}>${session.task_id.length > 24 ? shortId(session.task_id) : plain(session.task_id)}</a></span>`}
      <span><span class="muted">id</span> <${Id} id=${session.session_id} /></span>
      <span class="muted">created <${Time} at=${session.created_at} /></span><span class="muted">active <${Time} at=${session.last_activity_at} /></span>
      ${session.expires_at && html`<span class="muted">deleted <${Time} at=${session.expires_at} /></span>`}
      ${session.forked_from && html`<span class="muted">forked from <a href=${link("session", session.forked_from)}>${shortId(session.forked_from)}</a></span>`}</div>
    ${session.summary && html`<p class="summary">${plain(session.summary)}</p>`}
  </header>`;
}

/** @param {any} session */
async function exportDialog(session) {
  const answer = await ask("Export", (close) => html`<form class="dialog-body" onSubmit=${(event) => (event.preventDefault(), close(Object.fromEntries(new FormData(event.target))))}>
    <label>Format <select name="format" autofocus><option value="jsonl">JSON Lines: complete, for import</option><option value="markdown">Markdown: for people</option></select></label>
    <label class="inline"><input type="checkbox" name="tree" /> Include all descendants</label>
    <footer><button type="button" onClick=${() => close()}>Cancel</button><button type="submit" class="primary">Download</button></footer></form>`);
  if (answer) await save(session.session_id, answer.format, answer.tree === "on");
}

/** @type {import("../views.js").View} */
export default { name: "session", title: "Session", View };
