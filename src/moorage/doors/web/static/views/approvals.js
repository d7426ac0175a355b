/**
 * Approvals: questions to a person, the one that expires first on top. A plan is shown with its difference from the
 * last one of its session. A decision applies to the plan that was shown: the request has its hash.
 * On the keyboard a decision takes two keys, one to choose and Enter to send, so that one slip approves nothing.
 */
import { at, get, post } from "../api.js";
import { diff, inWords } from "../diff.js";
import { coarse, json, moment, plain, plural } from "../format.js";
import { useHead } from "../heads.js";
import { computed, effect, html, signal, useEffect, useRef, useState } from "../html.js";
import { useKeys } from "../keys.js";
import { generation, listen } from "../live.js";
import { go, link, refine } from "../router.js";
import { complain, Do, Empty, Failed, Id, Loading, Mark, now, Status, Time, toast, useLoad } from "../ui.js";
import { before, mostUrgent } from "./approvals/order.js";

const MOST = 1000;
const SOON = 600; // seconds: earlier expiries are marked

/** Pending approvals; null until the server has answered. @type {import("../vendor/signals.mjs").Signal<any[] | null>} */
const waiting = signal(/** @type {any[] | null} */ (null));
/** @type {import("../vendor/signals.mjs").Signal<any>} */
const failure = signal(/** @type {any} */ (null));
const count = computed(() => waiting.value?.length ?? 0);

async function load() {
  try {
    const { items } = await get("/approvals", { pending_only: true, limit: MOST });
    waiting.value = items.sort(mostUrgent);
    failure.value = null;
  } catch (error) {
    failure.value = error;
  }
}

listen((events) => {
  if (events.some((event) => event.type.startsWith("approval_") || event.type === "session_deleted")) void load();
});
effect(() => void (generation.value && load()));

// The view ------------------------------------------------------------------------------------------

