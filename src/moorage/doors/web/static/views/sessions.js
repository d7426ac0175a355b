/**
 * Sessions: a table over a store of any size. Pages of fifty come as one scrolls, only the rows in sight are drawn,
 * and each row draws itself again when its session changes. Filters are the address.
 */
import { deleteSessions, finalizeSessions, newSession } from "../actions.js";
import { get } from "../api.js";
import { nameOf, oneLine, plain, plural, reason, textOf } from "../format.js";
import { head, learn, useHead } from "../heads.js";
import { batch, html, signal, useEffect, useRef, useSignal, useState } from "../html.js";
import { isTyping, useKeys } from "../keys.js";
import { generation, listen } from "../live.js";
import { fits } from "../reduce.js";
import { go, link, refine } from "../router.js";
import { complain, Do, Empty, Failed, Id, Loading, Phase, Status, Time, useLoad } from "../ui.js";

const PAGE = 50;
const ROW = 38; // pixels
const AHEAD = 12; // rows drawn above and below those in sight
const LOOK_AGAIN = 1000; // milliseconds between two looks for new sessions

const STATUSES = ["running", "waiting", "queued", "run_failed", "idle", "created", "suspended", "completed", "failed", "abandoned"];
const STATES = ["created", "active", "suspended", "completed", "failed", "abandoned"];
const PHASES = ["initializing", "investigating", "planning", "approval", "executing", "validating", "completed", "failed", "abandoned"];
/** What a store of any size can be listed by: the rest are filters. */
const SORTS = { "": "Newest first", created: "Oldest first", "-updated": "Last updated first", updated: "Longest untouched first" };
const FILTERS = ["status", "state", "phase", "agent", "task", "parent", "name_prefix", "active_only", "sort"];

/** The newest line of a session, by its id. @type {Map<string, import("../vendor/signals.mjs").Signal<{role: string, line: string} | null>>} */
const lines = new Map();
/** @param {string} id */
function lineOf(id) {
  let found = lines.get(id);
  if (!found) lines.set(id, (found = signal(/** @type {any} */ (null))));
  return found;
}

// The list ------------------------------------------------------------------------------------------

/** Sessions that fit some filters, page by page. */
class List {
  /** @param {Record<string, string>} filters */
  constructor(filters) {
    this.filters = filters;
    this.ids = signal(/** @type {string[]} */ ([]));
    this.next = signal(/** @type {string | null} */ (null));
    this.error = signal(/** @type {any} */ (null));
    this.isLoading = signal(true);
    this.isFirst = signal(true);
    this.known = new Set();
    this.timer = 0;
    this.isGone = false; // another list is shown by now
    this.isAtTop = true;
    this.active = /** @type {string[]} */ ([]); // those that would be on top if they were sorted again
  }

  get byUpdate() {
    return this.filters.sort === "-updated";
  }

  /** Ask for the next page. */
  async more() {
    if (this.isLoading.peek() && !this.isFirst.peek()) return;
    this.isLoading.value = true;
    try {
      let page = await get("/sessions", { ...this.filters, limit: PAGE, cursor: this.next.peek() });
      // By update, a page may be empty though others follow: the store has looked far enough for one request.
      while (!page.items.length && page.next && !this.isGone) page = await get("/sessions", { ...this.filters, limit: PAGE, cursor: page.next });
      batch(() => {
        this.take(page.items, "end");
        this.next.value = page.next;
        this.error.value = null;
        this.isFirst.value = false;
        this.isLoading.value = false;
      });
    } catch (error) {
      batch(() => ((this.error.value = error), (this.isLoading.value = false)));
    }
  }

  /** Look whether there are new ones, soon. */
  lookAgain() {
    this.timer ||= setTimeout(() => {
      this.timer = 0;
      void this.newest().catch(() => {});
    }, LOOK_AGAIN);
  }

  async newest() {
    const page = await get("/sessions", { ...this.filters, limit: PAGE });
    const isOldestFirst = this.filters.sort === "created" || this.filters.sort === "updated";
    if (!isOldestFirst) this.take(page.items, "start");
    else if (!this.next.peek()) this.take(page.items, "end");
  }

  /** Whoever reads further down is not moved: what is active goes to the top when the top is in sight. */
  raise() {
    if (!this.isAtTop || !this.active.length) return;
    const raised = [...new Set(this.active)].filter((id) => this.known.has(id)).reverse();
    const rest = new Set(raised);
    this.active = [];
    const ids = [...raised, ...this.ids.peek().filter((id) => !rest.has(id))];
    if (ids.some((id, index) => id !== this.ids.peek()[index])) this.ids.value = ids;
  }

