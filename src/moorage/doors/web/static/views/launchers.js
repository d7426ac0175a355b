/**
 * Launchers: the processes that start agents, their health, and the sessions each has at work. A launcher sends a heartbeat
 * every ten seconds. The holds on sessions show which launcher works on them.
 */
import { at, get, post } from "../api.js";
import { coarse, moment, nameOf, plain, plural } from "../format.js";
import { learn, useHead } from "../heads.js";
import { html, useEffect } from "../html.js";
import { useKeys } from "../keys.js";
import { generation, listen } from "../live.js";
import { link } from "../router.js";
import { confirm, Do, Empty, Failed, Id, Loading, now, Phase, Status, Time, toast, useLoad } from "../ui.js";

const LATE = 25; // seconds of silence: two missed heartbeats
const GONE = 300; // seconds of silence after which a launcher without sessions is no longer shown
const EVERY = 5000; // milliseconds between two requests
const MOST = 500;

/** Load launchers, the sessions that each has at work, and the runs that no launcher has taken. */
async function load() {
  const [launchers, running, waiting, queued] = await Promise.all([
    get("/launchers"),
    get("/sessions", { status: "running", limit: MOST }),
    get("/sessions", { status: "waiting", limit: MOST }),
    get("/runs", { state: "queued", limit: MOST }),
  ]);
  const sessions = [...running.items, ...waiting.items];
  learn(sessions);
  const items = await Promise.all(launchers.items.map(async (/** @type {any} */ each) => {
    const held = sessions.filter((session) => session.hold?.holder === `launcher:${each.launcher_id}`);
    return { ...each, has: held.map((session) => session.session_id), adopted: await adopted(held, each) };
  }));
  const untaken = queued.items.filter((/** @type {any} */ run) => /_launcher$|launcher_/.test(run.because?.reason ?? ""));
  return { items: items.filter((each) => each.has.length || !isGone(each, Date.now())), queued: untaken };
}

/** The sessions whose turn began before this launcher did: it took them over from its former process. @param {any[]} sessions @param {any} launcher */
async function adopted(sessions, { registered_at: since }) {
  const older = sessions.filter((each) => Date.parse(each.created_at) < Date.parse(since));
  const turns = await Promise.all(older.map((each) => get(at`/sessions/${each.session_id}/log`, { kinds: "turn_started", newest_first: true, limit: 1 })));
  return new Set(older.filter((_, index) => Date.parse(turns[index].items[0]?.at ?? since) < Date.parse(since)).map((each) => each.session_id));
}

/** Whether a launcher has been silent for so long that its turns were given up. @param {any} launcher @param {number} when milliseconds */
export function isGone(launcher, when) {
  return (when - Date.parse(launcher.seen_at)) / 1000 > GONE;
}

/** The health of a launcher: alive, draining, drained or lost. @param {any} launcher @param {number} when milliseconds */
export function health(launcher, when) {
  if ((when - Date.parse(launcher.seen_at)) / 1000 > LATE) return "lost";
  if (launcher.drain && !launcher.draining && !launcher.has?.length) return "drained";
  return launcher.drain || launcher.draining ? "draining" : "alive";
}

