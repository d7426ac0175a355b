/** The phases of a session on a time line: how long it was in which, and where it paused. */
import { clock, span } from "../../format.js";
import { html } from "../../html.js";
import { isFinal } from "../../reduce.js";
import { now } from "../../ui.js";
import { stretches } from "./stretches.js";

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
