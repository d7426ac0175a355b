/** Analytics: sessions, resumes, durations and errors beside their targets, over time and per agent. */
import { get } from "../api.js";
import { bytes, plain, plural, span } from "../format.js";
import { html, useEffect } from "../html.js";
import { useKeys } from "../keys.js";
import { generation, listen } from "../live.js";
import { axis, percent, STEPS, targetOf, told } from "../measures.js";
import { Plot } from "../plots.js";
import { link, refine } from "../router.js";
import { Empty, Failed, Loading, Mark, useLoad } from "../ui.js";

/** @type {Record<string, {title: string, days: number | null, by: "hour" | "day" | "week"}>} */
const RANGES = {
  "24h": { title: "24 hours", days: 1, by: "hour" },
  "7d": { title: "7 days", days: 7, by: "day" },
  "30d": { title: "30 days", days: 30, by: "day" },
  "90d": { title: "90 days", days: 90, by: "week" },
  all: { title: "All time", days: null, by: "week" },
};
const PATIENCE = 5000; // milliseconds between two requests, however many events arrive

/** @param {Record<string, string>} query */
async function load(query) {
  const range = RANGES[query.range] ?? RANGES["7d"];
  const after = range.days === null ? undefined : new Date(Date.now() - range.days * 86_400_000).toISOString();
  const about = { created_after: after, agent: query.agent, task: query.task };
  const [byTime, byAgent] = await Promise.all([get("/analytics", { ...about, by: range.by }), get("/analytics", { ...about, by: "agent" })]);
  return { range, after, byTime, byAgent };
}

/** @param {{query: Record<string, string>}} props */
function View({ query }) {
  const chosen = query.range in RANGES ? query.range : "7d";
  const found = useLoad(() => load(query), [chosen, query.agent, query.task, generation.value]);
  useEffect(() => {
    let timer = 0;
    const stop = listen(() => (timer ||= setTimeout(() => ((timer = 0), document.hidden || found.again()), PATIENCE)));
    return () => (clearTimeout(timer), stop());
  }, []);
  useKeys(Object.entries(RANGES).map(([name, { title }], index) => ({ keys: String(index + 1), does: title, run: () => refine({ range: name }) })), []);
  return html`<div class="stack">
    <header class="head"><h1>Analytics</h1>
      <div class="segments" role="group" aria-label="Time">${Object.entries(RANGES).map(([name, { title }]) => html`<button type="button" key=${name} aria-pressed=${String(name === chosen)} onClick=${() => refine({ range: name })}>${title}</button>`)}</div>
      ${query.agent && html`<span class="chip">${plain(query.agent)}<button type="button" class="icon" aria-label="All agents" onClick=${() => refine({ agent: "" })}>×</button></span>`}</header>
    ${found.error && !found.value ? html`<${Failed} error=${found.error} retry=${found.again} />` : found.value ? html`<${Found} ...${found.value} query=${query} />` : html`<${Loading} />`}</div>`;
}

/** @param {any} props */
function Found({ range, after, byTime, byAgent, query }) {
  const { total, storage } = byTime;
  if (!total.sessions && !total.delegations) return html`<${Empty} title="No sessions in this time">Sessions count by their creation time. Choose a longer time, or <a href="#/sessions">see the sessions</a>.<//>`;
  return html`<${Tiles} total=${total} storage=${storage} />
    <${Plots} range=${range} after=${after} groups=${byTime.groups} total=${total} />
    <${Agents} groups=${byAgent.groups} leftOut=${byAgent.groups_left_out} query=${query} />
    <${Numbers} groups=${byTime.groups} by=${range.by} />`;
}

// Numbers of the whole time -------------------------------------------------------------------------

