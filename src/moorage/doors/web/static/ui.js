/** Parts of all views. They show stored data as text, never as markup. */
import { Problem } from "./api.js";
import { ago, moment, shortId, worded } from "./format.js";
import { html, signal, useEffect, useRef, useState } from "./html.js";
import { dialogs } from "./keys.js";

/** Ticks every second, for relative times. */
export const now = signal(Date.now());
setInterval(() => document.hidden || (now.value = Date.now()), 1000);

// Marks ---------------------------------------------------------------------------------------------

/** A shape for each status, so that colour is never alone. */
const SHAPES = {
  created: html`<circle cx="6" cy="6" r="4" fill="none" stroke="currentColor" stroke-width="1.6" stroke-dasharray="2 1.6" />`,
  running: html`<path d="M3 1.5 10.5 6 3 10.5Z" fill="currentColor" />`,
  waiting: html`<path d="M6 .8 11.2 6 6 11.2.8 6Z" fill="currentColor" />`,
  queued: html`<path d="M6 3.2V6l2 1.4" fill="none" stroke="currentColor" stroke-width="1.4" stroke-linecap="round" /><circle cx="6" cy="6" r="4.6" fill="none" stroke="currentColor" stroke-width="1.4" />`,
  run_failed: html`<path d="M6 1.4 11.2 10.6H.8Z" fill="none" stroke="currentColor" stroke-width="1.4" stroke-linejoin="round" /><path d="M6 4.8v2.4m0 1.5v.1" stroke="currentColor" stroke-width="1.4" stroke-linecap="round" />`,
  idle: html`<circle cx="6" cy="6" r="4" fill="none" stroke="currentColor" stroke-width="1.8" />`,
  suspended: html`<path d="M2.5 2h2.4v8H2.5zM7.1 2h2.4v8H7.1z" fill="currentColor" />`,
  completed: html`<path d="M1.5 6.4 4.6 9.5 10.5 2.8" fill="none" stroke="currentColor" stroke-width="2.2" stroke-linecap="round" stroke-linejoin="round" />`,
  failed: html`<path d="m2.2 2.2 7.6 7.6m0-7.6-7.6 7.6" stroke="currentColor" stroke-width="2.2" stroke-linecap="round" />`,
  abandoned: html`<path d="M2 6h8" stroke="currentColor" stroke-width="2.2" stroke-linecap="round" />`,
  deleted: html`<path d="M2 3.2h8M4.5 3V1.8h3V3M3.2 3.4l.5 7h4.6l.5-7" fill="none" stroke="currentColor" stroke-width="1.3" stroke-linejoin="round" />`,
};
const ALIAS = { active: "idle", stopped: "abandoned", expired: "abandoned", approved: "completed", rejected: "failed", pending: "waiting", withdrawn: "abandoned", lost: "failed", alive: "completed", draining: "suspended", drained: "suspended" };

/** The shape of a status, without its word. @param {{status: string, title?: string}} props */
export function Mark({ status, title }) {
  const kind = status in SHAPES ? status : ALIAS[status] || "idle";
  return html`<svg class="mark s-${kind}" viewBox="0 0 12 12" width="12" height="12" role=${title ? "img" : "presentation"} aria-label=${title} aria-hidden=${title ? undefined : "true"}>${SHAPES[kind]}</svg>`;
}

/** A status with its shape, colour and word; `title` says more on hover. @param {{status: string, title?: string}} props */
export function Status({ status, title }) {
  const kind = status in SHAPES ? status : ALIAS[status] || "idle";
  return html`<span class="status s-${kind}" title=${title}><${Mark} status=${status} />${worded(status)}</span>`;
}

/** @param {{phase: string}} props */
export function Phase({ phase }) {
  return html`<span class="phase p-${phase}">${phase}</span>`;
}

// Text ----------------------------------------------------------------------------------------------

