/** The reason of a session's status: the child or approval it waits for, why it is queued, how its last run failed. */
import { retry } from "./actions.js";
import { failure, nameOf, plain, reason, shortId } from "./format.js";
import { touch, useHead } from "./heads.js";
import { html, useEffect } from "./html.js";
import { link } from "./router.js";
import { Do, Time } from "./ui.js";

/** @param {{session: any, canRetry?: boolean}} props */
export function Why({ session, canRetry = false }) {
  const { status, waiting_for: awaited, because, last_run: last } = session;
  if (session.deleted) return null;
  if (status === "waiting" && awaited?.child) return html`<span class="why">for <${Child} key=${awaited.child.session_id} id=${awaited.child.session_id} /></span>`;
  if (status === "waiting" && awaited?.approval_id) return html`<span class="why">for <a href=${link("approvals", [], { id: awaited.approval_id })}>an approval</a></span>`;
  if (status === "run_failed") return html`<span class="why s-failed" title=${failure(session)}>${canRetry && last && html`<${Do} class="link" run=${() => retry(last.id, session.session_id)}>Retry<//>`}<span class="cut">${failure(session)}</span>${!canRetry && last && html`<${Time} at=${last.settled_at} />`}</span>`;
  if (because && (/^(queued|suspended)$/.test(status) || because.reason === "unresponsive")) return html`<span class="why" title=${reason(because)}>${reason(because)}</span>`;
  return null;
}

/** Request a session again while it may change without an entry: launchers come and fall silent, holds end.
 * @param {any} session @param {number} every milliseconds */
export function useFresh(session, every) {
  const id = session?.session_id, isOpen = session?.status === "queued" || Boolean(session?.hold);
  useEffect(() => {
    if (!isOpen) return undefined;
    const timer = setInterval(() => document.hidden || touch(id), every);
    return () => clearInterval(timer);
  }, [id, isOpen]);
}

/** The child that a session waits for. @param {{id: string}} props */
function Child({ id }) {
  const child = useHead(id);
  return html`<a href=${link("session", id)}>${child ? plain(nameOf(child)) : shortId(id)}</a>`;
}
