/** Family: a session with all descendants of its root, as a tree and over time, updated by events. */
import { Actions, deleteSessions } from "../actions.js";
import { at, get, Problem } from "../api.js";
import { clock, moment, nameOf, oneLine, plain, plural, span, worded } from "../format.js";
import { head, learn, useHead } from "../heads.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { useKeys } from "../keys.js";
import { generation, listen } from "../live.js";
import { go, link, refine } from "../router.js";
import { Empty, Failed, Loading, Mark, now, Status, Time } from "../ui.js";
import { foldedAtFirst, HIGH, lanes, members, placed, ticks, WIDE } from "./family/layout.js";

const LABEL = 96; // pixels that a time on the axis needs
const LETTER = 8; // pixels of a letter in a name
const LOOK_AGAIN = 400; // milliseconds
const MOST_LANES = 200;
const AT_ONCE = 4;

/** @param {{args: string[], query: Record<string, string>}} props */
function View({ args, query }) {
  const [tree, setTree] = useState(/** @type {any} */ (null));
  const [error, setError] = useState(/** @type {any} */ (null));
  const [gone, setGone] = useState(/** @type {any} */ (null));
  const known = useRef(new Set());
  const root = useRef("");
  const load = async () => {
    try {
      const session = root.current ? null : await get(at`/sessions/${args[0] ?? ""}`);
      root.current ||= session.root_session_id;
      const found = await get(at`/sessions/${root.current}/tree`);
      const all = members(found);
      learn(all);
      known.current = new Set(all.map((each) => each.session_id));
      setTree(found);
      setError(null);
    } catch (problem) {
      if (problem instanceof Problem && problem.status === 410) setGone(problem.facts);
      else setError(problem);
    }
  };
  useEffect(() => {
    void load();
    let timer = 0;
    const again = () => (timer ||= setTimeout(() => ((timer = 0), void load()), LOOK_AGAIN));
    const unlisten = listen((events) => {
      const born = events.some((event) => event.type === "created" && !known.current.has(event.session_id));
      const went = events.filter((event) => event.type === "session_deleted" && known.current.has(event.session_id));
      const rootWent = went.find((event) => event.session_id === root.current);
      if (rootWent) setGone({ deleted_at: rootWent.timestamp, ...rootWent.data, count: went.length });
      else if (born || went.length) again();
    });
    return () => (unlisten(), clearTimeout(timer));
  }, [args[0], generation.value]);
  if (error && !tree) return error instanceof Problem && error.status === 404 ? html`<${Empty} title="Session not found"><a href="#/sessions">See the sessions</a><//>` : html`<${Failed} error=${error} retry=${load} />`;
  if (gone) return html`<${Gone} facts=${gone} tree=${tree} />`;
  if (!tree) return html`<${Loading} />`;
  return html`<${Family} tree=${tree} current=${args[0]} tab=${query.tab || "tree"} />`;
}

/** @param {{facts: any, tree: any}} props */
function Gone({ facts, tree }) {
  const count = tree ? members(tree).length : 0;
  return html`<div role="alert"><${Empty} title="This family was deleted"><p>${count > 1 ? `All its ${plural(count, "session")} were deleted` : "It was deleted"} ${facts.deleted_at ? html`<${Time} at=${facts.deleted_at} />` : ""}${facts.deleted_by ? `, by ${facts.deleted_by}` : ""}${facts.reason && facts.reason !== "deleted" ? `: ${facts.reason}` : ""}.</p>
    <p><a href="#/sessions">See the other sessions</a></p><//></div>`;
}

