/**
 * Trace: one run of a session on a time axis, with turns, messages, tool calls, approvals and children. It loads the entries of
 * the run and no others, and follows a run that is still open.
 */
import { at, get } from "../../api.js";
import { clock, moment, nameOf, oneLine, plain, plural, precise, shortId, worded } from "../../format.js";
import { useHead } from "../../heads.js";
import { html, useEffect, useState } from "../../html.js";
import { listen } from "../../live.js";
import { link, refine } from "../../router.js";
import { Empty, Failed, Loading, Mark, now, Status, useLoad } from "../../ui.js";
import { ticks } from "../family/layout.js";
import { Value } from "./conversation.js";
import { spans, summary } from "./spans.js";

const PAGE = 1000;
const MOST = 5000; // entries of one run
const SETTLE = 250; // milliseconds: a turn writes several entries in a row
const TICKS = 5;

/** @param {{session: any, wanted?: string}} props */
export function Trace({ session, wanted }) {
  const runs = useLoad((signal) => get("/runs", { session: session.session_id, limit: 100 }, signal), [session.session_id, session.last_run?.id, session.status]);
  if (runs.error && !runs.value) return html`<${Failed} error=${runs.error} retry=${runs.again} />`;
  if (!runs.value) return html`<${Loading} />`;
  const items = runs.value.items;
  const id = wanted ?? items[0]?.run_id;
  if (!id) return html`<${Empty} title="No runs"><p>A run starts when you ask the agent. Sessions driven by a library, hooks or the command line have entries, but no runs.</p><//>`;
  return html`<div class="stack">
    ${items.length > 1 && html`<label class="inline">Run <select aria-label="Run" value=${id} onChange=${(event) => refine({ run: event.target.value })}>
      ${!items.some((each) => each.run_id === id) && html`<option value=${id}>${shortId(id)}</option>`}
      ${items.map((each) => html`<option key=${each.run_id} value=${each.run_id}>${clock(each.created_at)} · ${worded(each.state)} · ${oneLine(each.asked, 60)}</option>`)}</select></label>`}
    <${Traced} key=${id} id=${id} /></div>`;
}

/** @param {{id: string}} props */
function Traced({ id }) {
  const [trace] = useState(() => new Loader(id));
  const [found, setFound] = useState(/** @type {{run: any, entries: any[], children: any[]} | null} */ (null));
  const [error, setError] = useState(/** @type {any} */ (null));
  useEffect(() => {
    let timer = 0, isOver = false;
    const load = () => trace.load().then((value) => isOver || (setFound(value), setError(null)), (problem) => isOver || setError(problem));
    void load();
    const unlisten = listen((events) => {
      if (events.some((event) => trace.concerns(event.session_id))) timer ||= setTimeout(() => ((timer = 0), void load()), SETTLE);
    });
    return () => ((isOver = true), unlisten(), clearTimeout(timer));
  }, [id]);
  if (error && !found) return html`<${Failed} error=${error} />`;
  if (!found) return html`<${Loading} />`;
  return html`<${Drawn} ...${found} isCut=${trace.isCut} />`;
}

/** Loads one run: the entries from its prompt to its end, and the runs of its children. */
class Loader {
  /** @param {string} id */
  constructor(id) {
    this.id = id;
    this.session = "";
    this.entries = /** @type {any[]} */ ([]);
    this.children = /** @type {any[]} */ ([]);
    this.isDone = false;
    this.isCut = false;
  }

  /** @param {string} session */
  concerns(session) {
    return !this.isDone && (session === this.session || this.children.some((each) => each.session_id === session));
  }

  async load() {
    const run = await get(at`/runs/${this.id}`);
    this.session = run.session_id;
    const [, children] = await Promise.all([this.#log(run), this.#childrenOf(run)]);
    this.children = children;
    this.isDone = Boolean(run.settled_at) && children.every((each) => each.settled_at);
    return { run, entries: [...this.entries], children };
  }

  /** Read on from the last known entry. @param {any} run */
  async #log(run) {
    const isEnd = (/** @type {any} */ entry) => entry.kind === "run_settled" && entry.data.run_id === this.id;
    let after = this.entries.at(-1)?.number ?? (run.asked_entry ?? 1) - 1;
    while (!this.entries.some(isEnd) && this.entries.length < MOST) {
      const page = await get(at`/sessions/${run.session_id}/log`, { after, limit: PAGE });
      const end = page.items.findIndex(isEnd);
      this.entries.push(...(end < 0 ? page.items : page.items.slice(0, end + 1)));
      if (!page.next || !page.items.length) return;
      after = page.items.at(-1).number;
    }
    this.isCut = this.entries.length >= MOST;
  }

  /** The runs that this one asked of children. Runs come newest first, so older pages are not read. @param {any} run */
  async #childrenOf(run) {
    const found = [];
    for (let cursor = null; ; ) {
      const page = await get("/runs", { parent: run.session_id, limit: PAGE, cursor });
      found.push(...page.items.filter((/** @type {any} */ each) => each.parent_run_id === this.id));
      if (!page.next || Date.parse(page.items.at(-1).created_at) < Date.parse(run.created_at)) return found;
      cursor = page.next;
    }
  }
}