/** An instant: how long ago, with the full time in the viewer's zone on hover. @param {{at: string | null | undefined}} props */
export function Time({ at }) {
  if (!at) return html`<span class="muted">–</span>`;
  return html`<time datetime=${at} title=${moment(at)}>${ago(at, now.value)}</time>`;
}

/** An id; one click copies it. @param {{id: string | null | undefined, short?: boolean}} props */
export function Id({ id, short = true }) {
  if (!id) return html`<span class="muted">–</span>`;
  const shown = short ? shortId(id) : id;
  const copyIt = (event) => {
    event.preventDefault();
    event.stopPropagation();
    void copy(id);
  };
  return html`<button type="button" class="id" title="Copy ${id}" aria-label="${shown}, copy id ${id}" onClick=${copyIt}>${shown}</button>`;
}

/** Copy a text and confirm it. @param {string} text */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  toast("Copied", { kind: "quiet" });
}

/** A block of text that can be copied. @param {{text: string, label?: string}} props */
export function Copyable({ text, label = "Copy" }) {
  return html`<div class="copyable"><pre tabindex="0">${text}</pre><button type="button" class="small" onClick=${() => copy(text)}>${label}</button></div>`;
}

// Toasts --------------------------------------------------------------------------------------------

/** @typedef {{id: number, text: string, kind: string, action?: {label: string, run: () => void}}} Toast */
const toasts = signal(/** @type {Toast[]} */ ([]));
let toastId = 0;

/** Show a short notice. @param {string} text @param {{kind?: "good" | "bad" | "quiet" | "info", action?: Toast["action"], seconds?: number}} [options] */
export function toast(text, { kind = "info", action, seconds = action || kind === "bad" ? 8 : kind === "quiet" ? 1.5 : 4 } = {}) {
  const id = ++toastId;
  const others = toasts.peek().filter((each) => each.text !== text);
  toasts.value = [...others.slice(-3), { id, text, kind, action }];
  setTimeout(() => dismiss(id), seconds * 1000);
}

/** Show an error in the server's words. @param {unknown} error */
export function complain(error) {
  toast(error instanceof Error ? error.message : String(error), { kind: "bad" });
}

/** @param {number} id */
const dismiss = (id) => void (toasts.value = toasts.peek().filter((each) => each.id !== id));

export function Toasts() {
  return html`<div class="toasts" role="status" aria-live="polite">${toasts.value.map((each) => html`
    <div key=${each.id} class="toast ${each.kind}">
      <span>${each.text}</span>
      ${each.action && html`<button type="button" class="link" onClick=${() => (dismiss(each.id), each.action?.run())}>${each.action.label}</button>`}
      <button type="button" class="icon" aria-label="Dismiss" onClick=${() => dismiss(each.id)}>×</button>
    </div>`)}</div>`;
}

// Dialogs -------------------------------------------------------------------------------------------

/** @type {import("./vendor/signals.mjs").Signal<any[]>} */
const open = signal(/** @type {any[]} */ ([]));

/** Show a dialog until it answers: `content` gets `close(answer)`. Escape and navigation answer undefined; `stays` keeps it open on navigation.
 * @param {string} title @param {(close: (answer?: any) => void) => any} content @param {{wide?: boolean, stays?:
 * boolean}} [options] @returns {Promise<any>} */
export function ask(title, content, { wide = false, stays = false } = {}) {
  return new Promise((resolve) => {
    const dialog = { title, content, wide, stays, close: (answer) => {
      open.value = open.peek().filter((each) => each !== dialog);
      resolve(answer);
    } };
    open.value = [...open.peek(), dialog];
  });
}

// Back, forward and links leave the page that a dialog belongs to. Filters (`refine`) do not fire this event.
addEventListener("hashchange", () => {
  for (const dialog of open.peek()) if (!dialog.stays) dialog.close();
});

