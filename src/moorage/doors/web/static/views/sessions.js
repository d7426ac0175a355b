/**
 * Sessions: a table over a store of any size. Scrolling loads pages of fifty, the table draws only the rows in sight,
 * and each row draws itself again when its session changes. The address holds the filters.
 */
import { deleteSessions, finalizeSessions, newSession } from "../actions.js";
import { get } from "../api.js";
import { nameOf, oneLine, plain, plural, shortId, textOf, unmarked, worded } from "../format.js";
import { head, learn, useHead } from "../heads.js";
import { batch, html, signal, useEffect, useRef, useSignal, useState } from "../html.js";
import { isTyping, useKeys } from "../keys.js";
import { generation, listen } from "../live.js";
import { fits, isFinal } from "../reduce.js";
import { go, link, refine } from "../router.js";
import { useFresh, Why } from "../status.js";
import { complain, Do, Empty, Failed, Loading, Phase, Status, Time, useLoad } from "../ui.js";

const PAGE = 50;
const ROW = 52; // pixels: a line, and a smaller one below it
const AHEAD = 12; // rows drawn above and below those in sight
const LOOK_AGAIN = 1000; // milliseconds between two checks for new sessions
const FRESH = 15_000; // milliseconds between two requests for a row that is queued or held
const WIDEST = { name: 44, agent: 24, task: 18 }; // characters that a column grows to while there is room

