/** The time that a session spent in each phase. Pure, tested without a browser. */

/** @typedef {{phase: string, from: number, to: number, isPaused: boolean}} Stretch */

/** Stretches of time, each in one phase. @param {any} session @param {any[]} entries @param {number} end milliseconds @returns {Stretch[]} */
export function stretches(session, entries, end) {
  const told = entries.filter((entry) => ["phase", "suspended", "resumed", "finalized", "approval_requested", "approval_decided"].includes(entry.kind));
  /** @type {Stretch[]} */
  const found = [];
  // Questions that follow each other are one stretch of waiting.
  const add = (/** @type {Stretch} */ next) => {
    const last = found.at(-1);
    if (last?.phase === "approval" && next.phase === "approval") found[found.length - 1] = { ...next, from: last.from };
    else found.push(next);
  };
  const first = told.find((entry) => entry.kind === "phase");
  let phase = first?.data?.from ?? session.phase, isPaused = false, from = Date.parse(session.created_at);
  for (const entry of told) {
    const at = Math.max(Date.parse(entry.at), from); // a clock may step back
    // A phase that begins and ends within one millisecond is shown too, but only once.
    const isLeft = entry.kind === "phase" && entry.data.to !== phase && found.at(-1)?.phase !== phase;
    if (at > from || isLeft) add({ phase, from, to: at, isPaused });
    from = at;
    if (entry.kind === "phase") phase = entry.data.to;
    if (entry.kind === "approval_requested") phase = "approval";
    if (entry.kind === "suspended") isPaused = true;
    if (entry.kind === "resumed" || entry.kind === "phase") isPaused = false;
    if (entry.kind === "finalized") return found;
  }
  add({ phase: session.phase ?? phase, from, to: Math.max(end, from + 1), isPaused: session.state === "suspended" });
  return found;
}
