/** Light or dark: as the system says, until the viewer says otherwise. */
import { effect, signal } from "./html.js";

const KEPT = "moorage.theme";
const prefersDark = matchMedia("(prefers-color-scheme: dark)");
const system = signal(prefersDark.matches ? "dark" : "light");
prefersDark.addEventListener("change", () => (system.value = prefersDark.matches ? "dark" : "light"));

/** What the viewer chose: `light`, `dark` or null for the system's. */
export const chosen = signal(/** @type {string | null} */ (read()));
/** What is shown. */
export const theme = signal("light");

export function toggle() {
  chosen.value = theme.value === "dark" ? "light" : "dark";
  try {
    localStorage.setItem(KEPT, chosen.value);
  } catch {
    // a browser that keeps nothing: it is chosen until the page is closed
  }
}

effect(() => {
  theme.value = chosen.value ?? system.value;
  document.documentElement.dataset.theme = theme.value;
});

function read() {
  try {
    return localStorage.getItem(KEPT);
  } catch {
    return null;
  }
}