  /** @param {any[]} sessions @param {"start" | "end"} where */
  take(sessions, where) {
    const fresh = sessions.filter((session) => !this.known.has(session.session_id)).map((session) => session.session_id);
    learn(sessions);
    for (const id of fresh) this.known.add(id);
    if (fresh.length) this.ids.value = where === "end" ? [...this.ids.peek(), ...fresh] : [...fresh, ...this.ids.peek()];
    void fetchLines(sessions.map((session) => session.session_id));
  }

  /** @param {import("../reduce.js").Event[]} events */
  hear(events) {
    const gone = new Set(events.filter((event) => event.type === "session_deleted").map((event) => event.session_id));
    if (gone.size) this.ids.value = this.ids.peek().filter((id) => !gone.has(id));
    for (const id of gone) this.known.delete(id);
    if (this.byUpdate) this.active.push(...events.map((event) => event.session_id));
    this.raise();
    for (const event of events) {
      if (event.type === "message") lineOf(event.session_id).value = { role: event.data.role, line: oneLine(textOf(event.data.content)) };
      const isNew = !this.known.has(event.session_id);
      if (isNew && (event.type === "created" || event.type === "forked" || Object.keys(this.filters).length)) this.lookAgain();
    }
  }
}

/** @param {string[]} ids */
async function fetchLines(ids) {
  const wanted = ids.filter((id) => !lineOf(id).peek());
  if (!wanted.length) return;
  try {
    const { items } = await get("/last-lines", { sessions: wanted.join(",") });
    batch(() => items.forEach((each) => (lineOf(each.session_id).value = { role: each.role, line: oneLine(each.line) })));
  } catch {
    // the table is complete without them
  }
}

// The view ------------------------------------------------------------------------------------------

/** @param {{query: Record<string, string>}} props */
function View({ query }) {
  const filters = Object.fromEntries(FILTERS.filter((name) => query[name]).map((name) => [name, query[name]]));
  const wanted = JSON.stringify(filters);
  const [list, setList] = useState(() => new List(filters));
  const selected = useSignal(new Set());
  const cursor = useSignal(-1);
  const search = useRef();
  useEffect(() => {
    const fresh = new List(filters);
    setList(fresh);
    selected.value = new Set();
    cursor.value = -1;
    void fresh.more();
    const unlisten = listen((events) => fresh.hear(events));
    return () => ((fresh.isGone = true), unlisten(), clearTimeout(fresh.timer));
  }, [wanted, generation.value]);
  const current = () => list.ids.peek()[cursor.peek()];
  const chosen = () => (selected.peek().size ? [...selected.peek()] : [current()].filter(Boolean));
  const flip = (id) => {
    const next = new Set(selected.peek());
    if (!next.delete(id)) next.add(id);
    selected.value = next;
  };
  const move = (by) => (cursor.value = Math.max(0, Math.min(list.ids.peek().length - 1, cursor.peek() + by)));
  useKeys([
    { keys: "/", does: "Search", run: () => search.current?.focus() },
    { keys: "n", does: "New session", run: () => void newSession().catch(complain) },
    { keys: "j", does: "Next row", run: () => move(1) },
    { keys: "k", does: "Row before", run: () => move(-1) },
    { keys: "x", does: "Select the row", run: () => current() && flip(current()) },
    { keys: "Enter", does: "Open the session", run: () => current() && go("session", current()) },
    { keys: "f", does: "Open its family", run: () => current() && go("family", current()) },
    { keys: "c", does: "Close what is selected", run: () => chosen().length && void finalizeSessions(chosen()) },
    { keys: "d", does: "Delete what is selected", run: () => chosen().length && void deleteSessions(chosen()) },
    { keys: "Escape", does: "Select nothing", run: () => (selected.value = new Set()) },
  ], [list]);
  return html`<div class="sessions">
    <div class="head"><h1>Sessions</h1>
      <button type="button" class="primary" onClick=${() => void newSession().catch(complain)}>New session</button></div>
    <${Filters} query=${query} search=${search} />
    ${query.q ? html`<${Hits} text=${query.q} />` : html`
      <${Selection} selected=${selected} />
      <${Table} list=${list} selected=${selected} cursor=${cursor} flip=${flip} isFiltered=${Object.keys(filters).some((name) => name !== "sort")} />`}
  </div>`;
}