/** @param {{total: any, storage: any}} props */
function Tiles({ total, storage }) {
  const { delivered, waiting, dead_letters: dead } = total.callbacks;
  const open = total.sessions - total.ended;
  return html`<dl class="tiles">
    <${Tile} name="Sessions" value=${total.sessions.toLocaleString()} told=${`${total.ended.toLocaleString()} ended, ${open.toLocaleString()} open`} />
    <${Measure} name="Resume rate" measure=${total.resume_rate} told=${`${total.resumed} of ${plural(total.delegations, "delegation")}`} />
    <${Measure} name="Resume success" measure=${total.resume_success} told=${`${total.resumed_completed} of ${total.resumed_ended} ended`} />
    <${Measure} name="Duration, median" measure=${total.duration_median} />
    <${Measure} name="Duration, p95" measure=${total.duration_p95} />
    <${Measure} name="Error rate" measure=${total.error_rate} told=${`${plural(total.with_errors, "session")}`} />
    <${Tile} name="Callbacks" value=${(delivered + waiting + dead).toLocaleString()} told=${html`${delivered} delivered, ${waiting} waiting, ${dead ? html`<a href=${link("dead-letters")}>${plural(dead, "dead letter")}</a>` : "no dead letters"}`} />
    <${Measure} name="Storage per session" measure=${storage.bytes_per_session} told=${`${bytes(storage.bytes)} in all${storage.bytes_per_session.met === null ? "; judged from 200 sessions on" : ""}`} />
    ${total.tokens && html`<${Tile} name="Tokens" value=${(total.tokens.input + total.tokens.output).toLocaleString()} told=${`${total.tokens.input.toLocaleString()} in, ${total.tokens.output.toLocaleString()} out`} />`}</dl>`;
}

/** @param {{name: string, value: string, told?: any, children?: any}} props */
function Tile({ name, value, told: said, children }) {
  return html`<div class="card tile"><dt>${name}</dt><dd><strong class="num">${value}</strong>${children}<small>${said}</small></dd></div>`;
}

/** A number beside its target. @param {{name: string, measure: any, told?: any}} props */
function Measure({ name, measure, told: said }) {
  return html`<${Tile} name=${name} value=${told(measure)} told=${said}><${Target} measure=${measure} /><//>`;
}

/** @param {{measure: any}} props */
function Target({ measure }) {
  const [kind, words] = measure.met === null ? ["abandoned", "not measured"] : measure.met ? ["completed", "met"] : ["failed", "missed"];
  return html`<span class="aim s-${kind}"><${Mark} status=${kind} /><span title=${measure.target}>${measure.target.split(" per ")[0]}</span><span class="sr">, ${words}</span></span>`;
}

// Over time -----------------------------------------------------------------------------------------

/** @param {{range: any, after?: string, groups: any[], total: any}} props */
function Plots({ range, after, groups, total }) {
  const { times, at } = axis(groups, range.by, after ? Date.parse(after) / 1000 : undefined, Date.now() / 1000 - STEPS[range.by]);
  const counts = (/** @type {(group: any) => number} */ of) => at.map((group) => (group ? of(group) : 0));
  const values = (/** @type {string} */ name) => at.map((group) => group?.[name].value ?? null);
  const every = { times, step: STEPS[range.by] };
  const state = (/** @type {string} */ name) => counts((group) => group.states[name] ?? 0);
  const whole = (/** @type {number} */ value) => (Number.isInteger(value) ? value.toLocaleString() : "");
  return html`<h2 class="sr">Over time</h2><div class="plots">
    <${Plot} title=${`Sessions per ${range.by}`} ...${every} isStacked format=${whole} series=${[
      { label: "open", colour: "--running", isBars: true, values: counts((group) => group.sessions - group.ended) },
      { label: "failed", colour: "--failed", isBars: true, values: state("failed") },
      { label: "abandoned", colour: "--line-strong", isBars: true, values: state("abandoned") },
      { label: "completed", colour: "--completed", isBars: true, values: state("completed") }]} />
    <${Plot} title="Resume rate" ...${every} most=${1.08} target=${targetOf(total.resume_rate.target)} format=${percent} series=${[{ label: "resumed", colour: "--accent", values: values("resume_rate") }]} />
    <${Plot} title="Resume success" ...${every} most=${1.08} target=${targetOf(total.resume_success.target)} format=${percent} series=${[{ label: "completed", colour: "--completed", values: values("resume_success") }]} />
    <${Plot} title="Duration, median" ...${every} target=${targetOf(total.duration_median.target)} format=${span} series=${[{ label: "median", colour: "--running", values: values("duration_median") }]} />
    <${Plot} title="Duration, p95" ...${every} target=${targetOf(total.duration_p95.target)} format=${span} series=${[{ label: "p95", colour: "--suspended", values: values("duration_p95") }]} />
    <${Plot} title="Error rate" ...${every} target=${targetOf(total.error_rate.target)} format=${percent} series=${[{ label: "with errors", colour: "--failed", values: values("error_rate") }]} />
    <${Plot} title="Callbacks" ...${every} isStacked format=${whole} series=${[
      { label: "dead letters", colour: "--failed", isBars: true, values: counts((group) => group.callbacks.dead_letters) },
      { label: "waiting", colour: "--waiting", isBars: true, values: counts((group) => group.callbacks.waiting) },
      { label: "delivered", colour: "--completed", isBars: true, values: counts((group) => group.callbacks.delivered) }]} />
    ${total.tokens && html`<${Plot} title="Tokens" ...${every} isStacked format=${(/** @type {number} */ value) => value.toLocaleString(undefined, { notation: "compact" })} series=${[
      { label: "written", colour: "--suspended", isBars: true, values: counts((group) => group.tokens?.output ?? 0) },
      { label: "read", colour: "--running", isBars: true, values: counts((group) => group.tokens?.input ?? 0) }]} />`}</div>`;
}

