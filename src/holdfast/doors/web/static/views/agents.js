/** Agents. */
import { html } from "../html.js";
import { Empty } from "../ui.js";

function View() {
  return html`<${Empty} title="Agents" />`;
}

/** @type {import("../views.js").View} */
export default { name: "agents", title: "Agents", hotkey: "g", icon: "M8 2.5a2.5 2.5 0 1 1 0 5 2.5 2.5 0 0 1 0-5M3 13.5c.5-3 2.500-4 5-4s4.500 1 5 4", View };
