/** The phases of a session on a time line: how long it was in which, and where it paused. */
import { clock, span } from "../../format.js";
import { html } from "../../html.js";
import { isFinal } from "../../reduce.js";
import { now } from "../../ui.js";

/** @typedef {{phase: string, from: number, to: number, isPaused: boolean}} Stretch */

/** Stretches of time, each in one phase. @param {any} session @param {any[]} entries @param {number} end milliseconds @returns {Stretch[]} */
export function stretches(session, entries, end) {
  const told = entries.filter((entry) => ["phase", "suspended", "resumed", "finalized", "approval_requested", "approval_decided"].includes(entry.kind));
  /** @type {Stretch[]} */
  const found = [];
  const first = told.find((entry) => entry.kind === "phase");
  let phase = first?.data?.from ?? session.phase, isPaused = false, from = Date.parse(session.created_at);
  for (const entry of told) {
    const at = Date.parse(entry.at);
    if (at > from) found.push({ phase, from, to: at, isPaused });
    from = at;
    if (entry.kind === "phase") phase = entry.data.to;
    if (entry.kind === "approval_requested") phase = "approval";
    if (entry.kind === "suspended") isPaused = true;
    if (entry.kind === "resumed" || entry.kind === "phase") isPaused = false;
    if (entry.kind === "finalized") return found;
  }
  found.push({ phase: session.phase ?? phase, from, to: Math.max(end, from + 1), isPaused: session.state === "suspended" });
  return found;
}

/** @param {{session: any, entries: any[]}} props */
export function Phases({ session, entries }) {
  const end = isFinal(session) ? Date.parse(session.finalized_at) : now.value;
  const all = stretches(session, entries, end);
  const begin = all[0]?.from ?? end;
  const whole = Math.max(end - begin, 1);
  // Short phases must stay visible beside a long night of waiting: widths grow with the root of the time.
  const weights = all.map((each) => Math.sqrt((each.to - each.from) / whole) + 0.04);
  return html`<figure class="phases" aria-label="Phases on a time line">
    <ol>${all.map((each, index) => html`<li class="ph-${each.phase} ${each.isPaused ? "paused" : ""}" style=${{ flexGrow: weights[index] }} title=${`${each.phase}${each.isPaused ? ", paused" : ""}: ${span((each.to - each.from) / 1000)} from ${clock(each.from)}`}>
      <span>${each.phase}</span><small>${span((each.to - each.from) / 1000)}</small></li>`)}</ol></figure>`;
}