/** The plots as numbers. @param {{groups: any[], by: string}} props */
function Numbers({ groups, by }) {
  return html`<details><summary>The plots as a table</summary><div class="card table-card"><table class="plain num"><thead><tr><th scope="col">${by[0].toUpperCase() + by.slice(1)} (UTC)</th><${Heads} /></tr></thead>
    <tbody>${groups.map((group) => html`<tr key=${group.key}><th scope="row">${group.key.slice(0, by === "hour" ? 16 : 10).replace("T", " ")}</th><${Cells} group=${group} most=${0} /></tr>`)}</tbody></table></div></details>`;
}

// Per agent -----------------------------------------------------------------------------------------

/** @param {{groups: any[], leftOut: number, query: Record<string, string>}} props */
function Agents({ groups, leftOut, query }) {
  const most = Math.max(1, ...groups.map((group) => group.sessions));
  return html`<section class="stack tight"><h2>Per agent</h2><div class="card table-card"><table class="plain num"><thead><tr><th scope="col">Agent</th><${Heads} /></tr></thead>
    <tbody>${groups.map((group) => html`<tr key=${group.key}><th scope="row">${group.key ? html`<a href=${link("analytics", [], { ...query, agent: group.key })}>${plain(group.key)}</a>` : html`<span class="muted">none</span>`}</th><${Cells} group=${group} most=${most} /></tr>`)}</tbody></table></div>
    ${leftOut > 0 && html`<p class="muted">${plural(leftOut, "agent")} with fewer sessions left out.</p>`}</section>`;
}

function Heads() {
  return ["Sessions", "Resume rate", "Success", "Median", "p95", "Errors", "Callbacks"].map((title) => html`<th scope="col" key=${title}>${title}</th>`);
}

/** @param {{group: any, most: number}} props */
function Cells({ group, most }) {
  const { delivered, waiting, dead_letters: dead } = group.callbacks;
  const measures = ["resume_rate", "resume_success", "duration_median", "duration_p95", "error_rate"];
  return html`<td>${most > 0 && html`<span class="share" aria-hidden="true"><i style=${{ width: `${(100 * group.sessions) / most}%` }}></i></span>`}${group.sessions.toLocaleString()}</td>
    ${measures.map((name) => html`<td key=${name}>${group[name].value === null ? html`<span class="muted">–</span>` : html`<span class="met s-${group[name].met ? "completed" : "failed"}"><${Mark} status=${group[name].met ? "completed" : "failed"} title=${group[name].met ? "target met" : "target missed"} />${told(group[name])}</span>`}</td>`)}
    <td>${delivered + waiting + dead ? html`${delivered}${waiting > 0 && html`, ${waiting} waiting`}${dead > 0 && html`, <span class="s-failed">${plural(dead, "dead letter")}</span>`}` : html`<span class="muted">–</span>`}</td>`;
}

/** @type {import("../views.js").View} */
export default { name: "analytics", title: "Analytics", hotkey: "n", icon: "M2.500 13.500v-5m4 5v-9m4 9v-6m3.500 6h-13", View };
