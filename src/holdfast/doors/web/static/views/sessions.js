/** Sessions. */
import { html } from "../html.js";
import { Empty } from "../ui.js";

function View() {
  return html`<${Empty} title="Sessions" />`;
}

/** @type {import("../views.js").View} */
export default { name: "sessions", title: "Sessions", hotkey: "s", icon: "M2.500 4h11m-11 4h11m-11 4h7", View };