/** @param {{tree: any, current: string, tab: string}} props */
function Family({ tree, current, tab }) {
  const all = members(tree);
  const root = useHead(tree.session.session_id) ?? tree.session;
  const counts = new Map();
  for (const each of all) {
    const status = head(each.session_id).value?.status ?? each.status;
    counts.set(status, (counts.get(status) ?? 0) + 1);
  }
  return html`<div class="family"><nav class="trail" aria-label="Where"><a href="#/sessions">Sessions</a><span aria-hidden="true">›</span><a href=${link("session", root.session_id)}>${nameOf(root)}</a></nav>
    <div class="head"><h1>Family of <bdi>${plain(nameOf(root))}</bdi></h1><div class="bar"><${Actions} session=${root} /></div></div>
    <div class="row facts-row"><strong>${plural(all.length, "session")}</strong>${[...counts].map(([status, count]) => html`<span class="row tight" key=${status}><${Status} status=${status} /><span class="num">${count}</span></span>`)}</div>
    <div class="tabs" role="tablist" aria-label="Form">${[["tree", "Tree"], ["time", "Time line"]].map(([name, title]) => html`<button type="button" role="tab" id=${`tab-${name}`} aria-controls="panel" aria-selected=${tab === name ? "true" : "false"} onClick=${() => refine({ tab: name === "tree" ? "" : name })}>${title}</button>`)}</div>
    <div id="panel" role="tabpanel" aria-labelledby=${`tab-${tab}`}>${tab === "time" ? html`<${TimeLine} tree=${tree} />` : html`<${Drawn} tree=${tree} current=${current} />`}</div></div>`;
}

// Tree ----------------------------------------------------------------------------------------------

