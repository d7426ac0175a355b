/**
 * The address: `#/view/one/two?filter=value`. REST uses the paths, so the page uses the fragment.
 * It includes filters, so that a reload, a shared link and the back button restore them.
 */
import { computed, signal } from "./html.js";

/** @typedef {{view: string, args: string[], query: Record<string, string>}} Place */

const hash = signal(typeof location === "undefined" ? "" : location.hash);
if (typeof addEventListener !== "undefined") addEventListener("hashchange", () => (hash.value = location.hash));

/** @type {{readonly value: Place, peek(): Place}} */
export const place = computed(() => parse(hash.value));

/** @param {string} text @returns {Place} */
export function parse(text) {
  const [path, query] = split(text.replace(/^#?\/?/, ""));
  const [view, ...args] = path.split("/").filter(Boolean).map(decoded);
  return { view: view || "sessions", args, query: Object.fromEntries(new URLSearchParams(query)) };
}

/** A link to a place; empty filters are left out.
 * @param {string} view @param {string | string[]} [args] @param {Record<string, any>} [query] */
export function link(view, args = [], query = {}) {
  const path = [view, ...(Array.isArray(args) ? args : [args])].map(encodeURIComponent).join("/");
  const filled = Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const text = new URLSearchParams(filled.map(([name, value]) => [name, String(value)])).toString();
  return `#/${path}${text ? `?${text}` : ""}`;
}

/** Go there. @param {string} view @param {string | string[]} [args] @param {Record<string, any>} [query] */
export function go(view, args, query) {
  location.hash = link(view, args, query);
}

/** Change filters of the current address, without a step in the history. @param {Record<string, any>} changes */
export function refine(changes) {
  const { view, args, query } = place.peek();
  history.replaceState(null, "", link(view, args, { ...query, ...changes }));
  hash.value = location.hash;
}

/** @param {string} text @returns {[string, string]} */
function split(text) {
  const at = text.indexOf("?");
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
}

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
