/** Deletions: this tab expects its own; deletions elsewhere are reported once for a whole tree. */
import { nameOf, plural } from "./format.js";
import { head } from "./heads.js";
import { listen } from "./live.js";
import { toast } from "./ui.js";

/** @type {Set<string>} */
const ours = new Set();

/** Do not report the deletion of these sessions: this tab deletes them. @param {string[]} ids */
export function expect(ids) {
  for (const id of ids) ours.add(id);
}

/** The number of deleted sessions by the root of their tree. @param {import("./reduce.js").Event[]} events */
export function told(events) {
  /** @type {Map<string, number>} */
  const trees = new Map();
  for (const event of events) {
    if (event.type !== "session_deleted" || ours.has(event.session_id)) continue;
    const root = event.data.root_of_deletion ?? event.session_id;
    trees.set(root, (trees.get(root) ?? 0) + 1);
  }
  return trees;
}

listen((events) => {
  const trees = told(events);
  if (trees.size > 3) {
    toast(`${plural([...trees.values()].reduce((sum, count) => sum + count, 0), "session")} were deleted elsewhere`);
    return;
  }
  for (const [root, count] of trees) {
    const known = head(root).peek();
    const name = known?.agent_name || known?.session_name ? nameOf(known) : root;
    toast(count === 1 ? `Session ${name} was deleted elsewhere` : `The tree of ${name} was deleted elsewhere: ${plural(count, "session")}`);
  }
});
