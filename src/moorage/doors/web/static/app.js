/** The frame: navigation, banner, keys, dialogs, and the view that the address names. */
import { hasKey, keyWanted, useKey } from "./api.js";
import { ago, plural } from "./format.js";
import { effect, html, render, useEffect, useRef } from "./html.js";
import { bindings, onKey, useKeys } from "./keys.js";
import { connection, follow, generation, lostAt, retry } from "./live.js";
import { go, link, place } from "./router.js";
import { theme, toggle } from "./theme.js";
import { ask, Dialogs, Empty, Loading, now, toast, Toasts } from "./ui.js";
import { VIEWS } from "./views.js";
import "./gone.js";

function App() {
  const { view, args, query } = place.value;
  const shown = VIEWS.find((each) => each.name === view);
  const main = useRef();
  useKeys([
    { keys: "?", does: "Show these keys", run: showKeys, group: "Everywhere" },
    { keys: "t", does: "Light or dark", run: toggle, group: "Everywhere" },
    ...VIEWS.filter((each) => each.hotkey && each.icon).map((each) => ({ keys: `g ${each.hotkey}`, does: each.title, run: () => go(each.name), group: "Go to" })),
  ], []);
  useEffect(() => void main.current?.scrollTo(0, 0), [view, args.join("/")]);
  return html`
    <a class="skip" href=${location.hash || "#/"} onClick=${(event) => (event.preventDefault(), main.current.focus())}>Skip to content</a>
    <${Nav} current=${view} />
    <div class="page">
      <${Banner} />
      <main ref=${main} tabindex="-1" id="main">
        ${!generation.value ? html`<${Loading} />` : shown ? html`<${shown.View} key=${view + args.join("/")} args=${args} query=${query} />` : html`<${Empty} title="View not found"><a href="#/sessions">See the sessions</a><//>`}
      </main>
    </div>
    <${Dialogs} /><${Toasts} />`;
}

/** @param {{current: string}} props */
function Nav({ current }) {
  const here = current === "session" || current === "family" ? "sessions" : current;
  return html`<nav class="nav" aria-label="Views">
    <a class="brand" href="#/sessions"><img src="/web/icon.svg" alt="" width="24" height="24" /><span>Moorage</span></a>
    <ul>${VIEWS.filter((each) => each.icon).map((each) => html`<li key=${each.name}>
      <a href=${link(each.name)} aria-current=${here === each.name ? "page" : undefined} title=${each.title}>
        <svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true"><path d=${each.icon} fill="none" stroke="currentColor" stroke-width="1.5" stroke-linecap="round" stroke-linejoin="round" /></svg>
        <span>${each.title}</span><${Count} of=${each} /></a></li>`)}</ul>
    <div class="nav-end">
      <${Pulse} />
      <button type="button" class="icon" title="Keys (?)" aria-label="Show keys" onClick=${showKeys}>?</button>
      <button type="button" class="icon" title="Light or dark (t)" aria-label=${theme.value === "dark" ? "Light theme" : "Dark theme"} onClick=${toggle}>${theme.value === "dark" ? "☀" : "☾"}</button>
      ${hasKey.value && html`<button type="button" class="icon" title="Forget the key" aria-label="Forget the key" onClick=${() => (useKey(null), location.reload())}>⏏</button>`}
    </div>
  </nav>`;
}

/** @param {{of: import("./views.js").View}} props */
function Count({ of }) {
  const count = of.badge?.() ?? 0;
  return count > 0 && html`<span class="count" aria-label=${`, ${count} waiting`}>${count > 99 ? "99+" : count}</span>`;
}

function Pulse() {
  const words = { live: "Live", lost: "Offline", connecting: "Connecting" }[connection.value];
  return html`<span class="pulse ${connection.value}" role="status" title=${words}><i aria-hidden="true"></i><span>${words}</span></span>`;
}

function Banner() {
  if (connection.value !== "lost" || !lostAt.value || now.value - lostAt.value < 1500) return null;
  return html`<div class="banner" role="alert">
    <span>Connection lost ${ago(new Date(lostAt.value).toISOString(), now.value)}. This view may be out of date; the page reconnects by itself.</span>
    <button type="button" class="small" onClick=${retry}>Retry now</button></div>`;
}

function showKeys() {
  const groups = Map.groupBy ? Map.groupBy(bindings.peek(), (each) => each.group || "Here") : new Map([["Here", bindings.peek()]]);
  void ask("Keys", () => html`<div class="keys">${[...groups].reverse().map(([group, all]) => html`
    <section key=${group}><h3>${group}</h3><dl>${all.map((each) => html`<div key=${each.keys}>
      <dt>${each.keys.split(" ").map((key) => html`<kbd>${key === " " ? "Space" : key}</kbd>`)}</dt><dd>${each.does}</dd></div>`)}</dl></section>`)}</div>`);
}

/** The form that asks for a key. */
function KeyEntry({ close, why }) {
  const take = (event) => {
    event.preventDefault();
    const key = new FormData(event.target).get("key");
    if (key) {
      close();
      useKey(String(key).trim());
    }
  };
  return html`<form class="dialog-body" onSubmit=${take}>
    <p>${why}</p>
    <label>Key <input name="key" type="password" autocomplete="off" spellcheck="false" autofocus placeholder="moor_…" required /></label>
    <p class="muted">Stored for this tab only. <code>moorage keys create</code> creates one; deciding approvals needs the scope <code>approve</code>.</p>
    <footer><button type="submit" class="primary">Use this key</button></footer></form>`;
}

effect(() => {
  if (keyWanted.value) {
    const why = keyWanted.value;
    void ask("This server requires a key", (close) => html`<${KeyEntry} close=${close} why=${why} />`, { stays: true }).then(() => keyWanted.peek() === why && (keyWanted.value = null));
  }
});

effect(() => {
  const { view, args } = place.value;
  const shown = VIEWS.find((each) => each.name === view);
  const waiting = VIEWS.reduce((sum, each) => sum + (each.name === "approvals" ? each.badge?.() ?? 0 : 0), 0);
  document.title = `${waiting ? `(${waiting}) ` : ""}${args[0] ? `${args[0]} · ` : ""}${shown?.title ?? "Moorage"} · Moorage`;
});

addEventListener("keydown", onKey);
const root = /** @type {HTMLElement} */ (document.getElementById("app"));
root.replaceChildren();
render(html`<${App} />`, root);
void follow((count) => toast(count ? `Reconnected: ${plural(count, "missed event")} loaded` : "Reconnected: no events missed", { kind: "good" }));
