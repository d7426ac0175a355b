/**
 * The views, in the order of the navigation. To add one, write `views/NAME.js` with a `View` as its default export and
 * put it into this list. The key `g` followed by its `hotkey` opens it.
 */
import agents from "./views/agents.js";
import analytics from "./views/analytics.js";
import approvals from "./views/approvals.js";
import deadLetters from "./views/dead_letters.js";
import family from "./views/family.js";
import launchers from "./views/launchers.js";
import session from "./views/session.js";
import sessions from "./views/sessions.js";

/**
 * @typedef {object} View
 * @property {string} name the first part of its address: `#/name`
 * @property {string} title in the navigation and in the tab
 * @property {string} [hotkey] after `g`
 * @property {string} [icon] the path of its icon, 16 × 16; without one it is not in the navigation
 * @property {(props: {args: string[], query: Record<string, string>}) => any} View the component
 * @property {() => number} [badge] a number beside its name; reads signals
 */

/** @type {View[]} */
export const VIEWS = [sessions, approvals, agents, launchers, analytics, deadLetters, family, session];