/** @param {{query: Record<string, string>}} props */
function View({ query }) {
  const items = waiting.value;
  const shown = items?.find((each) => each.approval_id === query.id) ?? items?.[0];
  const index = items && shown ? items.indexOf(shown) : 0;
  const step = (/** @type {number} */ by) => () => {
    const next = waiting.peek()?.[Math.max(0, Math.min(index + by, count.peek() - 1))];
    if (next) refine({ id: next.approval_id });
  };
  useKeys([
    { keys: "j", does: "Next question", run: step(1) },
    { keys: "k", does: "Previous question", run: step(-1) },
  ], [index, count.value]);
  if (failure.value && !items) return html`<${Failed} error=${failure.value} retry=${load} />`;
  if (!items) return html`<${Loading} />`;
  return html`<div class="stack">
    <header class="head"><h1>Approvals</h1><span class="muted">${items.length ? `${items.length} pending` : ""}</span></header>
    ${shown
      ? html`<div class="split"><${List} items=${items} shown=${shown} /><${Question} key=${shown.approval_id} approval=${shown} /></div>`
      : html`<${Empty} title="No pending approvals">When an agent asks before it acts, its question appears here, and the tab title shows the number.<br />
          <code class="hint">turn.ask("Apply the plan?", plan=…, options=["canary"])</code><//>`}
    <${Decided} />
  </div>`;
}

/** @param {{items: any[], shown: any}} props */
function List({ items, shown }) {
  return html`<ul class="pick" aria-label="Waiting">${items.map((each) => html`<li key=${each.approval_id}>
    <a href=${link("approvals", [], { id: each.approval_id })} aria-current=${each === shown ? "true" : undefined} onClick=${(event) => (event.preventDefault(), refine({ id: each.approval_id }))}>
      <strong><${Mark} status="waiting" />${plain(each.question)}</strong>
      <span class="row muted"><${Name} id=${each.session_id} /><span class="end"><${Left} approval=${each} /></span></span></a></li>`)}</ul>`;
}

/** @param {{id: string}} props */
function Name({ id }) {
  const session = useHead(id);
  return html`<span class="cut">${session ? session.session_name || session.agent_name || "" : ""}</span>`;
}

/** Its age and the time left. @param {{approval: any}} props */
function Left({ approval }) {
  const age = (now.value - Date.parse(approval.asked_at)) / 1000;
  if (!approval.expires_at) return html`<span class="num" title=${moment(approval.asked_at)}>${coarse(Math.max(0, age))} old</span>`;
  const left = (Date.parse(approval.expires_at) - now.value) / 1000;
  return html`<span class="num ${left < SOON ? "s-failed" : ""}" title=${`Asked ${moment(approval.asked_at)}, expires ${moment(approval.expires_at)}`}>
    ${coarse(Math.max(0, age))} old · ${left > 0 ? `${coarse(left)} left` : "expired"}</span>`;
}

// One question --------------------------------------------------------------------------------------

/** @param {{approval: any}} props */
function Question({ approval }) {
  const session = useHead(approval.session_id);
  const [chosen, choose] = useState("");
  const note = useRef();
  const decisions = ["approve", ...approval.options.filter((each) => each !== "approve" && each !== "reject"), "reject"];
  const decide = async (/** @type {string} */ decision) => {
    await post(at`/approvals/${approval.approval_id}/decision`, { decision, ...body(approval, note.current?.value) });
    waiting.value = (waiting.peek() ?? []).filter((each) => each.approval_id !== approval.approval_id);
    toast(`${session?.session_name || "The session"} continues: ${decision}`, { kind: decision === "reject" ? "info" : "good", action: { label: "See it", run: () => go("session", approval.session_id) } });
  };
  const pick = (/** @type {string} */ decision) => () => {
    choose(decision);
    note.current?.focus();
  };
  useKeys([
    { keys: "a", does: "Approve (Enter sends it)", run: pick("approve") },
    { keys: "r", does: "Reject (Enter sends it)", run: pick("reject") },
    ...decisions.slice(1, -1).map((option, index) => ({ keys: String(index + 1), does: `${option} (Enter sends it)`, run: pick(option) })),
    { keys: "o", does: "Open the session", run: () => go("session", approval.session_id) },
  ], [approval.approval_id]);
  return html`<article class="card stack question-card" aria-label=${plain(approval.question)}>
    <header class="stack tight"><h2>${plain(approval.question)}</h2>
      <p class="row muted"><a href=${link("session", approval.session_id)}>${session?.session_name || "the session"}</a>${session && html`<${Status} status=${session.status} />`}<${Id} id=${approval.session_id} />
        ${approval.asked_by && html`<span>asked by ${plain(approval.asked_by)}</span>`}<${Time} at=${approval.asked_at} />
        ${approval.waits && html`<span class="chip" title="The agent process waits and continues as soon as you answer">agent is waiting</span>`}</p></header>
    <${Clock} approval=${approval} />
    <${Plan} approval=${approval} />
    <form class="decide" onSubmit=${(event) => (event.preventDefault(), chosen && decide(chosen).catch(complain))}>
      <label>Note for the agent (optional)
        <input ref=${note} name="note" autocomplete="off" maxlength="4000" placeholder=${chosen ? `Enter sends “${chosen}”, Escape cancels` : "A reason or an instruction"}
          onKeyDown=${(event) => event.key === "Escape" && choose("")} /></label>
      <div class="row">${decisions.map((each, index) => html`<${Do} key=${each} class="${each === "approve" ? "primary" : each === "reject" ? "danger" : ""} ${chosen === each ? "chosen" : ""}" aria-pressed=${chosen ? String(chosen === each) : undefined} run=${() => decide(each)}>
        ${each === "approve" ? "Approve" : each === "reject" ? "Reject" : plain(each)}<kbd aria-hidden="true">${each === "approve" ? "a" : each === "reject" ? "r" : index}</kbd><//>`)}</div>
    </form></article>`;
}

/** The note and the plan's hash, for a decision. @param {any} approval @param {string} [note] */
function body(approval, note) {
  return { ...(note ? { note } : {}), ...(approval.plan_hash ? { plan_hash: approval.plan_hash } : {}) };
}

/** The share of time left. @param {{approval: any}} props */
function Clock({ approval }) {
  if (!approval.expires_at) return html`<p class="muted">It does not expire.</p>`;
  const end = Date.parse(approval.expires_at), start = Date.parse(approval.asked_at);
  const left = Math.max(0, (end - now.value) / 1000);
  const share = Math.max(0, Math.min(100, (100 * (end - now.value)) / (end - start)));
  return html`<div class="clock ${left < SOON ? "soon" : ""}"><span aria-hidden="true"><i style=${{ width: `${share}%` }}></i></span>
    <small>${left ? `Expires in ${coarse(left)}` : "Expired"}, ${moment(approval.expires_at)}; an expired approval is not a rejection</small></div>`;
}

/** The plan, with its difference from the last one of the session. @param {{approval: any}} props */
function Plan({ approval }) {
  const [isWhole, setWhole] = useState(false);
  const earlier = useLoad(() => get("/approvals", { session: approval.session_id, pending_only: false, limit: MOST }), [approval.approval_id]);
  if (approval.plan === null || approval.plan === undefined) return html`<p class="muted">No plan.</p>`;
  const last = before(earlier.value?.items ?? [], approval);
  const changes = last ? diff(json(last.plan), json(approval.plan)) : [];
  const words = inWords(changes);
  return html`<section class="stack tight" aria-label="Plan"><div class="row"><h3>Plan</h3>
      ${last && html`<span class="muted">${words ? html`${words} since the last plan, ` : "the same as the last plan, "}which was ${last.state === "answered" ? html`answered “${plain(last.decision)}”` : last.state} <${Time} at=${last.decided_at ?? last.asked_at} /></span>`}
      ${last && words && html`<button type="button" class="small end" aria-pressed=${String(isWhole)} onClick=${() => setWhole(!isWhole)}>${isWhole ? "Show changes" : "Hide changes"}</button>`}</div>
    ${words && !isWhole
      ? html`<pre class="plan diff" tabindex="0">${changes.map((line) => html`<span class=${line.kind}><b aria-hidden="true">${line.kind === "new" ? "+" : line.kind === "gone" ? "−" : " "}</b>${line.kind !== "same" && html`<span class="sr">${line.kind === "new" ? "added: " : "removed: "}</span>`}${line.text}\n</span>`)}</pre>`
      : html`<pre class="plan" tabindex="0">${json(approval.plan)}</pre>`}</section>`;
}

// Decided ----------------------------------------------------------------------------------

function Decided() {
  const [isOpen, setOpen] = useState(false);
  return html`<details onToggle=${(event) => setOpen(event.target.open)}><summary>Decided approvals</summary>${isOpen && html`<${History} />`}</details>`;
}

function History() {
  const all = useLoad(() => get("/approvals", { pending_only: false, limit: MOST }), [count.value]);
  useEffect(() => listen((events) => events.some((event) => event.type === "approval_decided") && all.again()), []);
  if (all.error && !all.value) return html`<${Failed} error=${all.error} retry=${all.again} />`;
  if (!all.value) return html`<${Loading} />`;
  const settled = all.value.items.filter((each) => each.state !== "pending").reverse().slice(0, 100);
  if (!settled.length) return html`<p class="muted">None yet.</p>`;
  return html`<div class="card table-card"><table class="plain"><thead><tr><th scope="col">State</th><th scope="col">Question</th><th scope="col">Answer</th><th scope="col">Note</th><th scope="col">By</th><th scope="col">When</th></tr></thead>
    <tbody>${settled.map((each) => html`<tr key=${each.approval_id}><td><${Status} status=${each.state} /></td>
      <td><a href=${link("session", each.session_id)}>${plain(each.question)}</a></td><td>${plain(each.decision ?? "–")}</td><td>${plain(each.note ?? "")}</td><td>${plain(each.decided_by ?? "–")}</td><td><${Time} at=${each.decided_at} /></td></tr>`)}</tbody></table></div>`;
}

/** @type {import("../views.js").View} */
export default { name: "approvals", title: "Approvals", hotkey: "a", icon: "M3 8.5 6.5 12 13 4.5", badge: () => count.value, View };
