/** Launchers. */
import { html } from "../html.js";
import { Empty } from "../ui.js";

function View() {
  return html`<${Empty} title="Launchers" />`;
}

/** @type {import("../views.js").View} */
export default { name: "launchers", title: "Launchers", hotkey: "l", icon: "M8 2c3 2 3 6 2 9H6c-1-3-1-7 2-9M6 9l-2.500 3H6m4-3 2.500 3H10", View };
