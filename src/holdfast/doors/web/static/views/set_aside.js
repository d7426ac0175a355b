/** Set aside. */
import { html } from "../html.js";
import { Empty } from "../ui.js";

function View() {
  return html`<${Empty} title="Set aside" />`;
}

/** @type {import("../views.js").View} */
export default { name: "set-aside", title: "Set aside", hotkey: "x", icon: "M2.500 9.500 4 3.500h8l1.500 6v3h-11zM2.500 9.500h3l1 1.500h3l1-1.500h3", View };