const STATUSES = ["running", "waiting", "queued", "run_failed", "idle", "created", "suspended", "completed", "failed", "abandoned"];
const PHASES = ["initializing", "investigating", "planning", "approval", "executing", "validating", "completed", "failed", "abandoned"];
/** The orders that are efficient in a store of any size; the other columns are filters. */
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
    this.isGone = false; // another list is shown now
    this.isAtTop = true;
    this.active = /** @type {string[]} */ ([]); // sessions that a new sort would put on top
  }

  get byUpdate() {
    return this.filters.sort === "-updated";
  }

  /** Request the next page. */
  async more() {
    if (this.isLoading.peek() && !this.isFirst.peek()) return;
    this.isLoading.value = true;
    try {
      let page = await get("/sessions", { ...this.filters, limit: PAGE, cursor: this.next.peek() });
      // By update, a page may be empty though others follow: the store limits the search of one request.
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

  /** Check soon whether there are new sessions. */
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

  /** Move active sessions to the top while the top is in sight: a reader further down keeps the place. */
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
    <option value="">${label}: any</option>${options.map((each) => html`<option value=${each}>${worded(each)}</option>`)}</select>`;
  const count = FILTERS.filter((name) => name !== "sort" && query[name]).length;
  const [isOpen, setOpen] = useState(false);
  return html`<div class="bar filters" role="search" aria-label="Filter sessions">
    <${Typed} box=${search} name="q" query=${query} class="grow" type="search" placeholder="Search all messages  ( / )" aria-label="Search all messages" />
    <button type="button" class="fold-filters" aria-expanded=${String(isOpen)} aria-controls="filters" onClick=${() => setOpen(!isOpen)}>Filters${count ? ` (${count})` : ""}</button>
    <div id="filters" class="bar folding ${isOpen ? "open" : ""}">${choice("status", "Status", STATUSES)}${choice("phase", "Phase", PHASES)}
    <${Typed} name="agent" query=${query} list="filter-agents" class="narrow" placeholder="Agent" aria-label="Agent" />
    <datalist id="filter-agents">${(agents.value?.items ?? []).map((each) => html`<option value=${each.name} />`)}</datalist>
    <${Typed} name="task" query=${query} class="narrow" placeholder="Task" aria-label="Task" />
    <${Typed} name="name_prefix" query=${query} class="narrow" placeholder="Name starts…" aria-label="Name starts with" />
    <select aria-label="Sort" value=${query.sort ?? ""} onChange=${(event) => refine({ sort: event.target.value })}>${Object.entries(SORTS).map(([order, label]) => html`<option value=${order}>${label}</option>`)}</select>
    <label class="inline"><input type="checkbox" checked=${query.active_only === "true"} onChange=${(event) => refine({ active_only: event.target.checked ? "true" : "" })} />Open only</label>
    ${query.parent && html`<span class="chip">Parent ${query.parent}<button type="button" class="icon" aria-label="Any parent" onClick=${() => refine({ parent: "" })}>×</button></span>`}
    ${(count > 0 || query.q) && html`<button type="button" class="link" onClick=${() => go("sessions")}>Clear</button>`}
  </div></div>`;
}

/** A text filter. It goes into the address a moment after the last key; the address does not overwrite newer text.
 * @param {any} props */
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
    if (!box.current) return;
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
    // New sessions appear above: a reader further down keeps the place.
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
  return html`<div class="grid" style=${widths(ids)} role="table" aria-label="Sessions" aria-rowcount=${list.next.value ? -1 : ids.length + 1}>
    <div class="tr th" role="row"><span role="columnheader"><span class="sr">Select</span></span><span role="columnheader">Status</span><span role="columnheader">Session</span><span role="columnheader" class="c-phase">Phase</span><span role="columnheader" class="c-agent">Agent</span><span role="columnheader" class="c-task">Task</span><span role="columnheader" class="c-line">Last message</span>
      <${Order} name="c-updated" label="Updated" down="-updated" up="updated" sort=${sort} /><${Order} name="c-age" label="Created" down="" up="created" sort=${sort} /></div>
    <div class="scroll" ref=${box} onScroll=${look} tabindex="0" role="rowgroup" aria-label="Rows">
      <div class="rows" role="presentation" style=${{ height: `${ids.length * ROW + (list.next.value ? ROW : 0)}px` }}>
        ${shown.map((id, index) => html`<${Row} key=${id} id=${id} top=${(view.from + index) * ROW} at=${view.from + index} list=${list} selected=${selected} cursor=${cursor} flip=${flip} />`)}
        ${list.next.value && html`<p class="loading-row muted" role="presentation" style=${{ top: `${ids.length * ROW}px` }}>Loading more…</p>`}
      </div>
    </div>
    <p class="tally muted" role="presentation">${plural(ids.length, "session")}${list.next.value ? " loaded, more below" : ""}</p></div>`;
}

/** Columns as wide as their longest text, while there is room. @param {string[]} ids */
function widths(ids) {
  const longest = { name: 12, agent: 8, task: 5 }; // in widths of a digit: bold names are wider, plain words narrower
  for (const id of ids) {
    const session = head(id).peek();
    if (!session) continue;
    longest.name = Math.max(longest.name, nameOf(session).length * 1.12, (session.purpose?.length ?? 0) * 0.8 + (session.parent_session_id ? 13 : 0) + (session.error_count ? 9 : 0));
    longest.agent = Math.max(longest.agent, (session.agent_name?.length ?? 0) * 0.85);
    longest.task = Math.max(longest.task, (ownTask(session)?.length ?? 0) * 0.9);
  }
  return Object.fromEntries(Object.entries(longest).map(([name, count]) => [`--${name}`, `${Math.ceil(Math.min(count, WIDEST[/** @type {keyof typeof WIDEST} */ (name)])) + 1}ch`]));
}

/** The task of a session; null if it is the session's own id, which stands for no task. @param {any} session */
const ownTask = ({ task_id: task, session_id: id, root_session_id: root }) => (task && task !== id && task !== root ? (task.length > WIDEST.task ? shortId(task) : task) : null);

/** A column header that sorts the table. @param {{name: string, label: string, down: string, up: string, sort: string}} props */
function Order({ name, label, down, up, sort }) {
  const [mark, told] = sort === down ? ["↓", "descending"] : sort === up ? ["↑", "ascending"] : ["", "none"];
  return html`<span role="columnheader" class=${name} aria-sort=${told}><button type="button" class="sort" title=${SORTS[sort === down ? up : down]} onClick=${() => refine({ sort: sort === down ? up : down })}>${label} ${mark}</button></span>`;
}

/** @param {any} props */
function Row({ id, top, at, list, selected, cursor, flip }) {
  const session = useHead(id);
  useFresh(session, FRESH);
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
    <span role="cell" class="c-status two"><span><${Status} status=${session.deleted ? "deleted" : session.status} /></span><small><${Why} session=${session} canRetry /></small></span>
    <span role="cell" class="c-name two"><a href=${link("session", id)} title=${id}>${nameOf(session)}</a><small><${Below} session=${session} /></small></span>
    <span role="cell" class="c-phase">${isFinal(session) ? "" : html`<${Phase} phase=${session.phase} />`}</span>
    <span role="cell" class="c-agent" title=${session.agent_name}>${session.agent_name}</span>
    <span role="cell" class="c-task">${ownTask(session) && html`<a href=${link("sessions", [], { task: session.task_id })} title=${`Sessions of task ${session.task_id}`}>${ownTask(session)}</a>`}</span>
    <span role="cell" class="c-line" title=${line?.line}>${line && html`<b class="role r-${line.role}">${line.role}</b>`}<bdi>${line && unmarked(line.line)}</bdi></span>
    <span role="cell" class="c-updated num"><${Time} at=${session.updated_at} /></span>
    <span role="cell" class="c-age num"><${Time} at=${session.created_at} /></span>
  </div>`;
}

/** The second line of a session: its purpose, its parent, its errors. @param {{session: any}} props */
function Below({ session }) {
  const parent = session.parent_session_id;
  return html`${session.purpose && html`<span class="purpose" title=${session.purpose}>${plain(session.purpose)}</span>`}
    ${parent && html`<a href=${link("family", session.root_session_id)} title="Open the family">↳ ${head(parent).value?.session_name || session.parent_session_name || shortId(parent)}</a>`}
    ${session.error_count > 0 && html`<span class="s-failed errors" title=${session.last_error || ""}>${plural(session.error_count, "error")}</span>`}`;
}

/** @param {{isFiltered: boolean}} props */
function Nothing({ isFiltered }) {
  if (isFiltered) return html`<${Empty} title="No session matches"><p>Remove a filter, or <a href="#/sessions">see all of them</a>.</p><//>`;
  return html`<${Empty} title="No sessions yet"><p>Start one here with <kbd>n</kbd>, or from a terminal:</p><pre class="hint">moorage run echo-agent hello</pre><//>`;
}

/** Search results. @param {{text: string}} props */
function Hits({ text }) {
  const found = useLoad((signal) => get("/search", { q: text, limit: 100 }, signal), [text]);
  const isEmpty = found.value?.items.length === 0;
  useEffect(() => {
    // The index may lag a second behind new messages.
    const timer = isEmpty ? setTimeout(found.again, 1500) : 0;
    return () => clearTimeout(timer);
  }, [text, isEmpty]);
  if (found.error) return html`<${Failed} error=${found.error} retry=${found.again} />`;
  if (!found.value) return html`<${Loading} />`;
  if (!found.value.items.length) return html`<${Empty} title="No message has these words"><p>Search finds whole words; <code>word*</code> finds all words that start with it.</p><//>`;
  return html`<ul class="hits card" aria-label="Search results">${found.value.items.map((hit) => html`<li key=${`${hit.session_id} ${hit.number}`}><${Hit} hit=${hit} text=${text} /></li>`)}</ul>`;
}

/** @param {{hit: any, text: string}} props */
function Hit({ hit, text }) {
  const session = useHead(hit.session_id);
  return html`<a href=${link("session", hit.session_id, { entry: hit.number })}>
    <span class="row">${session && html`<${Status} status=${session.status} />`}<strong>${session ? nameOf(session) : hit.session_id}</strong><span class="muted">${session?.agent_name}</span><span class="muted">${hit.role || hit.kind}, entry ${hit.number}</span><span class="end muted"><${Time} at=${hit.at} /></span></span>
    <bdi class="snippet">${marked(hit.snippet, text)}</bdi></a>`;
}

/** A text with the words of the search marked. @param {string} snippet @param {string} text */
export function marked(snippet, text) {
  const words = (text.match(/[\p{L}\p{N}]+/gu) ?? []).map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  if (!words.length) return plain(snippet);
  const parts = plain(snippet).split(new RegExp(`(${words.join("|")})`, "giu"));
  return parts.map((part, index) => (index % 2 ? html`<mark>${part}</mark>` : part));
}

/** @type {import("../views.js").View} */
export default { name: "sessions", title: "Sessions", hotkey: "s", icon: "M2.500 4h11m-11 4h11m-11 4h7", View };
