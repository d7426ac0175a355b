/**
 * The keyboard: views bind keys, `?` shows the bound ones. Keys do nothing while the user types.
 */
import { signal, useLayoutEffect } from "./html.js";

/** @typedef {{keys: string, does: string, run: (event: KeyboardEvent) => void, group?: string}} Binding */

/** @type {import("./vendor/signals.mjs").Signal<Binding[]>} */
export const bindings = signal(/** @type {Binding[]} */ ([]));
/** Whether a dialog is open: then only its own keys work. */
export const dialogs = signal(0);
let prefix = "";
let prefixTimer = 0;

/** Bind keys for as long as the component lives. `keys` is a key (`n`, `Escape`) or two in a row (`g s`).
 * @param {Binding[]} mine @param {any[]} inputs */
export function useKeys(mine, inputs) {
  useLayoutEffect(() => { // bind before the screen is painted
    bindings.value = [...bindings.peek(), ...mine];
    return () => void (bindings.value = bindings.peek().filter((each) => !mine.includes(each)));
  }, inputs);
}

/** @param {EventTarget | null} target */
export function isTyping(target) {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

/** @param {KeyboardEvent} event */
export function onKey(event) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || dialogs.value) return;
  if (isTyping(event.target)) {
    if (event.key === "Escape") /** @type {HTMLElement} */ (event.target).blur();
    return;
  }
  const typed = prefix ? `${prefix} ${event.key}` : event.key;
  const all = bindings.peek();
  const found = all.findLast((each) => each.keys === typed);
  clearTimeout(prefixTimer);
  prefix = "";
  if (found) {
    event.preventDefault();
    found.run(event);
  } else if (all.some((each) => each.keys.startsWith(`${typed} `))) {
    prefix = typed;
    prefixTimer = setTimeout(() => (prefix = ""), 1200);
  }
}