/** Ask yes or no. @param {string} title @param {any} body @param {{yes?: string, danger?: boolean}} [options] @returns {Promise<boolean>} */
export async function confirm(title, body, { yes = "OK", danger = false } = {}) {
  return Boolean(await ask(title, (close) => html`
    <div class="dialog-body">${body}</div>
    <footer><button type="button" onClick=${() => close(false)}>Cancel</button>
    <button type="button" class=${danger ? "danger" : "primary"} autofocus onClick=${() => close(true)}>${yes}</button></footer>`));
}

export function Dialogs() {
  dialogs.value = open.value.length;
  return open.value.map((each, index) => html`<${Modal} key=${index} ...${each} />`);
}

/** @param {{title: string, content: any, wide: boolean, close: any}} props */
function Modal({ title, content, wide, close }) {
  const ref = useRef();
  useEffect(() => {
    const before = document.activeElement;
    ref.current.showModal();
    ref.current.querySelector("[autofocus]")?.focus();
    return () => before instanceof HTMLElement && before.focus();
  }, []);
  return html`<dialog ref=${ref} class=${wide ? "wide" : ""} aria-label=${title} onCancel=${(event) => (event.preventDefault(), close())}
    onClick=${(event) => event.target === ref.current && close()}>
    <div class="dialog"><header><h2>${title}</h2><button type="button" class="icon" aria-label="Close" onClick=${() => close()}>×</button></header>${content(close)}</div>
  </dialog>`;
}

// States of a view ----------------------------------------------------------------------------------

/** An empty view, with a hint. @param {{title: string, children?: any}} props */
export function Empty({ title, children }) {
  return html`<div class="empty"><svg viewBox="0 0 48 48" width="48" height="48" aria-hidden="true"><path d="M24 6c-4 6 4 9 0 15s4 8 0 12M24 21c-6 2-8-4-12-4M24 25c6 2 8-4 12-4M10 41c5-6 9-7 14-7s9 1 14 7" fill="none" stroke="currentColor" stroke-width="2.2" stroke-linecap="round" /></svg>
    <h2>${title}</h2><div>${children}</div></div>`;
}

/** An error, with a button to try again. @param {{error: any, retry?: () => void}} props */
export function Failed({ error, retry }) {
  const code = error instanceof Problem ? error.code : "error";
  return html`<div class="failed" role="alert"><h2>Error</h2><p>${error?.message || String(error)}</p>
    <p class="muted"><code>${code}</code></p>${retry && html`<button type="button" onClick=${retry}>Try again</button>`}</div>`;
}

export function Loading() {
  return html`<p class="loading" role="status"><span class="spinner" aria-hidden="true"></span>Loading…</p>`;
}

/**
 * Load a value when the component appears and when `inputs` change.
 * @template T @param {(signal: AbortSignal) => Promise<T>} load @param {any[]} inputs
 * @returns {{value: T | undefined, error: any, isLoading: boolean, again: () => void, set: (value: T) => void}}
 */
export function useLoad(load, inputs) {
  const [state, set] = useState(/** @type {{value: T | undefined, error: any, isLoading: boolean}} */ ({ value: undefined, error: null, isLoading: true }));
  const [count, setCount] = useState(0);
  useEffect(() => {
    const abort = new AbortController();
    set((before) => ({ ...before, isLoading: true }));
    load(abort.signal).then(
      (value) => abort.signal.aborted || set({ value, error: null, isLoading: false }),
      (error) => abort.signal.aborted || set((before) => ({ ...before, error, isLoading: false })),
    );
    return () => abort.abort();
  }, [...inputs, count]);
  return { ...state, again: () => setCount((before) => before + 1), set: (value) => set({ value, error: null, isLoading: false }) };
}

/** A button that shows progress and errors. @param {any} props */
export function Do({ run, children, class: kind = "", ...rest }) {
  const [isBusy, setBusy] = useState(false);
  const act = async (event) => {
    setBusy(true);
    try {
      await run(event);
    } catch (error) {
      complain(error);
    } finally {
      setBusy(false);
    }
  };
  return html`<button type="button" class=${kind} disabled=${isBusy} aria-busy=${isBusy} onClick=${act} ...${rest}>${children}</button>`;
}