/** @param {{run: any, entries: any[], children: any[], isCut: boolean}} props */
function Drawn({ run, entries, children, isCut }) {
  const [shown, setShown] = useState(/** @type {string | null} */ (null));
  const [zoom, setZoom] = useState(/** @type {[number, number] | null} */ (null));
  const all = spans(run, entries, children);
  const isOpen = !run.settled_at;
  const today = isOpen ? now.value : 0;
  const last = Math.max(...all.map((each) => each.to ?? today), all[0].from + 1);
  const [from, to] = zoom ?? [all[0].from, last];
  const share = (/** @type {number} */ when) => (100 * (when - from)) / Math.max(1, to - from);
  const rows = zoom ? all.filter((each) => (each.to ?? today) >= from && each.from <= to) : all;
  return html`<${Summary} run=${run} all=${all} last=${last} />
    <div class="card trace" role="table" aria-label="Trace of the run">
      <div class="span axis-row" role="row"><span role="columnheader">${zoom ? html`<button type="button" class="small" onClick=${() => setZoom(null)}>Show the whole run</button>` : "Step"}</span><span role="columnheader" class="took">Took</span>
        <span role="columnheader" class="lane"><span class="sr">Time</span>${ticks(0, to - from, TICKS, true).filter((each) => each < (to - from) * 0.94).map((each) => html`<i key=${each} class="at" style=${{ left: `${share(from + each)}%` }}>${each ? `+${precise(each + from - all[0].from)}` : clock(from)}</i>`)}</span></div>
      ${rows.map((each) => html`<${Row} key=${each.id} span=${each} today=${today} share=${share} isShown=${shown === each.id} flip=${() => setShown(shown === each.id ? null : each.id)} zoom=${setZoom} />`)}</div>
    ${isCut && html`<p class="muted">The first ${plural(MOST, "entry", "entries")} of this run are shown; the log has the rest.</p>`}`;
}

/** @param {{run: any, all: import("./spans.js").Span[], last: number}} props */
function Summary({ run, all, last }) {
  const told = summary(all);
  const took = (run.settled_at ? Date.parse(run.settled_at) : last) - all[0].from;
  const facts = [
    ["Duration", precise(took)], ["Queued", told.queued ? precise(told.queued) : 0], ["Turns", told.turns], ["Tool calls", told.tools], ["Approvals", told.approvals], ["Children", told.children],
    ["Tokens", tokens(told.tokens)], ["Children's tokens", tokens(told.childTokens)], ["Cost", money(told.cost)], ["Children's cost", money(told.childCost)],
  ].filter(([, value]) => value !== undefined && value !== 0);
  return html`<div class="trace-head"><div class="row"><${Status} status=${run.state} /><strong class="cut">${plain(oneLine(run.asked, 160)) || "Run"}</strong><span class="muted" title=${moment(run.created_at)}>${clock(run.created_at)}</span>${run.error && html`<span class="warn">${plain(oneLine(run.error, 160))}</span>`}</div>
    <dl class="counts">${facts.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd class="num">${value}</dd></div>`)}</dl></div>`;
}

/** @param {{span: import("./spans.js").Span, today: number, share: (when: number) => number, isShown: boolean, flip: () => void, zoom: (range: [number, number]) => void}} props */
function Row({ span, today, share, isShown, flip, zoom }) {
  const end = span.to ?? today;
  const took = span.isPoint ? "" : precise(end - span.from);
  const left = Math.max(0, share(span.from)), right = Math.min(100, share(end));
  const begin = Math.max(0, share(span.begin));
  const about = span.kind === "run" ? "" : [tokens(span.tokens, " tokens"), money(span.cost)].filter(Boolean).join(", "); // the summary has those of the run
  return html`<div class="span k-${span.kind} ${isShown ? "shown" : ""}" role="row">
      <span role="cell" class="what d${span.depth}"><button type="button" class="expand" aria-expanded=${String(isShown)} disabled=${span.detail === undefined} onClick=${flip}><${Mark} status=${span.kind === "message" ? "idle" : span.state} title=${worded(span.state)} />
        <b>${span.kind === "message" ? span.note : span.kind === "child" ? html`<${Name} run=${span.run} />` : span.label}</b>
        <span class="muted">${[span.kind === "message" ? span.label : span.note, about].filter(Boolean).join(" · ")}</span></button></span>
      <span role="cell" class="took num">${took}</span>
      <span role="cell" class="lane" title=${`${span.label}${took ? `, ${took}` : ""}, ${clock(span.from)}`}>${span.isPoint
        ? html`<i class="point b-${span.state}" style=${{ left: `${share(span.from)}%` }}></i>`
        : html`${begin > left + 0.2 && html`<i class="queued" style=${{ left: `${left}%`, width: `${begin - left}%` }}></i>`}<i class="bar b-${span.state}" style=${{ left: `${begin}%`, width: `${Math.max(0, right - begin)}%` }}></i>`}</span></div>
    ${isShown && html`<div class="span-detail" role="row"><div role="cell"><div class="row">
      ${span.kind === "turn" && end > span.from && html`<button type="button" class="small" onClick=${() => zoom([span.from, end])}>Zoom to this turn</button>`}
      ${span.kind === "child" && html`<a class="button small" href=${link("session", span.run.session_id, { tab: "trace", run: span.run.run_id })}>Open its trace</a>`}
      ${span.kind === "approval" && span.state === "waiting" && html`<a class="button small" href=${link("approvals", [], { id: span.detail.approval_id })}>Decide</a>`}
      <span class="muted">${clock(span.from)}${span.isPoint ? "" : ` to ${span.to === null ? "now" : clock(span.to)}`}</span></div>
      <${Value} value=${span.detail} /></div></div>`}`;
}

/** The name of a child's session, with its agent until it is known. @param {{run: any}} props */
function Name({ run }) {
  const session = useHead(run.session_id);
  return session?.session_name ? plain(nameOf(session)) : plain(run.agent_name ?? "child");
}

/** @param {number | undefined} count @param {string} [unit] */
const tokens = (count, unit = "") => (count === undefined ? undefined : `${count.toLocaleString()}${unit}`);

/** @param {number | undefined} cost US dollars */
const money = (cost) => (cost === undefined ? undefined : `$${cost < 0.1 ? cost.toFixed(4) : cost.toFixed(2)}`);
