/**
 * Dead letters: callbacks, messages and decisions that three turns in a row failed to process, so a person has to look.
 * Sending one again puts it back into the inbox for the session's next turn.
 */
import { at, get, post } from "../api.js";
import { json, oneLine, plain, plural, textOf } from "../format.js";
import { useHead } from "../heads.js";
import { computed, effect, html, signal, useMemo, useSignal } from "../html.js";
import { useKeys } from "../keys.js";
import { generation, listen } from "../live.js";
import { go, link, refine } from "../router.js";
import { complain, confirm, Do, Empty, Failed, Id, Loading, Status, Time, toast } from "../ui.js";

const PAGE = 200;
const SETTLE = 500; // milliseconds after the end of a turn: several end together
const KINDS = ["callback", "message", "decision"];

/** The dead letters; null until the server has answered. @type {import("../vendor/signals.mjs").Signal<any[] | null>} */
const letters = signal(/** @type {any[] | null} */ (null));
/** @type {import("../vendor/signals.mjs").Signal<string | null>} */
const next = signal(/** @type {string | null} */ (null));
/** @type {import("../vendor/signals.mjs").Signal<any>} */
const failure = signal(/** @type {any} */ (null));
const count = computed(() => letters.value?.length ?? 0);
let timer = 0;

/** @param {string | null} [cursor] */
async function load(cursor = null) {
  try {
    const page = await get("/inbox", { dead_letters: true, limit: PAGE, cursor });
    letters.value = cursor ? [...(letters.peek() ?? []), ...page.items] : page.items;
    next.value = page.next;
    failure.value = null;
  } catch (error) {
    failure.value = error;
  }
}

listen((events) => {
  if (events.some((event) => /^(turn_ended|run_settled|callback|finalized|session_deleted)$/.test(event.type))) {
    timer ||= setTimeout(() => ((timer = 0), void load()), SETTLE);
  }
});
effect(() => void (generation.value && load()));

/** @param {any} item */
async function resend(item) {
  await post(at`/inbox/${item.item_id}/resend`);
  letters.value = (letters.peek() ?? []).filter((each) => each.item_id !== item.item_id);
}

// The view ------------------------------------------------------------------------------------------

/** @param {{query: Record<string, string>}} props */
function View({ query }) {
  const cursor = useSignal(0);
  const items = useMemo(() => letters.value?.filter((each) => !query.kind || each.kind === query.kind) ?? null, [letters.value, query.kind]);
  const index = Math.max(0, Math.min(cursor.value, (items?.length ?? 1) - 1));
  /** The item that a key acts on. */
  const chosen = () => items?.[Math.min(cursor.peek(), items.length - 1)];
  const send = async (/** @type {any} */ item) => {
    await resend(item);
    toast("Sent again: it waits for the next turn", { kind: "good", action: { label: "See it", run: () => go("session", item.session_id) } });
  };
  useKeys([
    { keys: "j", does: "Down", run: () => (cursor.value = Math.min(index + 1, (items?.length ?? 1) - 1)) },
    { keys: "k", does: "Up", run: () => (cursor.value = Math.max(index - 1, 0)) },
    { keys: "s", does: "Send again", run: () => chosen() && send(chosen()).catch(complain) },
    { keys: "o", does: "Open the session", run: () => chosen() && go("session", chosen().session_id) },
  ], [index, items]);
  if (failure.value && !letters.value) return html`<${Failed} error=${failure.value} retry=${load} />`;
  if (!items) return html`<${Loading} />`;
  return html`<div class="stack">
    <header class="head"><h1>Dead letters</h1>
      <label class="inline">Kind <select value=${query.kind ?? ""} onChange=${(event) => refine({ kind: event.target.value })}><option value="">all</option>${KINDS.map((kind) => html`<option key=${kind} value=${kind}>${kind}s</option>`)}</select></label>
      ${items.length > 1 && html`<${Do} run=${() => resendAll(items)}>Send all again<//>`}</header>
    ${items.length ? html`<p class="muted">Three turns failed to process each of these. Fix the cause first: a letter that is sent again gets three more turns.</p>
      <ul class="stack" aria-label="Dead letters">${items.map((item, at) => html`<${Item} key=${item.item_id} item=${item} isChosen=${at === index} onChoose=${() => (cursor.value = at)} send=${send} />`)}</ul>`
      : html`<${Empty} title=${query.kind ? `No ${query.kind}s among the dead letters` : "No dead letters"}>Callbacks, messages and decisions that three turns in a row fail to process appear here. You can send them again.<//>`}
    ${next.value && html`<${Do} run=${() => load(next.peek())}>More<//>`}</div>`;
}

/** @param {any[]} items */
async function resendAll(items) {
  const agreed = await confirm("Send all again?", html`<p class="would"><strong>Sends ${plural(items.length, "item")} again</strong></p><p class="muted">To ${plural(new Set(items.map((each) => each.session_id)).size, "session")}. Closed sessions stay as they are.</p>`, { yes: "Send again" });
  if (!agreed) return;
  const results = await Promise.allSettled(items.map(resend));
  const refused = results.filter((each) => each.status === "rejected");
  if (refused.length) complain(/** @type {PromiseRejectedResult} */ (refused[0]).reason);
  if (refused.length < items.length) toast(`${plural(items.length - refused.length, "item")} sent again`, { kind: "good" });
}

/** @param {{item: any, isChosen: boolean, onChoose: () => void, send: (item: any) => Promise<void>}} props */
function Item({ item, isChosen, onChoose, send }) {
  const session = useHead(item.session_id);
  const name = session?.session_name || session?.agent_name || "the session";
  return html`<li class="card stack tight letters ${isChosen ? "cursor" : ""}" onClick=${onChoose} aria-label=${`${item.kind} for ${name}`}>
    <div class="row"><span class="chip">${item.kind}</span><span class="to">for <a href=${link("session", item.session_id)}>${plain(name)}</a></span>${session && html`<${Status} status=${session.status} />`}<${Id} id=${item.session_id} />
      <span class="end muted">${plural(item.given, "turn")} failed, <${Time} at=${item.created_at} /></span>
      <${Do} class="small ${isChosen ? "primary" : ""}" run=${() => send(item)}>Send again<//></div>
    <${Said} item=${item} />
    ${session?.last_error && html`<p class="warn"><span class="muted">Last error:</span> ${plain(oneLine(String(session.last_error), 400))}</p>`}</li>`;
}

/** The content of an item. @param {{item: any}} props */
function Said({ item: { kind, body } }) {
  if (kind === "callback") return html`<p class="row"><span><a href=${link("session", body.child_session_id)}>${plain(body.agent_name ?? "A child")}</a>, asked “${plain(oneLine(body.asked ?? "", 120))}”</span><${Status} status=${body.outcome} /></p>
    ${(body.result ?? body.error) && html`<pre class="said">${plain(oneLine(body.result ?? body.error, 600))}</pre>`}`;
  if (kind === "decision") return html`<p>Decided: <strong>${plain(body.decision ?? body.state)}</strong>${body.note && html` (${plain(body.note)})`}</p>`;
  return html`<pre class="said">${plain(oneLine(textOf(body.content) || json(body), 600))}</pre>`;
}

/** @type {import("../views.js").View} */
export default { name: "dead-letters", title: "Dead letters", hotkey: "x", icon: "M2.500 9.500 4 3.500h8l1.500 6v3h-11zM2.500 9.500h3l1 1.500h3l1-1.500h3", badge: () => count.value, View };
