/**
 * Agents, each with its definition as the text of its file. The server reports errors with their line and saves only a
 * valid definition. The page keeps unsaved text while the user looks at another agent.
 */
import { newSession } from "../actions.js";
import { at, del, get, post, Problem, put } from "../api.js";
import { plain, plural } from "../format.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { useKeys } from "../keys.js";
import { link, refine } from "../router.js";
import { complain, confirm, Copyable, Do, Empty, Failed, Loading, Mark, toast, useLoad } from "../ui.js";
import { toToml } from "../toml.js";

const CHECK_AFTER = 500; // milliseconds after the last key
const REDACTED = "[redacted]";
const NEW = "[agent]\nname = \"my-agent\"\ndescription = \"Its purpose\"\nkind = \"command\"\ncommand = [\"claude\", \"-p\"]\ntimeout = \"30m\"\n";
/** Unsaved text by the name of the agent; empty for a new one. @type {Map<string, string>} */
const drafts = new Map();

/** Load agents with their texts. Without the scope for variables the server redacts them. */
async function load() {
  const [all, full] = await Promise.all([get("/agents"), get("/definitions", { text: true }).catch(() => null)]);
  const known = new Map((full?.items ?? []).map((/** @type {any} */ each) => [each.definition.name, each.text ?? toToml(each.role, each.definition)]));
  const items = all.items.map((/** @type {any} */ each) => ({ ...each, text: known.get(each.name) ?? asText(each) }));
  return { items, problems: all.problems };
}

/** @param {any} agent */
function asText({ role, source: _, enabled, ...definition }) {
  return toToml(role, enabled ? definition : { ...definition, enabled });
}

