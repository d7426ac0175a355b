/** Positions of trees from left to right, and of lanes over time. Pure, tested without a browser. */

/** @typedef {{session: any, children: Tree[]}} Tree */
/** @typedef {{id: string, session: any, x: number, y: number, depth: number, parent: string | null, below: number, isFolded: boolean}} Node */

export const WIDE = 232, HIGH = 52, GAP_X = 56, GAP_Y = 12;

/** Every session of a tree, parents before children. @param {Tree} tree @returns {any[]} */
export function members(tree) {
  return [tree.session, ...tree.children.flatMap(members)];
}

/** The branches that are folded at first: a large family shows its upper generations. @param {Tree} tree @returns {Set<string>} */
export function foldedAtFirst(tree) {
  const folded = new Set();
  if (members(tree).length <= 120) return folded;
  const walk = (/** @type {Tree} */ branch, /** @type {number} */ depth) => {
    if (depth >= 1 && branch.children.length) folded.add(branch.session.session_id);
    branch.children.forEach((child) => walk(child, depth + 1));
  };
  walk(tree, 0);
  return folded;
}

/** A place for each session: generations from left to right, a parent halfway between its first and last child.
 * @param {Tree} tree @param {Set<string>} folded @returns {{nodes: Node[], width: number, height: number}} */
export function placed(tree, folded) {
  /** @type {Node[]} */
  const nodes = [];
  let row = 0, deepest = 0;
  /** @param {Tree} branch @param {number} depth @param {string | null} parent @returns {Node} */
  const put = (branch, depth, parent) => {
    const id = branch.session.session_id;
    const isFolded = folded.has(id) && branch.children.length > 0;
    /** @type {Node} */
    const node = { id, session: branch.session, x: depth * (WIDE + GAP_X), y: 0, depth, parent, below: isFolded ? members(branch).length - 1 : branch.children.length, isFolded };
    deepest = Math.max(deepest, depth);
    nodes.push(node);
    const inside = isFolded ? [] : branch.children.map((child) => put(child, depth + 1, id));
    node.y = inside.length ? (inside[0].y + inside[inside.length - 1].y) / 2 : row++ * (HIGH + GAP_Y);
    return node;
  };
  put(tree, 0, null);
  return { nodes, width: deepest * (WIDE + GAP_X) + WIDE, height: row * (HIGH + GAP_Y) };
}

/** A tree without some of its sessions. @param {Tree} tree @param {(session: any) => boolean} isGone @returns {Tree} */
export function without(tree, isGone) {
  return { session: tree.session, children: tree.children.filter((child) => !isGone(child.session)).map((child) => without(child, isGone)) };
}

// Time ----------------------------------------------------------------------------------------------

/** Round instants for an axis, a handful between begin and end. @param {number} begin @param {number} end @param {number} [most] @param {boolean} [isFine] whether steps may be shorter than a second @returns {number[]} */
export function ticks(begin, end, most = 6, isFine = false) {
  const steps = [...(isFine ? [0.01, 0.02, 0.05, 0.1, 0.2, 0.5] : []), 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 43200, 86400, 172800, 604800, 2592000].map((each) => each * 1000);
  const step = steps.find((each) => (end - begin) / each <= most) ?? steps[steps.length - 1];
  const found = [];
  for (let at = Math.ceil(begin / step) * step; at <= end; at += step) found.push(at);
  return found;
}

/**
 * Lanes of a family: one for each session, its runs as bars, callbacks as arrows from the child's lane to the parent's.
 * @param {any[]} sessions @param {any[]} runs @param {number} end milliseconds
 */
export function lanes(sessions, runs, end) {
  const rows = new Map(sessions.map((session, index) => [session.session_id, index]));
  const time = (/** @type {string | null} */ instant) => (instant ? Date.parse(instant) : end);
  const bars = runs.filter((run) => rows.has(run.session_id)).map((run) => ({
    run, row: rows.get(run.session_id) ?? 0, asked: time(run.created_at), from: time(run.started_at ?? run.settled_at), to: time(run.settled_at),
  }));
  const arrows = bars
    .filter(({ run }) => run.mode === "async_callback" && run.settled_at && run.callback === "delivered" && rows.has(run.parent_session_id))
    .map(({ run, row }) => ({ run, at: time(run.settled_at), from: row, to: rows.get(run.parent_session_id) ?? 0 }));
  const begin = Math.min(...sessions.map((session) => time(session.created_at)));
  const last = Math.max(begin + 1000, ...bars.map((bar) => bar.to), ...sessions.map((session) => time(session.finalized_at ?? session.last_activity_at)));
  return { rows, bars, arrows, begin, end: last };
}