function View() {
  const all = useLoad(load, [generation.value]);
  useEffect(() => {
    const timer = setInterval(() => document.hidden || all.again(), EVERY);
    const stop = listen((events) => events.some((event) => /^turn_|^run_|session_deleted/.test(event.type)) && all.again());
    return () => (clearInterval(timer), stop());
  }, []);
  useKeys([{ keys: ".", does: "Look again", run: all.again }], []);
  if (all.error && !all.value) return html`<${Failed} error=${all.error} retry=${all.again} />`;
  if (!all.value) return html`<${Loading} />`;
  const { items, queued } = all.value;
  const alive = items.filter((each) => health(each, now.value) === "alive");
  const atWork = items.reduce((sum, each) => sum + each.has.length, 0);
  return html`<div class="stack">
    <header class="head"><h1>Launchers</h1><span class="muted">${plural(atWork, "session")} at work</span></header>
    <${Queue} runs=${queued} launchers=${items} />
    ${items.length
      ? html`<div class="launchers">${items.map((each) => html`<${Launcher} key=${each.launcher_id} launcher=${each} alone=${alive.length === 1 && alive[0] === each} again=${all.again} />`)}</div>`
      : html`<${Empty} title="No launcher">Messages are stored, but no agent runs until there is a launcher.<br /><code class="hint">moorage launcher --url ${location.origin}</code><//>`}
  </div>`;
}

/** Runs that no launcher has taken, and why. @param {{runs: any[], launchers: any[]}} props */
function Queue({ runs, launchers }) {
  if (!runs.length) return null;
  const known = new Set(launchers.filter((each) => !each.drain && !each.draining).flatMap((each) => each.agents));
  const unserved = [...new Set(runs.map((run) => run.agent_name).filter((name) => name && !known.has(name)))];
  return html`<p class="card row"><${Status} status="queued" /><span>${plural(runs.length, "run")} not taken, the oldest <${Time} at=${runs.at(-1).created_at} />.</span>
    ${unserved.length > 0 && html`<span class="warn">No launcher runs ${unserved.slice(0, 5).map(plain).join(", ")}.</span>`}</p>`;
}

/** @param {{launcher: any, alone: boolean, again: () => void}} props */
function Launcher({ launcher, alone, again }) {
  const state = health(launcher, now.value);
  const silent = Math.max(0, (now.value - Date.parse(launcher.seen_at)) / 1000);
  return html`<section class="card stack" aria-label=${plain(launcher.name)}>
    <header class="row"><h2>${plain(launcher.name)}</h2><${Status} status=${state} /><span class="end muted" title=${moment(launcher.seen_at)}>heartbeat ${silent < 2 ? "now" : `${coarse(silent)} ago`}</span></header>
    ${state === "lost" && html`<p class="warn">No heartbeat for ${coarse(silent)}. After five minutes its turns go to another launcher or fail, as each agent's definition says.</p>`}
    <${Slots} launcher=${launcher} />
    <dl class="facts"><dt>Host</dt><dd>${plain(launcher.host ?? "–")}${launcher.pid ? html`, process <span class="num">${launcher.pid}</span>` : ""}</dd>
      <dt>Since</dt><dd><${Time} at=${launcher.registered_at} /></dd><dt>Id</dt><dd><${Id} id=${launcher.launcher_id} /></dd>
      ${launcher.owners.length > 0 && html`<dt>Works for</dt><dd>${launcher.owners.map(plain).join(", ")}</dd>`}
      <dt>Agents</dt><dd class="row chips">${launcher.agents.length ? launcher.agents.map((name) => html`<a key=${name} class="chip" href=${link("agents", [], { name })}>${plain(name)}</a>`) : html`<span class="muted">unknown</span>`}</dd></dl>
    <${AtWork} ids=${launcher.has} adopted=${launcher.adopted} />
    ${state !== "lost" && html`<${Drain} launcher=${launcher} alone=${alone} again=${again} />`}
  </section>`;
}

/** Slots in use. A turn that waits for a child needs no slot, so there may be more turns than slots. @param {{launcher: any}} props */
function Slots({ launcher }) {
  const used = launcher.has.length;
  const share = launcher.slots ? Math.min(100, (100 * used) / launcher.slots) : 0;
  return html`<div class="slots"><span role="img" aria-label=${`${used} of ${launcher.slots} slots in use`}><i style=${{ width: `${share}%` }}></i></span>
    <small class="num" aria-hidden="true">${used} of ${plural(launcher.slots, "slot")} in use</small></div>`;
}

/** @param {{ids: string[], adopted: Set<string>}} props */
function AtWork({ ids, adopted: taken }) {
  if (!ids.length) return html`<p class="muted">Nothing at work.</p>`;
  return html`<table class="plain at-work"><caption class="sr">At work</caption><thead><tr><th scope="col">Session</th><th scope="col">Status</th><th scope="col">Agent</th><th scope="col">Phase</th><th scope="col">Active</th></tr></thead>
    <tbody>${ids.map((id) => html`<${Row} key=${id} id=${id} isAdopted=${taken.has(id)} />`)}</tbody></table>`;
}

/** @param {{id: string, isAdopted: boolean}} props */
function Row({ id, isAdopted }) {
  const session = useHead(id);
  if (!session) return null;
  return html`<tr><td><a href=${link("session", id)}>${plain(nameOf(session))}</a>${isAdopted && html` <span class="chip" title="This launcher took the turn over from its former process, which it replaced">adopted</span>`}</td><td><${Status} status=${session.status} /></td><td>${plain(session.agent_name ?? "–")}</td><td><${Phase} phase=${session.phase} /></td><td><${Time} at=${session.last_activity_at} /></td></tr>`;
}

/** Let a launcher finish its turns and take no new ones, or claim again. @param {{launcher: any, alone: boolean, again: () => void}} props */
function Drain({ launcher, alone, again }) {
  const tell = async (/** @type {boolean} */ drain) => {
    await post(at`/launchers/${launcher.launcher_id}/drain`, { drain });
    toast(`${plain(launcher.name)} takes ${drain ? "no more turns" : "turns again"}`);
    again();
  };
  const drain = async () => {
    if (await confirm(`Drain ${plain(launcher.name)}?`, html`<${Consequences} launcher=${launcher} alone=${alone} />`, { yes: "Drain" })) await tell(true);
  };
  if (launcher.draining) return html`<p class="muted">It is ending and takes no more turns.</p>`;
  if (!launcher.drain) return html`<footer class="row"><${Do} run=${drain}>Drain…<//></footer>`;
  const count = launcher.has.length;
  return html`<footer class="row"><span class="muted">It takes no more turns${count ? ` and finishes ${plural(count, "session")}.` : "."}</span>
    <${Do} class="end" run=${() => tell(false)}>Resume claiming<//></footer>`;
}

/** @param {{launcher: any, alone: boolean}} props */
function Consequences({ launcher, alone }) {
  const count = launcher.has.length;
  return html`<div class="stack tight"><p>It takes no more turns. ${count ? `${plural(count, "session")} at work will finish, however long that takes.` : "It has nothing at work."}</p>
    <p class="muted">A separate launcher process then ends. The launcher of a server stays; it can claim again, as can any launcher that has not ended.</p>
    ${alone && html`<p class="warn">No other launcher is alive: new runs will wait.</p>`}</div>`;
}

/** @type {import("../views.js").View} */
export default { name: "launchers", title: "Launchers", hotkey: "l", icon: "M8 2c3 2 3 6 2 9H6c-1-3-1-7 2-9M6 9l-2.500 3H6m4-3 2.500 3H10", View };