/** @param {{query: Record<string, string>}} props */
function View({ query }) {
  const agents = useLoad(load, []);
  const items = agents.value?.items ?? [];
  const isNew = query.new === "1";
  const shown = isNew ? null : items.find((each) => each.name === query.name) ?? items[0];
  const step = (/** @type {number} */ by) => () => {
    const next = items[Math.max(0, Math.min(items.indexOf(shown) + by, items.length - 1))];
    if (next) refine({ name: next.name, new: "" });
  };
  useKeys([
    { keys: "j", does: "Next agent", run: step(1) },
    { keys: "k", does: "Previous agent", run: step(-1) },
    { keys: "n", does: "New agent", run: () => refine({ new: "1", name: "" }) },
    { keys: "Enter", does: "Start a session with this agent", run: () => shown && void newSession({ agent: shown.name }) },
  ], [shown?.name, items.length]);
  if (agents.error && !agents.value) return html`<${Failed} error=${agents.error} retry=${agents.again} />`;
  if (!agents.value) return html`<${Loading} />`;
  return html`<div class="stack">
    <header class="head"><h1>Agents</h1><button type="button" class="primary" onClick=${() => refine({ new: "1", name: "" })}>New agent</button></header>
    ${agents.value.problems.map((problem) => html`<p class="card problem" role="alert"><${Mark} status="failed" /><span><strong>Invalid definition.</strong> ${plain(problem.detail)}</span></p>`)}
    <div class="split">
      <${List} items=${items} shown=${shown} isNew=${isNew} />
      ${shown || isNew
        ? html`<${Agent} key=${shown?.name ?? ""} agent=${shown} onSaved=${(name) => (refine({ name, new: "" }), agents.again())} onGone=${() => (refine({ name: "" }), agents.again())} />`
        : html`<${Empty} title="No agents yet">An agent is a named definition: a program to start, its prompt, its limits.<//>`}
    </div></div>`;
}

/** @param {{items: any[], shown: any, isNew: boolean}} props */
function List({ items, shown, isNew }) {
  const to = (/** @type {any} */ changes) => (/** @type {Event} */ event) => (event.preventDefault(), refine(changes));
  return html`<ul class="pick" aria-label="Agents">
    ${isNew && html`<li><a href=${link("agents", [], { new: "1" })} aria-current="true" onClick=${to({})}><strong>New agent</strong></a></li>`}
    ${items.map((each) => html`<li key=${each.name}><a href=${link("agents", [], { name: each.name })} aria-current=${each === shown ? "true" : undefined} onClick=${to({ name: each.name, new: "" })}>
      <strong class=${each.enabled ? "" : "muted"}>${each.name}<span class="chip end">${each.enabled ? each.kind : "disabled"}</span></strong>
      <span class="muted clamp">${plain(each.description ?? (each.role === "agent" ? "" : each.role))}</span></a></li>`)}</ul>`;
}

// One agent -----------------------------------------------------------------------------------------

/** @param {{agent: any, onSaved: (name: string) => void, onGone: () => void}} props */
function Agent({ agent, onSaved, onGone }) {
  const name = agent?.name ?? "";
  const saved = agent?.text ?? NEW;
  const [text, setText] = useState(drafts.get(name) ?? saved);
  const [problem, setProblem] = useState(/** @type {Problem | null} */ (null));
  useEffect(() => void (text === saved ? drafts.delete(name) : drafts.set(name, text)), [text, saved]);
  useEffect(() => void (drafts.has(name) || setText(saved)), [saved]);
  const hides = text.includes(REDACTED);
  const isChanged = text !== saved;
  const keep = (/** @type {boolean} */ dry_run) =>
    agent ? put(at`/agents/${name}`, { definition: text, dry_run }) : post("/agents", { definition: text, dry_run });
  const verdict = useVerdict(text, isChanged && !hides, () => keep(true), setProblem);
  const save = async () => {
    if (hides) throw new Error("Your key may not see variables and headers; saving would lose them.");
    try {
      const kept = await keep(false);
      setProblem(null);
      drafts.delete(name);
      toast(`${kept.name} is saved; the next turn uses it`, { kind: "good" });
      onSaved(kept.name);
    } catch (error) {
      if (!(error instanceof Problem) || error.status === 0 || error.status === 403) throw error;
      setProblem(error);
      setTimeout(() => goTo(Number(error.facts.line ?? 0)));
    }
  };
  return html`<section class="card stack" aria-label=${agent ? name : "New agent"}>
    <header class="row"><h2>${agent ? name : "New agent"}</h2>${agent && html`<span class="chip">${agent.kind}</span>${agent.role !== "agent" && html`<span class="chip">${agent.role}</span>`}${!agent.enabled && html`<span class="chip">disabled</span>`}
      <span class="row end"><a class="button small" href=${link("sessions", [], { agent: name })}>Its sessions</a>
      <${Do} class="small" run=${() => newSession({ agent: name })}>Ask it…<//><${Do} class="small danger" run=${() => remove(agent, onGone)}>Remove<//></span>`}</header>
    ${agent?.kind === "builtin" && html`<p class="muted">It comes with Moorage. A definition that you save here replaces it; <code>enabled = false</code> disables it.</p>`}
    <${Editor} text=${text} problem=${problem} onText=${setText} onSave=${() => save().catch(complain)} />
    ${hides && html`<p class="warn">Your key may not see variables and headers, so saving would lose them. A key with the scope <code>launch</code> or <code>admin</code> shows them.</p>`}
    <div class="row"><${Do} class="primary" run=${save} disabled=${hides || (agent && !isChanged)} title="Ctrl+S">${agent ? "Save" : "Add"}<//>
      ${isChanged && html`<button type="button" onClick=${() => (setText(saved), setProblem(null))}>Undo changes</button>`}
      <span class="muted" role="status">${verdict || (agent ? "" : "The server saves it as a file in its agents folder.")}</span></div>
    <${Templates} onInsert=${(/** @type {string} */ snippet) => setText(`${text.trimEnd()}\n\n${snippet}`)} has=${text.includes("[agent.mcp_servers.moorage]")} />
  </section>`;
}

/** @param {any} agent @param {() => void} onGone */
async function remove(agent, onGone) {
  const agreed = await confirm(`Remove ${agent.name}?`, html`<p>Its sessions stay readable; no new run starts with it.</p>`, { yes: "Remove", danger: true });
  if (!agreed) return;
  await del(at`/agents/${agent.name}`);
  drafts.delete(agent.name);
  const canUndo = !agent.text.includes(REDACTED);
  const back = () => post("/agents", { definition: agent.text }).then(onGone, complain);
  toast(`${agent.name} is removed`, { kind: "good", ...(canUndo ? { action: { label: "Undo", run: back } } : {}) });
  onGone();
}

/** A text with numbered lines; the line with an error is marked. @param {{text: string, problem: Problem | null, onText: (text: string) => void, onSave: () => void}} props */
function Editor({ text, problem, onText, onSave }) {
  const area = useRef(), numbers = useRef();
  const wrong = Number(problem?.facts.line ?? 0);
  const lines = text.split("\n").length;
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    if ((event.ctrlKey || event.metaKey) && event.key === "s") {
      event.preventDefault();
      onSave();
    }
  };
  return html`<div class="editor ${problem ? "bad" : ""}">
      <pre ref=${numbers} aria-hidden="true">${Array.from({ length: lines }, (_, index) => html`<span class=${index + 1 === wrong ? "wrong" : ""}>${index + 1}\n</span>`)}</pre>
      <textarea ref=${area} class="code" aria-label="Definition, as TOML" aria-invalid=${problem ? "true" : undefined} aria-describedby=${problem ? "definition-problem" : undefined} spellcheck="false" autocapitalize="off" wrap="off"
        rows=${Math.min(Math.max(lines + 1, 8), 24)} value=${text} onInput=${(event) => onText(event.target.value)} onKeyDown=${onKeyDown} onScroll=${() => (numbers.current.scrollTop = area.current.scrollTop)}></textarea></div>
    ${problem && html`<p class="warn" role="alert" id="definition-problem"><${Mark} status="failed" /> ${wrong ? html`<strong>Line ${wrong}:</strong> ` : ""}${plain(problem.message)} <code>${problem.code}</code></p>`}`;
}

/** The server's verdict on a text, a moment after the last key. @param {string} text @param {boolean} isAsked @param {() => Promise<any>} ask @param {(problem: Problem | null) => void} tell */
function useVerdict(text, isAsked, ask, tell) {
  const [verdict, setVerdict] = useState("");
  useEffect(() => {
    setVerdict("");
    if (!isAsked) {
      tell(null);
      return undefined;
    }
    let isLate = false;
    const say = (/** @type {Problem | null} */ problem, /** @type {string} */ words) => isLate || (tell(problem), setVerdict(words));
    const timer = setTimeout(() => {
      ask().then(() => say(null, "Valid. Not saved yet."), (error) => {
        const isAnswer = error instanceof Problem && error.status !== 0 && error.status !== 403;
        say(isAnswer ? error : null, isAnswer ? "Not saved." : "");
      });
    }, CHECK_AFTER);
    return () => ((isLate = true), clearTimeout(timer));
  }, [text, isAsked]);
  return verdict;
}

/** Go to a line of the editor. @param {number} line */
function goTo(line) {
  const area = document.querySelector(".editor textarea");
  if (!line || !(area instanceof HTMLTextAreaElement)) return;
  const lines = area.value.split("\n");
  const start = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
  area.focus();
  area.setSelectionRange(start, start + (lines[line - 1] ?? "").length);
}

// MCP templates -------------------------------------------------------------------------------------

/** MCP configurations whose header makes the sessions that an agent starts its children. @param {string} origin */
export function templates(origin) {
  const headers = { "X-Agent-Session-Name": "${AGENT_SESSION_NAME}" };
  return [
    { name: "In the definition", told: "Moorage fills in the name when the agent starts, and passes the servers on as the agent expects them.",
      text: `[agent.mcp_servers.moorage]\nurl = "${origin}/mcp"\nheaders = { X-Agent-Session-Name = "\${AGENT_SESSION_NAME}" }\n` },
    { name: "HTTP, as JSON", told: "For programs that fill in variables themselves: .mcp.json, or --mcp-config.",
      text: JSON.stringify({ mcpServers: { moorage: { type: "http", url: `${origin}/mcp`, headers } } }, null, 2) },
    { name: "Standard input and output", told: "For programs that start their MCP servers; the environment passes the name.",
      text: JSON.stringify({ mcpServers: { moorage: { command: "moorage", args: ["mcp"], env: { MOORAGE_URL: origin, AGENT_SESSION_NAME: "${AGENT_SESSION_NAME}" } } } }, null, 2) },
  ];
}

/** @param {{onInsert: (snippet: string) => void, has: boolean}} props */
function Templates({ onInsert, has }) {
  const all = templates(location.origin);
  return html`<details><summary>${plural(all.length, "template")} for MCP, to let this agent start children</summary>
    <div class="stack">${all.map((each, index) => html`<section key=${each.name} class="stack tight"><div class="row"><h3>${each.name}</h3>
      ${index === 0 && html`<button type="button" class="small end" disabled=${has} onClick=${() => onInsert(each.text)}>Add to this definition</button>`}</div>
      <p class="muted">${each.told}</p><${Copyable} text=${each.text} /></section>`)}</div></details>`;
}

/** @type {import("../views.js").View} */
export default { name: "agents", title: "Agents", hotkey: "g", icon: "M8 2.5a2.5 2.5 0 1 1 0 5 2.5 2.5 0 0 1 0-5M3 13.5c.5-3 2.500-4 5-4s4.500 1 5 4", View };