/** @param {{query: Record<string, string>, search: any}} props */
function Filters({ query, search }) {
  const agents = useLoad(() => get("/agents"), []);
  const choice = (name, label, options) => html`<select aria-label=${label} value=${query[name] ?? ""} onChange=${(event) => refine({ [name]: event.target.value })}>
    <option value="">${label}: any</option>${options.map((each) => html`<option value=${each}>${each}</option>`)}</select>`;
  const isFiltered = FILTERS.some((name) => name !== "sort" && query[name]) || query.q;
  return html`<div class="bar filters" role="search" aria-label="Filter sessions">
    <${Typed} box=${search} name="q" query=${query} class="grow" type="search" placeholder="Search in everything that was said  ( / )" aria-label="Search in everything that was said" />
    ${choice("status", "Status", STATUSES)}${choice("state", "State", STATES)}${choice("phase", "Phase", PHASES)}
    <${Typed} name="agent" query=${query} list="filter-agents" class="narrow" placeholder="Agent" aria-label="Agent" />
    <datalist id="filter-agents">${(agents.value?.items ?? []).map((each) => html`<option value=${each.name} />`)}</datalist>
    <${Typed} name="task" query=${query} class="narrow" placeholder="Task" aria-label="Task" />
    <${Typed} name="name_prefix" query=${query} class="narrow" placeholder="Name begins…" aria-label="Name begins with" />
    <select aria-label="Sort" title="By age or by the last update: orders that a store of any size has at hand. The other columns are filters." value=${query.sort ?? ""} onChange=${(event) => refine({ sort: event.target.value })}>${Object.entries(SORTS).map(([order, label]) => html`<option value=${order}>${label}</option>`)}</select>
    <label class="inline"><input type="checkbox" checked=${query.active_only === "true"} onChange=${(event) => refine({ active_only: event.target.checked ? "true" : "" })} />Open only</label>
    ${query.parent && html`<span class="chip">Parent ${query.parent}<button type="button" class="icon" aria-label="Any parent" onClick=${() => refine({ parent: "" })}>×</button></span>`}
    ${isFiltered && html`<button type="button" class="link" onClick=${() => go("sessions")}>Clear</button>`}
  </div>`;
}

/** A filter that is typed. It goes into the address a moment after the last key, and what comes back from there must not
 * take away what was typed since. @param {any} props */
