/**
 * Launchers: who starts agents, whether they are well, and what each has at work. A launcher tells of itself every ten
 * seconds; what it has at work is known from the holds on sessions, so both agree with what the server would decide.
 */
import { at, get, post } from "../api.js";
import { coarse, moment, nameOf, plain, plural } from "../format.js";
import { learn, useHead } from "../heads.js";
import { html, useEffect } from "../html.js";
import { useKeys } from "../keys.js";
import { generation, listen } from "../live.js";
import { link } from "../router.js";
import { confirm, Do, Empty, Failed, Id, Loading, now, Phase, Status, Time, toast, useLoad } from "../ui.js";

const LATE = 25; // seconds of silence: two signs of life missed
const EVERY = 5000; // milliseconds between two looks
const MOST = 500;

/** Launchers, the sessions that each has at work, and what nobody has taken yet. */
async function load() {
  const [launchers, running, waiting, queued] = await Promise.all([
    get("/launchers"),
    get("/sessions", { status: "running", limit: MOST }),
    get("/sessions", { status: "waiting", limit: MOST }),
    get("/runs", { state: "queued", limit: MOST }),
  ]);
  const sessions = [...running.items, ...waiting.items];
  learn(sessions);
  const has = (/** @type {any} */ launcher) => sessions.filter((each) => each.hold?.holder === `launcher:${launcher.launcher_id}`).map((each) => each.session_id);
  const untaken = queued.items.filter((/** @type {any} */ run) => /_launcher$|launcher_/.test(run.because?.reason ?? ""));
  return { items: launchers.items.map((/** @type {any} */ each) => ({ ...each, has: has(each) })), queued: untaken };
}

