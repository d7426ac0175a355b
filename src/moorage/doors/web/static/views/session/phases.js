/** The phases of a session on a time line: how long each took, and where the session paused. */
import { clock, span } from "../../format.js";
import { html } from "../../html.js";
import { isFinal } from "../../reduce.js";
import { now } from "../../ui.js";
import { stretches } from "./stretches.js";

/** Names for phases whose stretch is too narrow for the whole word. @type {Record<string, string>} */
const SHORT = { initializing: "init", investigating: "look", planning: "plan", approval: "ask", executing: "run", validating: "test" };

/** @param {{session: any, entries: any[]}} props */
export function Phases({ session, entries }) {
  const end = isFinal(session) ? Date.parse(session.finalized_at) : now.value;
  const all = stretches(session, entries, end);
  const begin = all[0]?.from ?? end;
  const whole = Math.max(end - begin, 1);
  // Widths grow with the square root of the time, so that short phases stay visible beside a long wait.
  const weights = all.map((each) => Math.sqrt((each.to - each.from) / whole) + 0.04);
  return html`<figure class="phases" aria-label="Phases on a time line">
    <ol>${all.map((each, index) => html`<li class="ph-${each.phase} ${each.isPaused ? "paused" : ""}" style=${{ flexGrow: weights[index] }} title=${`${each.phase}${each.isPaused ? ", paused" : ""}: ${span((each.to - each.from) / 1000)} from ${clock(each.from)}`}>
      <span class="whole">${each.phase}</span><span class="short" aria-hidden="true">${SHORT[each.phase] ?? each.phase}</span><small>${span((each.to - each.from) / 1000)}</small></li>`)}</ol></figure>`;
}
