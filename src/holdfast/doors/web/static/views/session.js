/** Session. */
import { html } from "../html.js";
import { Empty } from "../ui.js";

function View() {
  return html`<${Empty} title="Session" />`;
}

/** @type {import("../views.js").View} */
export default { name: "session", title: "Session", View };