/** How a launcher is: alive, taking no more turns, or not heard of. @param {any} launcher @param {number} when milliseconds */
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
    <header class="head"><h1>Launchers</h1><span class="muted">${plural(items.length, "launcher")}, ${plural(atWork, "session")} at work</span></header>
    <${Queue} runs=${queued} launchers=${items} />
    ${items.length
      ? html`<div class="launchers">${items.map((each) => html`<${Launcher} key=${each.launcher_id} launcher=${each} alone=${alive.length === 1 && alive[0] === each} again=${all.again} />`)}</div>`
      : html`<${Empty} title="Nobody starts agents">Sessions are kept and messages wait, but no agent answers until there is a launcher.<br /><code class="hint">moorage launcher --url ${location.origin}</code><//>`}
  </div>`;
}

/** What nobody has taken yet, and why. @param {{runs: any[], launchers: any[]}} props */
function Queue({ runs, launchers }) {
  if (!runs.length) return null;
  const known = new Set(launchers.filter((each) => !each.drain && !each.draining).flatMap((each) => each.agents));
  const nobody = [...new Set(runs.map((run) => run.agent_name).filter((name) => name && !known.has(name)))];
  return html`<p class="card row"><${Status} status="queued" /><span>${plural(runs.length, "run")} not taken yet, the oldest <${Time} at=${runs.at(-1).created_at} />.</span>
    ${nobody.length > 0 && html`<span class="warn">No launcher takes turns of ${nobody.slice(0, 5).map(plain).join(", ")}.</span>`}</p>`;
}

/** @param {{launcher: any, alone: boolean, again: () => void}} props */
function Launcher({ launcher, alone, again }) {
  const state = health(launcher, now.value);
  const silent = Math.max(0, (now.value - Date.parse(launcher.seen_at)) / 1000);
  return html`<section class="card stack" aria-label=${plain(launcher.name)}>
    <header class="row"><h2>${plain(launcher.name)}</h2><${Status} status=${state} /><span class="end muted" title=${moment(launcher.seen_at)}>heard of ${silent < 2 ? "just now" : `${coarse(silent)} ago`}</span></header>
    ${state === "lost" && html`<p class="warn">It has not been heard of for ${coarse(silent)}. What it had at work is given to another one, or fails, as each agent's definition says.</p>`}
    <${Slots} launcher=${launcher} />
    <dl class="facts"><dt>Host</dt><dd>${plain(launcher.host ?? "–")}${launcher.pid ? html`, process <span class="num">${launcher.pid}</span>` : ""}</dd>
      <dt>Since</dt><dd><${Time} at=${launcher.registered_at} /></dd><dt>Id</dt><dd><${Id} id=${launcher.launcher_id} /></dd>
      ${launcher.owners.length > 0 && html`<dt>Works for</dt><dd>${launcher.owners.map(plain).join(", ")}</dd>`}
      <dt>Agents</dt><dd class="row chips">${launcher.agents.length ? launcher.agents.map((name) => html`<a key=${name} class="chip" href=${link("agents", [], { name })}>${plain(name)}</a>`) : html`<span class="muted">it has not said</span>`}</dd></dl>
    <${AtWork} ids=${launcher.has} />
    ${state !== "lost" && html`<${Drain} launcher=${launcher} alone=${alone} again=${again} />`}
  </section>`;
}

/** How full it is. A turn that waits for a child needs no slot, so there may be more. @param {{launcher: any}} props */
function Slots({ launcher }) {
  const used = launcher.has.length;
  const share = launcher.slots ? Math.min(100, (100 * used) / launcher.slots) : 0;
  return html`<div class="slots"><span role="img" aria-label=${`${used} of ${launcher.slots} slots in use`}><i style=${{ width: `${share}%` }}></i></span>
    <small class="num" aria-hidden="true">${used} of ${plural(launcher.slots, "slot")} in use</small></div>`;
}

/** @param {{ids: string[]}} props */
function AtWork({ ids }) {
  if (!ids.length) return html`<p class="muted">Nothing at work.</p>`;
  return html`<table class="plain"><caption class="sr">At work</caption><thead><tr><th scope="col">Session</th><th scope="col">Status</th><th scope="col">Agent</th><th scope="col">Phase</th><th scope="col">Last sign</th></tr></thead>
    <tbody>${ids.map((id) => html`<${Row} key=${id} id=${id} />`)}</tbody></table>`;
}

/** @param {{id: string}} props */
function Row({ id }) {
  const session = useHead(id);
  if (!session) return null;
  return html`<tr><td><a href=${link("session", id)}>${plain(nameOf(session))}</a></td><td><${Status} status=${session.status} /></td><td>${plain(session.agent_name ?? "–")}</td><td><${Phase} phase=${session.phase} /></td><td><${Time} at=${session.last_activity_at} /></td></tr>`;
}

/** Let a launcher finish and take nothing new, or go on. @param {{launcher: any, alone: boolean, again: () => void}} props */
function Drain({ launcher, alone, again }) {
  const tell = async (/** @type {boolean} */ drain) => {
    await post(at`/launchers/${launcher.launcher_id}/drain`, { drain });
    toast(`${plain(launcher.name)} takes ${drain ? "no more turns" : "turns again"}`);
    again();
  };
  const drain = async () => {
    if (await confirm(`Drain ${plain(launcher.name)}?`, html`<${Consequences} launcher=${launcher} alone=${alone} />`, { yes: "Drain" })) await tell(true);
  };
  if (launcher.draining) return html`<p class="muted">It is ending, and takes no more turns.</p>`;
  if (!launcher.drain) return html`<footer class="row"><${Do} run=${drain}>Drain…<//></footer>`;
  const count = launcher.has.length;
  return html`<footer class="row"><span class="muted">It takes no more turns${count ? `, and goes on with ${plural(count, "session")}.` : "."}</span>
    <${Do} class="end" run=${() => tell(false)}>Resume claiming<//></footer>`;
}

/** @param {{launcher: any, alone: boolean}} props */
function Consequences({ launcher, alone }) {
  const count = launcher.has.length;
  return html`<div class="stack tight"><p>It takes no more turns. ${count ? `What it has at work (${plural(count, "session")}) goes on to its end, however long that takes.` : "It has nothing at work."}</p>
    <p class="muted">A launcher that is a process of its own ends then. A server's own stays, and may be told to claim again; so may any that has not ended yet.</p>
    ${alone && html`<p class="warn">No other launcher is alive: whatever is asked for from now on waits.</p>`}</div>`;
}

/** @type {import("../views.js").View} */
export default { name: "launchers", title: "Launchers", hotkey: "l", icon: "M8 2c3 2 3 6 2 9H6c-1-3-1-7 2-9M6 9l-2.500 3H6m4-3 2.500 3H10", View };
