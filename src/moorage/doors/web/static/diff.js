/** The difference of two texts, line by line. Pure and bounded: long texts without common lines count as replaced. */

const MOST = 1_000_000; // cells of the table: two texts of a thousand lines each

/** @typedef {{kind: "same" | "gone" | "new", text: string}} Line */

/** The lines of `after` with those of `before` that went away, in order. @param {string} before @param {string} after @returns {Line[]} */
export function diff(before, after) {
  const old = before.split("\n"), fresh = after.split("\n");
  let start = 0, end = 0;
  while (start < old.length && start < fresh.length && old[start] === fresh[start]) start += 1;
  while (end < old.length - start && end < fresh.length - start && old.at(-1 - end) === fresh.at(-1 - end)) end += 1;
  return [
    ...lines("same", fresh.slice(0, start)),
    ...between(old.slice(start, old.length - end), fresh.slice(start, fresh.length - end)),
    ...lines("same", fresh.slice(fresh.length - end)),
  ];
}

/** How much changed: "2 lines added, 1 removed", or nothing. @param {Line[]} changes */
export function inWords(changes) {
  const count = (/** @type {string} */ kind) => changes.filter((line) => line.kind === kind).length;
  const added = count("new"), removed = count("gone");
  if (!added && !removed) return "";
  return [added && `${added} ${added === 1 ? "line" : "lines"} added`, removed && `${removed} removed`].filter(Boolean).join(", ");
}

/** @param {Line["kind"]} kind @param {string[]} texts @returns {Line[]} */
const lines = (kind, texts) => texts.map((text) => ({ kind, text }));

/** @param {string[]} old @param {string[]} fresh @returns {Line[]} */
function between(old, fresh) {
  if (old.length * fresh.length > MOST || !old.length || !fresh.length) return [...lines("gone", old), ...lines("new", fresh)];
  const common = longest(old, fresh);
  /** @type {Line[]} */
  const told = [];
  let i = 0, j = 0;
  while (i < old.length || j < fresh.length) {
    if (i < old.length && j < fresh.length && old[i] === fresh[j]) {
      told.push({ kind: "same", text: fresh[j] });
      i += 1;
      j += 1;
    } else if (j >= fresh.length || (i < old.length && common[i + 1][j] >= common[i][j + 1])) told.push({ kind: "gone", text: old[i++] });
    else told.push({ kind: "new", text: fresh[j++] });
  }
  return told;
}

/** How many lines two rests have in common, for every pair of rests. @param {string[]} old @param {string[]} fresh */
function longest(old, fresh) {
  const table = Array.from({ length: old.length + 1 }, () => new Uint32Array(fresh.length + 1));
  for (let i = old.length - 1; i >= 0; i--) {
    for (let j = fresh.length - 1; j >= 0; j--) {
      table[i][j] = old[i] === fresh[j] ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
    }
  }
  return table;
}