/** @param {{tree: any, current: string}} props */
function Drawn({ tree, current }) {
  const [folded, setFolded] = useState(() => foldedAtFirst(tree));
  const [focus, setFocus] = useState(current ?? tree.session.session_id);
  const box = useRef();
  const { nodes, width, height } = placed(tree, folded);
  const places = new Map(nodes.map((node) => [node.id, node]));
  const here = () => places.get(focus) ?? nodes.find((node) => node.session.session_name === focus) ?? nodes[0];
  const flip = (id) => setFolded((before) => {
    const next = new Set(before);
    if (!next.delete(id)) next.add(id);
    return next;
  });
  const to = (node) => {
    if (!node) return;
    setFocus(node.id);
    box.current.querySelector(`[data-id="${CSS.escape(node.id)}"]`)?.focus();
  };
  const onKey = (event) => {
    const node = here(), index = nodes.indexOf(node);
    const moves = {
      ArrowDown: () => to(nodes[index + 1]), ArrowUp: () => to(nodes[index - 1]),
      ArrowLeft: () => (node.below && !node.isFolded ? flip(node.id) : to(places.get(node.parent ?? ""))),
      ArrowRight: () => (node.isFolded ? flip(node.id) : to(nodes.find((each) => each.parent === node.id))),
      Enter: () => go("session", node.id), " ": () => flip(node.id), Home: () => to(nodes[0]), End: () => to(nodes[nodes.length - 1]),
    };
    if (!moves[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    moves[event.key]();
  };
  useKeys([
    { keys: "ArrowDown", does: "Next session (in the tree)", run: () => to(here()) },
    { keys: "d", does: "Delete the chosen branch", run: () => void deleteSessions([here().id]) },
    { keys: "e", does: "Unfold everything", run: () => setFolded(new Set()) },
  ], [tree, focus, folded]);
  return html`<div class="canvas" ref=${box}><div class="drawing" role="tree" aria-label="The family" style=${{ width: `${width + 8}px`, height: `${height + 8}px` }} onKeyDown=${onKey}>
    <svg width=${width} height=${height} aria-hidden="true">${nodes.filter((node) => node.parent).map((node) => html`<${Edge} key=${node.id} from=${places.get(node.parent ?? "")} to=${node} />`)}</svg>
    ${nodes.map((node) => html`<${NodeCard} key=${node.id} node=${node} isCurrent=${node === here()} flip=${flip} onFocus=${() => setFocus(node.id)} />`)}</div></div>`;
}

/** @param {{from: any, to: any}} props */
function Edge({ from, to }) {
  const x1 = from.x + WIDE, y1 = from.y + HIGH / 2, x2 = to.x, y2 = to.y + HIGH / 2, half = (x2 - x1) / 2;
  const status = head(to.id).value?.status ?? to.session.status;
  return html`<path class="edge e-${status}" d=${`M${x1} ${y1}C${x1 + half} ${y1} ${x2 - half} ${y2} ${x2} ${y2}`} />`;
}

/** @param {any} props */
function NodeCard({ node, isCurrent, flip, onFocus }) {
  const session = useHead(node.id) ?? node.session;
  const status = session.deleted ? "deleted" : session.status;
  return html`<div class="node n-${status}" role="treeitem" data-id=${node.id} tabindex=${isCurrent ? 0 : -1} aria-level=${node.depth + 1} aria-selected=${isCurrent ? "true" : "false"} aria-expanded=${node.below ? String(!node.isFolded) : undefined}
    style=${{ left: `${node.x}px`, top: `${node.y}px`, width: `${WIDE}px`, height: `${HIGH}px` }} onFocus=${onFocus} onDblClick=${() => go("session", node.id)}>
    <${Mark} status=${status} />
    <div class="what"><a href=${link("session", node.id)} tabindex="-1"><bdi>${plain(nameOf(session))}</bdi></a><small>${worded(status)} · ${session.agent_name ?? "no agent"}</small></div>
    ${node.below > 0 && html`<button type="button" class="fold" tabindex="-1" aria-label=${node.isFolded ? `Unfold ${node.below}` : "Fold"} onClick=${() => flip(node.id)}>${node.isFolded ? `+${node.below}` : "–"}</button>`}</div>`;
}

// Time line -----------------------------------------------------------------------------------------

/** @param {{tree: any}} props */
function TimeLine({ tree }) {
  const sessions = members(tree).slice(0, MOST_LANES).map((each) => head(each.session_id).value ?? each);
  const mark = sessions.map((each) => `${each.session_id}:${each.last_entry}`).join();
  const [runs, setRuns] = useState(/** @type {Map<string, any[]> | null} */ (null));
  const asked = useRef(new Map());
  useEffect(() => {
    let isOver = false;
    void fetchRuns(sessions, asked.current).then((found) => isOver || setRuns((before) => new Map([...(before ?? []), ...found])));
    return () => void (isOver = true);
  }, [mark]);
  if (!runs) return html`<${Loading} />`;
  const all = sessions.flatMap((each) => runs.get(each.session_id) ?? []);
  const isAtWork = all.some((run) => !run.settled_at);
  return html`<${Lanes} sessions=${sessions} runs=${all} end=${isAtWork ? now.value : Date.now()} total=${members(tree).length} />`;
}

/** The runs of sessions that changed since the last request. @param {any[]} sessions @param {Map<string, number>} asked */
async function fetchRuns(sessions, asked) {
  const wanted = sessions.filter((each) => !each.deleted && asked.get(each.session_id) !== each.last_entry);
  const found = new Map();
  const work = async () => {
    for (let each = wanted.pop(); each; each = wanted.pop()) {
      try {
        const { items } = await get("/runs", { session: each.session_id, limit: 200 });
        found.set(each.session_id, items);
        asked.set(each.session_id, each.last_entry);
      } catch {
        // deleted meanwhile; the next load of the tree removes its lane
      }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return found;
}

/** @param {{sessions: any[], runs: any[], end: number, total: number}} props */
function Lanes({ sessions, runs, end: today, total }) {
  const box = useRef();
  const [wide, setWide] = useState(900);
  useEffect(() => {
    const watch = new ResizeObserver(([seen]) => setWide(Math.max(280, seen.contentRect.width)));
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  const { bars, arrows, begin, end, rows } = lanes(sessions, runs, today);
  const label = Math.min(200, Math.max(130, wide * 0.3)), row = 34, top = 28, right = 16;
  const x = (at) => label + ((at - begin) / Math.max(1, end - begin)) * (wide - label - right);
  const y = (index) => top + index * row + row / 2;
  const height = top + sessions.length * row + 8;
  return html`<div class="lanes card" ref=${box}><svg width=${wide} height=${height} role="group" aria-label=${`${plural(sessions.length, "session")} over ${span((end - begin) / 1000)}, ${plural(runs.length, "run")}, ${plural(arrows.length, "callback")}`}>
    <defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0 8 4 0 8Z" class="tip" /></marker></defs>
    ${ticks(begin, end, Math.max(1, Math.floor((wide - label - right) / LABEL))).filter((at) => x(at) < wide - LABEL / 2).map((at) => html`<g key=${at}><line class="tick" x1=${x(at)} x2=${x(at)} y1=${top - 6} y2=${height} /><text class="axis" x=${x(at)} y="14" text-anchor="middle">${end - begin > 2 * 86400_000 ? new Date(at).toLocaleDateString() : clock(at)}</text></g>`)}
    ${sessions.map((session, index) => html`<${Lane} key=${session.session_id} session=${session} y=${y(index)} label=${label} from=${x(Date.parse(session.created_at))} to=${x(Date.parse(session.finalized_at ?? new Date(end).toISOString()))} isOdd=${index % 2} wide=${wide} row=${row} />`)}
    ${bars.map((bar) => html`<${Bar} key=${bar.run.run_id} bar=${bar} x=${x} y=${y(bar.row)} />`)}
    ${arrows.map((arrow) => html`<g key=${arrow.run.run_id} class="arrow a-${arrow.run.state}"><circle cx=${x(arrow.at)} cy=${y(arrow.from)} r="3" /><path marker-end="url(#tip)" d=${`M${x(arrow.at)} ${y(arrow.from)}V${y(arrow.to) + (arrow.to < arrow.from ? 3 : -3)}`} /><title>Callback, ${arrow.run.state}, ${moment(arrow.run.settled_at)}</title></g>`)}
    </svg>
    ${total > rows.size && html`<p class="muted">The first ${rows.size} of ${plural(total, "session")} are drawn.</p>`}
    <ul class="sr">${bars.map(({ run }) => html`<li>${nameOf(sessions[rows.get(run.session_id) ?? 0])}: ${run.state}, ${oneLine(run.asked, 80)}, ${moment(run.created_at)}</li>`)}</ul></div>`;
}

/** @param {any} props */
function Lane({ session, y, label, from, to, isOdd, wide, row }) {
  const indent = Math.min(session.depth, 6) * 10;
  const room = Math.floor((label - 34 - indent) / LETTER);
  return html`<g><rect class=${isOdd ? "lane odd" : "lane"} x="0" y=${y - row / 2} width=${wide} height=${row} />
    <a href=${link("session", session.session_id)}><svg x=${4 + indent} y=${y - 6} width="12" height="12"><${Mark} status=${session.deleted ? "deleted" : session.status} /></svg>
    <text class="name" x=${22 + indent} y=${y + 4}>${plain(oneLine(nameOf(session), room))}<title>${nameOf(session)}, ${session.status}</title></text></a>
    <line class="life" x1=${from} x2=${Math.max(from + 1, to)} y1=${y} y2=${y} /></g>`;
}

/** @param {any} props */
function Bar({ bar, x, y }) {
  const { run } = bar;
  const wait = x(bar.from) - x(bar.asked), width = Math.max(3, x(bar.to) - x(bar.from));
  return html`<g class="run b-${run.state}">${wait > 1 && html`<rect class="wait" x=${x(bar.asked)} y=${y - 3} width=${wait} height="6" />`}
    <rect x=${x(bar.from)} y=${y - 8} width=${width} height="16" rx="3" />${width > 60 && html`<text x=${x(bar.from) + 6} y=${y + 4}>${span((bar.to - bar.from) / 1000)}</text>`}
    <title>${`${run.state}: ${oneLine(run.asked, 120)} (${span((bar.to - bar.from) / 1000)})`}</title></g>`;
}

/** @type {import("../views.js").View} */
export default { name: "family", title: "Family", View };
