/** Family. */
import { html } from "../html.js";
import { Empty } from "../ui.js";

function View() {
  return html`<${Empty} title="Family" />`;
}

/** @type {import("../views.js").View} */
export default { name: "family", title: "Family", View };
