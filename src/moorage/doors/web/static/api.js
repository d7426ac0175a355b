/**
 * REST, as other clients use it. A refusal is a `Problem` with the server's code and message.
 * If keys are required, the first 401 asks for one. The page stores it for this tab and repeats the refused requests.
 */
import { signal } from "./html.js";

const KEY = "moorage.key";
const HOLDER = "moorage.holder";

/** The reason why a key is required; null otherwise. @type {import("./vendor/signals.mjs").Signal<string | null>} */
export const keyWanted = signal(/** @type {string | null} */ (null));
/** Whether this tab has a key. */
export const hasKey = signal(Boolean(storage()?.getItem(KEY)));
/** @type {Array<() => void>} */
let waiting = [];

export class Problem extends Error {
  /** @param {number} status @param {Record<string, any>} document */
  constructor(status, document) {
    super(document.detail || document.title || `The server answered ${status}.`);
    this.status = status;
    /** @type {string} */
    this.code = document.code || "error";
    /** The facts of the error; the REST reference lists them. */
    this.facts = document;
  }
}

/** Use this key from now on; null forgets it. @param {string | null} key */
export function useKey(key) {
  if (key) storage()?.setItem(KEY, key);
  else storage()?.removeItem(KEY);
  hasKey.value = Boolean(key);
  keyWanted.value = null;
  const woken = waiting;
  waiting = [];
  for (const wake of woken) wake();
}

/** The headers of every request. @returns {Record<string, string>} */
export function headers() {
  const key = storage()?.getItem(KEY);
  return {
    "X-Moorage-Interface": "web",
    "X-Moorage-Holder": holder(),
    ...(key ? { Authorization: `Bearer ${key}` } : {}),
  };
}

/**
 * Ask the server. Raises Problem; its status is 0 if the server cannot be reached.
 * @param {string} verb @param {string} path @param {{query?: Record<string, any>, body?: any, headers?: Record<string, string>, signal?: AbortSignal}} [options]
 * @returns {Promise<any>}
 */
export async function ask(verb, path, options = {}) {
  const response = await send(verb, path, options);
  const text = await response.text();
  return text && /\/(?:problem\+)?json/.test(response.headers.get("content-type") || "") ? JSON.parse(text) : text;
}

/**
 * Return the raw response, for streams and files. Raises Problem.
 * @param {string} verb @param {string} path @param {{query?: Record<string, any>, body?: any, headers?: Record<string, string>, signal?: AbortSignal}} [options]
 */
export async function send(verb, path, options = {}) {
  for (;;) {
    const response = await reach(verb, path, options);
    if (response.ok) return response;
    const problem = await problemOf(response);
    if (problem.status !== 401) throw problem;
    await keyFor(problem);
  }
}

/** @param {string} path @param {Record<string, any>} [query] @param {AbortSignal} [signal] */
export const get = (path, query, signal) => ask("GET", path, { query, signal });
/** Each creating request has an idempotency key, so that a repeated request creates nothing twice.
 * @param {string} path @param {any} [body] */
export const post = (path, body = {}) => ask("POST", path, { body, headers: { "Idempotency-Key": crypto.randomUUID() } });
/** @param {string} path @param {any} body @param {Record<string, any>} [query] */
export const put = (path, body, query) => ask("PUT", path, { body, query });
/** @param {string} path @param {any} body */
export const patch = (path, body) => ask("PATCH", path, { body });
/** @param {string} path @param {Record<string, any>} [query] */
export const del = (path, query) => ask("DELETE", path, { query });
/** A path with its values encoded: `at`/sessions/${id}``.
 * @param {TemplateStringsArray} strings @param {...any} values */
export function at(strings, ...values) {
  return strings.reduce((path, text, index) => path + encodeURIComponent(values[index - 1]) + text);
}

/** @param {string} verb @param {string} path @param {any} options */
async function reach(verb, path, { query = {}, body, headers: more = {}, signal: abort }) {
  const filled = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const text = new URLSearchParams(filled.map(([name, value]) => [name, String(value)])).toString();
  try {
    return await fetch(text ? `${path}?${text}` : path, {
      method: verb,
      body: body === undefined ? undefined : JSON.stringify(body),
      headers: { ...headers(), ...(body === undefined ? {} : { "Content-Type": "application/json" }), ...more },
      signal: abort,
    });
  } catch (error) {
    if (abort?.aborted) throw error;
    throw new Problem(0, { code: "server_unreachable", detail: "The server cannot be reached. Try again." });
  }
}

/** @param {Response} response */
async function problemOf(response) {
  const text = await response.text();
  try {
    return new Problem(response.status, JSON.parse(text));
  } catch {
    return new Problem(response.status, { detail: text.slice(0, 300) });
  }
}

/** Wait until there is a key. @param {Problem} problem */
function keyFor(problem) {
  keyWanted.value = hasKey.value ? `The server does not accept this key. ${problem.message}` : problem.message;
  return new Promise((resolve) => waiting.push(() => resolve(undefined)));
}

/** The holder name of this tab: it keeps its hold after a reload. */
function holder() {
  const kept = storage()?.getItem(HOLDER);
  if (kept) return kept;
  const made = `web-${crypto.randomUUID().slice(0, 8)}`;
  storage()?.setItem(HOLDER, made);
  return made;
}

function storage() {
  try {
    return typeof sessionStorage === "undefined" ? null : sessionStorage;
  } catch {
    return null; // storage is blocked; the page works without it
  }
}
