/** The effect of a deletion, added up and in words. Pure, tested without a browser. */
import { plural } from "./format.js";

/** The effect of several deletions; a descendant of another deleted session counts once.
 * @param {any[]} previews */
export function together(previews) {
  const roots = previews.filter((one) => !previews.some((other) => other !== one && other.session_ids.includes(one.session_id)));
  const sum = (/** @type {string} */ name) => roots.reduce((total, one) => total + one[name], 0);
  return {
    roots: roots.map((one) => one.session_id),
    ids: roots.flatMap((one) => one.session_ids),
    running: [...new Set(roots.flatMap((one) => one.running))],
    messages: sum("messages"),
    runs: sum("runs"),
    checkpoints: sum("checkpoints"),
  };
}

/** "Deletes 14 sessions, 2 running". @param {ReturnType<typeof together>} preview */
export function inWords(preview) {
  const running = preview.running.length ? `, ${preview.running.length} running` : "";
  return `Deletes ${plural(preview.ids.length, "session")}${running}`;
}
