/** Analytics. */
import { html } from "../html.js";
import { Empty } from "../ui.js";

function View() {
  return html`<${Empty} title="Analytics" />`;
}

/** @type {import("../views.js").View} */
export default { name: "analytics", title: "Analytics", hotkey: "n", icon: "M2.500 13.500v-5m4 5v-9m4 9v-6m3.500 6h-13", View };
