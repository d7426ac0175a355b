/** The messages of a session, with events between them and the composer at the end. */
import { fork } from "../../actions.js";
import { at, get, post } from "../../api.js";
import { bytes, clock, json, moment, oneLine, outputOf, plain, worded } from "../../format.js";
import { touch } from "../../heads.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "../../html.js";
import { Markdown } from "../../markdown.js";
import { isFinal } from "../../reduce.js";
import { link } from "../../router.js";
import { useWords } from "../../words.js";
import { complain, Do, Empty, Failed, Loading, Mark, Time, toast, useLoad } from "../../ui.js";

const LONG = 24_000; // characters that are shown at once, and as Markdown
const PIECE = 100_000;

/** @param {{session: any, entries: import("./entries.js").Entries, entry?: number}} props */
export function Conversation({ session, entries, entry }) {
  const all = entries.all.value;
  const end = useRef();
  const isAtEnd = useRef(true);
  const isAtWork = !session.deleted && session.status === "running";
  const words = useWords(session.session_id, isAtWork);
  useEffect(() => {
    const scroller = end.current?.closest("main");
    if (!scroller) return undefined;
    const look = () => (isAtEnd.current = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 160);
    scroller.addEventListener("scroll", look, { passive: true });
    return () => scroller.removeEventListener("scroll", look);
  }, [entries.isLoaded.value]);
  const stay = () => isAtEnd.current && !entry && end.current?.scrollIntoView({ block: "end" });
  useLayoutEffect(() => void stay(), [all.length, session.status, words]);
  useEffect(() => {
    // Questions and images load later than the text around them.
    if (!end.current) return undefined;
    const watch = new ResizeObserver(() => stay());
    watch.observe(end.current.parentElement);
    return () => watch.disconnect();
  }, [entries.isLoaded.value, entry]);
  useEffect(() => {
    if (entry && entries.isLoaded.value) void entries.reach(entry).then(() => setTimeout(() => document.getElementById(`entry-${entry}`)?.scrollIntoView({ block: "center" }), 50));
  }, [entry, entries.isLoaded.value]);
  if (entries.error.value && !all.length) return html`<${Failed} error=${entries.error.value} retry=${() => entries.load()} />`;
  if (!entries.isLoaded.value) return html`<${Loading} />`;
  const results = new Map(all.flatMap((each) => parts(each).filter((part) => part.type === "tool_result").map((part) => [part.call_id, part])));
  const calls = new Set(all.flatMap((each) => parts(each).filter((part) => part.type === "tool_call").map((part) => part.id)));
  const last = all.findLast((each) => each.kind === "message");
  const isKept = last?.role === "assistant" && typeof last.content === "string" && last.content.startsWith(words.trim());
  return html`<section class="conversation" aria-label="Conversation">
    ${entries.hasEarlier.value && html`<${Do} class="small" run=${() => entries.earlier()}>Load earlier<//>`}
    ${!all.some((each) => each.kind === "message") && html`<${Empty} title="No messages yet" />`}
    <ol class="talk">${all.map((each) => html`<${Line} key=${each.number} entry=${each} session=${session} results=${results} calls=${calls} isWanted=${entry === each.number} />`)}</ol>
    ${words && !isKept && html`<div class="message m-assistant saying" role="group" aria-label="Partial reply" aria-busy="true"><header><b>assistant</b><span class="muted">${session.agent_name}</span><span class="muted">just now</span></header><div class="body"><${Text} text=${words} /></div></div>`}
    ${session.pending_approvals > 0 && html`<${Questions} session=${session} />`}
    ${isAtWork && html`<p class="at-work s-running" role="status"><span class="spinner" aria-hidden="true"></span>${session.agent_name} is working…</p>`}
    <${Composer} session=${session} />
    <div ref=${end}></div></section>`;
}

/** @param {any} entry @returns {any[]} */
const parts = (entry) => (Array.isArray(entry.content) ? entry.content : []);

/** @param {any} props */
function Line({ entry, session, results, calls, isWanted }) {
  if (entry.kind !== "message") return html`<${Happened} entry=${entry} isWanted=${isWanted} />`;
  const all = parts(entry);
  // A result appears with its call, so a message with results alone needs no line of its own.
  if (all.length && all.every((part) => part.type === "tool_result" && calls.has(part.call_id))) return null;
  return html`<li id=${`entry-${entry.number}`} class="message m-${entry.role} ${isWanted ? "wanted" : ""}">
    <header><b>${entry.role}</b>${entry.by && entry.by !== entry.role && html`<span class="muted">${entry.by}</span>`}<span class="muted" title=${moment(entry.at)}>${clock(entry.at)}</span><span class="muted num">${entry.number}</span>
      <button type="button" class="link quiet" aria-label=${`Fork from entry ${entry.number}`} onClick=${() => fork(session.session_id, entry.number).catch(complain)}>Fork from here</button></header>
    <div class="body">${typeof entry.content === "string" ? html`<${Text} text=${entry.content} />` : all.map((part) => html`<${Part} part=${part} results=${results} />`)}</div></li>`;
}

/** Text of any length. Long text is shown unformatted, in pieces, on request. @param {{text: string}} props */
export function Text({ text }) {
  const [shown, setShown] = useState(LONG);
  if (text.length <= LONG) return html`<${Markdown} text=${text} />`;
  const pieces = [];
  for (let from = 0; from < Math.min(shown, text.length); from += LONG) pieces.push(text.slice(from, Math.min(from + LONG, shown)));
  return html`<div class="long">${pieces.map((piece) => html`<pre class="piece">${plain(piece)}</pre>`)}
    ${shown < text.length && html`<p class="muted">${bytes(shown)} of ${bytes(text.length)} <button type="button" class="small" onClick=${() => setShown(shown + PIECE)}>Show more</button></p>`}</div>`;
}

/** @param {{part: any, results: Map<string, any>}} props */
function Part({ part, results }) {
  if (part.type === "text") return html`<${Text} text=${part.text} />`;
  if (part.type === "tool_call") return html`<${Call} part=${part} result=${results.get(part.id)} />`;
  if (part.type === "tool_result") return html`<details class="tool"><summary>Tool result</summary><${Value} value=${outputOf(part)} /></details>`;
  if (part.type === "image") return html`<${Picture} part=${part} />`;
  return html`<details class="tool"><summary>${part.type}</summary><${Value} value=${part} /></details>`;
}

/** A tool call, folded, with its result. @param {{part: any, result: any}} props */
function Call({ part, result }) {
  const input = part.input ?? part.arguments ?? {};
  const failed = result?.is_error;
  return html`<details class="tool"><summary><${Mark} status=${!result ? "running" : failed ? "failed" : "completed"} title=${!result ? "no result yet" : failed ? "failed" : "done"} /> <b>${part.name}</b> <span class="muted">${oneLine(JSON.stringify(input), 120)}</span></summary>
    <h3>Input</h3><${Value} value=${input} />
    <h3>Result</h3>${result ? html`<${Value} value=${outputOf(result)} />` : html`<p class="muted">No result yet.</p>`}</details>`;
}

/** @param {{value: any}} props */
export function Value({ value }) {
  const text = json(value);
  return text.length > LONG ? html`<${Text} text=${text} />` : html`<pre class="code" tabindex="0">${text}</pre>`;
}

/** An image: embedded data is shown, a remote address is a link. @param {{part: any}} props */
function Picture({ part }) {
  const source = part.url ?? part.source?.url ?? (part.data ? `data:${part.media_type ?? part.mime_type ?? "image/png"};base64,${part.data}` : "");
  const alt = plain(String(part.alt ?? part.title ?? "Image"));
  if (/^data:image\/(?:png|jpeg|gif|webp);base64,/.test(source)) return html`<img class="inside" src=${source} alt=${alt} />`;
  if (/^https?:\/\//i.test(source)) return html`<p><a class="picture" href=${source} rel="noreferrer noopener" target="_blank">${alt}<span class="muted"> ${oneLine(source, 80)}</span></a></p>`;
  return html`<${Value} value=${part} />`;
}

/** Events between messages, as a status and words. */
const WORDS = {
  created: (data) => ["created", data.agent_name ? `Created for ${data.agent_name}` : "Created"],
  forked: (data) => ["created", html`Forked from <a href=${link("session", data.forked_from)}>${data.forked_from}</a> at entry ${data.at}`],
  phase: (data) => ["idle", `${data.from ?? "?"} → ${data.to}`],
  error: (data) => ["failed", `Error: ${data.error ?? data.detail ?? json(data)}`],
  problem: (data) => ["run_failed", `Invalid output of the agent${data.line ? ` in line ${data.line}` : ""}: expected ${data.field ? `${data.field} to be ` : ""}${data.expected}${data.text ? `, got ${data.text}` : ""}`],
  summary: (data) => ["idle", `Summary up to entry ${data.upto}: ${data.summary}`],
  callback: (data) => [data.outcome, html`<a href=${link("session", data.child_session_id)}>${data.agent_name || "A child"}</a> called back, ${data.outcome}: ${oneLine(data.result ?? data.error ?? "", 300)}`],
  suspended: (data) => ["suspended", `Suspended${data.reason ? `: ${data.reason}` : ""}`],
  resumed: () => ["running", "Resumed"],
  checkpoint: () => ["idle", "Checkpoint saved"],
  approval_requested: (data) => ["waiting", `Asked: ${data.question}`],
  approval_decided: (data) => [data.state, `Decided: ${data.decision}${data.decided_by ? ` by ${data.decided_by}` : ""}${data.note ? ` (${data.note})` : ""}`],
  approval_expired: () => ["abandoned", "The approval expired"],
  approval_withdrawn: () => ["abandoned", "The approval was withdrawn"],
  approval_replayed: (data) => [data.state, `Same question, same answer: ${data.decision}`],
  run_retried: (data) => ["running", `Retry of run ${data.retry_of}`],
  run_settled: (data) => [data.outcome, `Run ${data.outcome}${data.reason ? ` (${worded(data.reason)})` : ""}`],
  finalized: (data) => [data.outcome, `Finalized as ${data.outcome}${data.summary ? `: ${data.summary}` : ""}`],
};

/** @param {{entry: any, isWanted: boolean}} props */
function Happened({ entry, isWanted }) {
  const said = WORDS[entry.kind]?.(entry.data ?? {});
  if (!said) return null;
  const words = typeof said[1] === "string" ? plain(said[1]) : said[1];
  return html`<li id=${`entry-${entry.number}`} class="happened ${isWanted ? "wanted" : ""}"><${Mark} status=${said[0]} /><span>${words}</span><span class="muted when" title=${moment(entry.at)}>${clock(entry.at)}</span></li>`;
}

/** Pending approvals, with buttons to decide them. @param {{session: any}} props */
function Questions({ session }) {
  const asked = useLoad(() => get("/approvals", { session: session.session_id, pending_only: true }), [session.session_id, session.version]);
  return html`${(asked.value?.items ?? []).map((approval) => html`<${Question} key=${approval.approval_id} approval=${approval} onDone=${asked.again} />`)}`;
}

/** @param {{approval: any, onDone: () => void}} props */
function Question({ approval, onDone }) {
  const note = useRef();
  const decide = (decision) => async () => {
    await post(at`/approvals/${approval.approval_id}/decision`, { decision, ...(note.current.value ? { note: note.current.value } : {}), ...(approval.plan_hash ? { plan_hash: approval.plan_hash } : {}) });
    toast(`Decided: ${decision}`, { kind: "good" });
    onDone();
  };
  return html`<div class="question card" role="group" aria-label="Pending approval">
    <h3><${Mark} status="waiting" /> ${plain(approval.question)}</h3>
    ${approval.plan && html`<${Value} value=${approval.plan} />`}
    <div class="bar"><input ref=${note} class="grow" placeholder="Note (optional)" aria-label="Note" />
      <${Do} class="primary" run=${decide("approve")}>Approve<//>${approval.options.map((option) => html`<${Do} run=${decide(option)}>${option}<//>`)}<${Do} class="danger" run=${decide("reject")}>Reject<//></div>
    ${approval.expires_at && html`<p class="muted">Expires <${Time} at=${approval.expires_at} /></p>`}</div>`;
}

/** The text in the empty box. @param {any} session */
function hintFor(session) {
  if (session.waiting_for?.approval_id) return "Waiting for an approval: the agent reads a message after the answer";
  if (session.state === "suspended") return "Suspended: a message to the agent resumes the session";
  return "Message. Enter sends, Shift+Enter starts a new line";
}

/** @param {{session: any}} props */
function Composer({ session }) {
  const area = useRef();
  const [busy, setBusy] = useState(false);
  const [asks, setAsks] = useState(true);
  if (session.deleted) return null;
  if (isFinal(session)) return html`<p class="closed muted">This session is ${session.state}. <button type="button" class="link" onClick=${() => fork(session.session_id).catch(complain)}>Fork to continue</button></p>`;
  const submit = async () => {
    const content = area.current.value;
    if (!content.trim() || busy) return;
    area.current.value = "";
    setBusy(true);
    try {
      await say(session.session_id, content, asks);
    } catch (error) {
      area.current.value ||= content;
      complain(error);
    } finally {
      setBusy(false);
    }
  };
  const onKey = (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      void submit();
    }
  };
  return html`<form class="composer" onSubmit=${(event) => (event.preventDefault(), void submit())}>
    <textarea ref=${area} rows="2" aria-label="Message" placeholder=${hintFor(session)} onKeyDown=${onKey}></textarea>
    <div class="bar"><label class="inline"><input type="checkbox" checked=${asks} onChange=${(event) => setAsks(event.target.checked)} />Ask the agent to reply</label>
    <span class="end"></span><button type="submit" class="primary" disabled=${busy}>Send</button></div></form>`;
}

/** Send a message. The reply arrives with the session's events. @param {string} id @param {string} content @param {boolean} asks */
async function say(id, content, asks) {
  const posted = await post(at`/sessions/${id}/messages`, asks ? { content } : { content, run: false });
  if (!posted.run_id) toast("Stored. No reply was requested.", { kind: "quiet" });
  touch(id);
}