function Typed({ name, query, box, ...rest }) {
  const own = useRef(), timer = useRef(0);
  const ref = box ?? own;
  const wanted = query[name] ?? "";
  useEffect(() => {
    if (!timer.current && ref.current.value !== wanted) ref.current.value = wanted;
  }, [wanted]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const later = () => {
    clearTimeout(timer.current);
    timer.current = setTimeout(() => {
      timer.current = 0;
      refine({ [name]: ref.current.value });
    }, 250);
  };
  return html`<input ref=${ref} onInput=${later} ...${rest} />`;
}

/** @param {{selected: any}} props */
function Selection({ selected }) {
  const ids = [...selected.value];
  if (!ids.length) return null;
  const done = (went) => went && (selected.value = new Set());
  return html`<div class="selection" role="region" aria-label="Selected sessions"><strong>${plural(ids.length, "session")} selected</strong>
    <${Do} class="small" run=${async () => done(await finalizeSessions(ids))}>Finalize…<//>
    <${Do} class="small danger" run=${async () => done(await deleteSessions(ids))}>Delete…<//>
    <button type="button" class="link" onClick=${() => (selected.value = new Set())}>Clear</button></div>`;
}

/** @param {{list: List, selected: any, cursor: any, flip: (id: string) => void, isFiltered: boolean}} props */
function Table({ list, selected, cursor, flip, isFiltered }) {
  const box = useRef();
  const [view, setView] = useState({ from: 0, to: 40 });
  const ids = list.ids.value;
  const before = useRef(ids);
  const look = () => {
    if (!box.current) return; // gone before it was looked at
    const { scrollTop, clientHeight } = box.current;
    list.isAtTop = scrollTop < ROW;
    list.raise();
    const from = Math.max(0, Math.floor(scrollTop / ROW) - AHEAD);
    const to = Math.ceil((scrollTop + clientHeight) / ROW) + AHEAD;
    setView((old) => (old.from === from && old.to === to ? old : { from, to }));
    if (to >= list.ids.peek().length && list.next.peek() && !list.isLoading.peek()) void list.more();
  };
  useEffect(() => {
    if (!box.current) return undefined;
    const watch = new ResizeObserver(look);
    watch.observe(box.current);
    return () => watch.disconnect();
  }, [list, ids.length > 0]);
  useEffect(() => {
    // New sessions come in above: whoever reads further down must not be moved.
    const grown = ids.length - before.current.length;
    if (box.current?.scrollTop > ROW && grown > 0 && ids[grown] === before.current[0]) box.current.scrollTop += grown * ROW;
    before.current = ids;
    if (box.current) look();
  }, [ids]);
  useEffect(() => {
    const top = cursor.value * ROW;
    if (cursor.value < 0 || !box.current) return;
    if (top < box.current.scrollTop) box.current.scrollTop = top;
    else if (top + ROW * 2 > box.current.scrollTop + box.current.clientHeight) box.current.scrollTop = top + ROW * 2 - box.current.clientHeight;
  }, [cursor.value]);
  if (list.error.value && !ids.length) return html`<${Failed} error=${list.error.value} retry=${() => list.more()} />`;
  if (!ids.length) return list.isFirst.value ? html`<${Loading} />` : html`<${Nothing} isFiltered=${isFiltered} />`;
  const shown = ids.slice(view.from, view.to);
  const sort = list.filters.sort ?? "";
  return html`<div class="grid" role="table" aria-label="Sessions" aria-rowcount=${list.next.value ? -1 : ids.length + 1}>
    <div class="tr th" role="row"><span role="columnheader"><span class="sr">Select</span></span><span role="columnheader">Status</span><span role="columnheader">Session</span><span role="columnheader" class="c-state">State</span><span role="columnheader" class="c-phase">Phase</span><span role="columnheader" class="c-agent">Agent</span><span role="columnheader" class="c-task">Task</span><span role="columnheader" class="c-parent">Parent</span><span role="columnheader" class="c-line">Last line</span>
      <${Order} name="c-updated" label="Updated" down="-updated" up="updated" sort=${sort} /><${Order} name="c-age" label="Age" down="" up="created" sort=${sort} /></div>
    <div class="scroll" ref=${box} onScroll=${look} tabindex="0" role="rowgroup" aria-label="Rows">
      <div class="rows" role="presentation" style=${{ height: `${ids.length * ROW + (list.next.value ? ROW : 0)}px` }}>
        ${shown.map((id, index) => html`<${Row} key=${id} id=${id} top=${(view.from + index) * ROW} at=${view.from + index} list=${list} selected=${selected} cursor=${cursor} flip=${flip} />`)}
        ${list.next.value && html`<p class="loading-row muted" role="presentation" style=${{ top: `${ids.length * ROW}px` }}>Loading more…</p>`}
      </div>
    </div>
    <p class="tally muted" role="presentation">${plural(ids.length, "session")}${list.next.value ? " loaded, more below" : ""}</p></div>`;
}

/** The head of a column that the table can be sorted by. @param {{name: string, label: string, down: string, up: string, sort: string}} props */
function Order({ name, label, down, up, sort }) {
  const [mark, told] = sort === down ? ["↓", "descending"] : sort === up ? ["↑", "ascending"] : ["", "none"];
  return html`<span role="columnheader" class=${name} aria-sort=${told}><button type="button" class="sort" title=${SORTS[sort === down ? up : down]} onClick=${() => refine({ sort: sort === down ? up : down })}>${label} ${mark}</button></span>`;
}

/** @param {any} props */
function Row({ id, top, at, list, selected, cursor, flip }) {
  const session = useHead(id);
  const line = lineOf(id).value;
  if (!session) return null;
  const isSelected = selected.value.has(id);
  const classes = `tr ${cursor.value === at ? "cursor" : ""} ${isSelected ? "selected" : ""} ${session.deleted || !fits(session, list.filters) ? "leaving" : ""}`;
  const open = (event) => {
    if (event.target.closest("a, button, input") || isTyping(event.target)) return;
    cursor.value = at;
    go("session", id);
  };
  return html`<div class=${classes} role="row" aria-rowindex=${at + 2} style=${{ top: `${top}px` }} onClick=${open} data-id=${id}>
    <span role="cell"><input type="checkbox" aria-label=${`Select ${nameOf(session)}`} checked=${isSelected} onChange=${() => flip(id)} /></span>
    <span role="cell"><${Status} status=${session.deleted ? "deleted" : session.status} title=${session.deleted ? undefined : why(session)} /></span>
    <span role="cell" class="c-name"><a href=${link("session", id)} title=${id}>${nameOf(session)}</a>${session.pending_approvals > 0 && html`<span class="flag s-waiting" title="Waits for a decision" aria-label=${`, ${session.pending_approvals} to decide`}>${session.pending_approvals}?</span>`}${session.error_count > 0 && html`<span class="flag s-failed" title=${session.last_error || ""} aria-label=${`, ${plural(session.error_count, "error")}`}>${session.error_count}!</span>`}</span>
    <span role="cell" class="c-state muted">${session.state}</span>
    <span role="cell" class="c-phase"><${Phase} phase=${session.phase} /></span>
    <span role="cell" class="c-agent">${session.agent_name || html`<span class="muted">–</span>`}</span>
    <span role="cell" class="c-task"><${Id} id=${session.task_id} /></span>
    <span role="cell" class="c-parent">${session.parent_session_id ? html`<a href=${link("family", session.root_session_id)} title="Open the family">${head(session.parent_session_id).value?.session_name || session.parent_session_name || html`<${Short} id=${session.parent_session_id} />`}</a>` : html`<span class="muted">–</span>`}</span>
    <span role="cell" class="c-line" title=${line?.line}>${line && html`<b class="role r-${line.role}">${line.role}</b>`}<bdi>${line?.line}</bdi></span>
    <span role="cell" class="c-updated num"><${Time} at=${session.updated_at} /></span>
    <span role="cell" class="c-age num"><${Time} at=${session.created_at} /></span>
  </div>`;
}

/** More about a status, on hover. @param {any} session */
const why = ({ status, because, last_run: last }) => (status === "run_failed" ? last?.reason : /^(queued|waiting|suspended)$/.test(status) && because ? reason(because) : undefined);

/** @param {{id: string}} props */
const Short = ({ id }) => html`<span class="mono">…${id.slice(-8)}</span>`;

/** @param {{isFiltered: boolean}} props */
function Nothing({ isFiltered }) {
  if (isFiltered) return html`<${Empty} title="No session fits"><p>Take a filter away, or <a href="#/sessions">see all of them</a>.</p><//>`;
  return html`<${Empty} title="No sessions yet"><p>Start one here with <kbd>n</kbd>, or from a terminal:</p><pre class="hint">moorage run echo-agent hello</pre><//>`;
}

/** What a search found. @param {{text: string}} props */
function Hits({ text }) {
  const found = useLoad((signal) => get("/search", { q: text, limit: 100 }, signal), [text]);
  const isEmpty = found.value?.items.length === 0;
  useEffect(() => {
    // The index may lag a second behind what was just said.
    const timer = isEmpty ? setTimeout(found.again, 1500) : 0;
    return () => clearTimeout(timer);
  }, [text, isEmpty]);
  if (found.error) return html`<${Failed} error=${found.error} retry=${found.again} />`;
  if (!found.value) return html`<${Loading} />`;
  if (!found.value.items.length) return html`<${Empty} title="Nothing was said with these words"><p>Whole words are found; a <code>*</code> at a word's end finds all that begin with it.</p><//>`;
  return html`<ul class="hits card" aria-label="Search results">${found.value.items.map((hit) => html`<li key=${`${hit.session_id} ${hit.number}`}><${Hit} hit=${hit} text=${text} /></li>`)}</ul>`;
}

/** @param {{hit: any, text: string}} props */
function Hit({ hit, text }) {
  const session = useHead(hit.session_id);
  return html`<a href=${link("session", hit.session_id, { entry: hit.number })}>
    <span class="row">${session && html`<${Status} status=${session.status} />`}<strong>${session ? nameOf(session) : hit.session_id}</strong><span class="muted">${session?.agent_name}</span><span class="muted">${hit.role || hit.kind}, entry ${hit.number}</span><span class="end muted"><${Time} at=${hit.at} /></span></span>
    <bdi class="snippet">${marked(hit.snippet, text)}</bdi></a>`;
}

/** A text with the words that were looked for made visible. @param {string} snippet @param {string} text */
export function marked(snippet, text) {
  const words = (text.match(/[\p{L}\p{N}]+/gu) ?? []).map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  if (!words.length) return plain(snippet);
  const parts = plain(snippet).split(new RegExp(`(${words.join("|")})`, "giu"));
  return parts.map((part, index) => (index % 2 ? html`<mark>${part}</mark>` : part));
}

/** @type {import("../views.js").View} */
export default { name: "sessions", title: "Sessions", hotkey: "s", icon: "M2.500 4h11m-11 4h11m-11 4h7", View };
