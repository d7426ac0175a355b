/**
 * Sessions in memory, one signal each: a component that reads one draws again when that session changes.
 * An event updates known fields at once; the page then requests the sessions in sight, a few at a time.
 */
import { at, get, Problem } from "./api.js";
import { effect, signal, useEffect } from "./html.js";
import { generation, listen } from "./live.js";
import { after, isNewer } from "./reduce.js";

/** @typedef {import("./reduce.js").Session} Session */
/** @typedef {import("./vendor/signals.mjs").Signal<Session | null>} Head */

const MOST_KEPT = 20_000;
const AT_ONCE = 4; // requests
const SETTLE = 250; // milliseconds: a turn writes several entries in a row

/** @type {Map<string, Head>} */
const heads = new Map();
/** @type {Map<string, number>} */
const watched = new Map();
/** @type {Set<string>} */
const stale = new Set();
let busy = 0;
let timer = 0;

/** The signal of a session; null until it is known. @param {string} id @returns {Head} */
export function head(id) {
  let found = heads.get(id);
  if (!found) {
    found = signal(/** @type {Session | null} */ (null));
    heads.set(id, found);
    if (heads.size > MOST_KEPT) forget();
  }
  return found;
}

/** Store sessions that the server returned. @param {Session[]} sessions */
export function learn(sessions) {
  for (const session of sessions) {
    const known = head(session.session_id);
    if (isNewer(known.peek(), session)) known.value = session;
  }
}

/** Keep a session fresh for as long as the component lives. @param {string} id @returns {Session | null} */
export function useHead(id) {
  useEffect(() => watch(id), [id]);
  return head(id).value;
}

/** Keep a session fresh until the returned function is called. @param {string} id */
export function watch(id) {
  watched.set(id, (watched.get(id) ?? 0) + 1);
  if (!head(id).peek()) touch(id);
  return () => {
    const left = (watched.get(id) ?? 1) - 1;
    if (left > 0) watched.set(id, left);
    else watched.delete(id);
  };
}

/** Request a session again soon. @param {string} id */
export function touch(id) {
  stale.add(id);
  if (!timer) timer = setTimeout(refresh, SETTLE);
}

/** Request a session now. Raises Problem. @param {string} id */
export async function fetchHead(id) {
  const session = await get(at`/sessions/${id}`);
  learn([session]);
  return session;
}

function refresh() {
  timer = 0;
  for (const id of stale) {
    if (busy >= AT_ONCE) {
      timer = setTimeout(refresh, 50);
      return;
    }
    stale.delete(id);
    if (!watched.has(id) || head(id).peek()?.deleted) continue;
    busy += 1;
    fetchHead(id)
      .catch((problem) => {
        if (problem instanceof Problem && problem.status === 410) markDeleted(id, problem);
      })
      .finally(() => (busy -= 1));
  }
}

/** @param {string} id @param {Problem} problem */
function markDeleted(id, problem) {
  const known = head(id);
  known.value = { ...(known.peek() ?? { session_id: id, last_entry: 0 }), deleted: problem.facts };
}

function forget() {
  for (const [id, known] of heads) {
    if (heads.size <= MOST_KEPT * 0.8) return;
    if (!watched.has(id) && known.peek()) heads.delete(id);
  }
}

listen((events) => {
  for (const event of events) {
    const known = heads.get(event.session_id);
    const shown = known?.peek();
    if (known && shown) known.value = after(shown, event);
    if (watched.has(event.session_id)) touch(event.session_id);
  }
});
effect(() => {
  if (generation.value) for (const id of watched.keys()) touch(id);
});
