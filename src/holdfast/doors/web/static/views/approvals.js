/** Approvals. */
import { html } from "../html.js";
import { Empty } from "../ui.js";

function View() {
  return html`<${Empty} title="Approvals" />`;
}

/** @type {import("../views.js").View} */
export default { name: "approvals", title: "Approvals", hotkey: "a", icon: "M3 8.5 6.5 12 13 4.5", View };
