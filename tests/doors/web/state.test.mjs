/** The page's own logic, without a browser: `node --test`. */
import assert from "node:assert/strict";
import { test } from "node:test";

const STATIC = "../../../src/moorage/doors/web/static";
const { after, fits, Frames, isNewer } = await import(`${STATIC}/reduce.js`);
const { ago, oneLine, plain, saidBy, seconds, shortId, span, textOf, unmarked } = await import(`${STATIC}/format.js`);
const { link, parse } = await import(`${STATIC}/router.js`);
const { blocks, inline } = await import(`${STATIC}/markdown.js`);
const { tokens } = await import(`${STATIC}/highlight.js`);
const { foldedAtFirst, lanes, members, placed, ticks } = await import(`${STATIC}/views/family/layout.js`);
const { Entries, entryOf, gapIn, merged } = await import(`${STATIC}/views/session/entries.js`);
const { stretches } = await import(`${STATIC}/views/session/stretches.js`);
const { inWords, together } = await import(`${STATIC}/deletion.js`);

const AT = "2026-01-05T09:30:00Z";
const SESSION = { session_id: "a", state: "active", status: "idle", phase: "planning", last_entry: 4, version: 2, error_count: 0 };
const event = (type, data = {}, number = 5) => ({ id: 9, type, session_id: "a", timestamp: AT, data: { number, ...data } });

test("an event updates a session", () => {
  assert.equal(after(SESSION, event("turn_started")).status, "running");
  assert.equal(after(SESSION, event("phase", { from: "planning", to: "executing" })).phase, "executing");
  assert.equal(after(SESSION, event("suspended")).state, "suspended");
  assert.equal(after(SESSION, event("error", { error: "x" })).error_count, 1);
  const closed = after(SESSION, event("finalized", { outcome: "failed", summary: "no" }));
  assert.deepEqual([closed.state, closed.status, closed.phase, closed.summary], ["failed", "failed", "failed", "no"]);
  assert.equal(after({ ...SESSION, state: "created", status: "created" }, event("message", { role: "user" })).state, "active");
});

test("a known event changes nothing", () => {
  assert.equal(after(SESSION, event("turn_started", {}, 4)), SESSION);
});

test("a deleted session stays deleted after a late answer", () => {
  const gone = after(SESSION, { ...event("session_deleted"), data: { deleted_by: "ann" } });
  assert.equal(gone.deleted.deleted_by, "ann");
  assert.equal(isNewer(gone, { ...SESSION, last_entry: 99 }), false);
});

test("an older answer does not overwrite an event", () => {
  assert.equal(isNewer({ ...SESSION, last_entry: 7 }, { ...SESSION, last_entry: 5 }), false);
  assert.equal(isNewer({ ...SESSION, last_entry: 7 }, { ...SESSION, last_entry: 7 }), true);
});

test("a session fits filters by each of its fields", () => {
  assert.ok(fits({ ...SESSION, agent_name: "x" }, { status: "idle", agent: "x" }));
  assert.ok(!fits(SESSION, { status: "running" }));
  assert.ok(!fits(SESSION, { name_prefix: "b" }));
});

test("frames are complete wherever the stream is split", () => {
  const text = 'retry: 1000\nid: 2\nevent: message\ndata: {"a":1}\n\n:\nid: 3\nevent: phase\ndata: {"b":2}\n\n';
  for (let size = 1; size <= text.length; size += 1) {
    const frames = new Frames(), found = [];
    for (let at = 0; at < text.length; at += size) found.push(...frames.push(text.slice(at, at + size)));
    assert.deepEqual(found.map((each) => [each.id, each.type, each.data]), [["2", "message", '{"a":1}'], ["3", "phase", '{"b":2}']]);
    assert.equal(frames.id, "3");
  }
});

test("an address survives a round trip", () => {
  const place = { view: "sessions", args: ["a/b", "c d"], query: { q: "x & y", state: "active" } };
  assert.deepEqual(parse(link(place.view, place.args, place.query)), place);
  assert.deepEqual(parse(""), { view: "sessions", args: [], query: {} });
  assert.equal(link("sessions", [], { q: "", state: null }), "#/sessions");
  assert.deepEqual(parse("#/session/%E0%A4%A").args, ["%E0%A4%A"]);
});

test("spans, ages and durations are readable", () => {
  assert.deepEqual([span(0.25), span(59), span(61), span(3600), span(90061), span(null)], ["250ms", "59s", "1m 1s", "1h", "1d 1h", "–"]);
  assert.deepEqual([ago(AT, Date.parse(AT) + 90_000), ago(AT, Date.parse(AT) - 7200_000), ago(AT, Date.parse(AT))], ["1m ago", "in 2h", "now"]);
  assert.deepEqual([seconds("90"), seconds("30m"), seconds("1.5h"), seconds("soon")], [90, 1800, 5400, null]);
  assert.equal(shortId("01a1e784-c143-720a-8f86-37eadd92a8a1"), "…dd92a8a1");
});

test("marks of writing direction are visible, and a line is one line", () => {
  assert.equal(plain("a\u202Eb\u2066c"), "a⟨U+202E⟩b⟨U+2066⟩c");
  assert.equal(oneLine(" a\n\n b\u202E "), "a b⟨U+202E⟩");
  assert.equal(oneLine("x".repeat(1_000_000)).length, 201);
  assert.equal(textOf([{ type: "text", text: "a" }, { type: "tool_call" }, { type: "text", text: "b" }]), "a\nb");
  const call = { type: "tool_call", id: "1", name: "weather", input: { city: "Oslo" } };
  const parts = [{ type: "text", text: "Let me look." }, call, { type: "tool_result", call_id: "1", output: { celsius: 4 } }, { type: "image" }];
  assert.equal(saidBy(parts), 'Let me look. → weather({"city":"Oslo"}) ← {"celsius":4} [image]');
  assert.equal(saidBy([{ type: "tool_result", call_id: "1", content: "cold" }, { type: "tool_result", call_id: "2" }]), "← cold ← null");
  assert.equal(saidBy("hello"), "hello");
  assert.deepEqual(["It touches **one** node.", "# Plan", "- `node-3` first", "2 ** 3", "snake_case_name"].map(unmarked), ["It touches one node.", "Plan", "node-3 first", "2 ** 3", "snake_case_name"]);
});

test("Markdown is parsed into blocks", () => {
  const kinds = blocks("# A\n\ntext\nmore\n\n- x\n  y\n- z\n\n```js\n<b>\n```\n\n> q\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n---").map((each) => each.kind);
  assert.deepEqual(kinds, ["heading", "paragraph", "list", "code", "quote", "table", "rule"]);
  assert.equal(blocks("```\nnever closed\n<script>")[0].text, "never closed\n<script>");
});

test("only safe links are links", () => {
  const hrefs = (text) => inline(text).filter((each) => each.kind === "link" || each.kind === "image").map((each) => each.href);
  assert.deepEqual(hrefs("[a](https://b.c) [x](javascript:alert(1)) [y](data:text/html,z) ![p](http://q/r.png) https://d.e/f."), ["https://b.c", "http://q/r.png", "https://d.e/f"]);
  assert.deepEqual(hrefs("[a]( javascript:x) [b](JaVaScRiPt:x) [c](vbscript:x) [d](//evil)"), []);
});

test("Markdown parsing loses no text", () => {
  const text = "a **b** `c` _d_ ~~e~~ f*g h_i_j [k](l) <script>alert(1)</script>";
  const back = inline(text).map((each) => each.text).join("");
  for (const word of ["a ", "b", "c", "d", "e", "f*g", "h_i_j", "[k](l)", "<script>alert(1)</script>"]) assert.ok(back.includes(word), word);
});

test("hostile Markdown takes linear time", () => {
  for (const text of ["[".repeat(24_000), "**".repeat(12_000), "`".repeat(24_001), "> ".repeat(400), "![](".repeat(6000), "_a".repeat(12_000), "| ".repeat(12_000)]) {
    const began = performance.now();
    blocks(text).forEach((each) => inline(each.text ?? ""));
    assert.ok(performance.now() - began < 1000, `${text.slice(0, 8)}… took ${performance.now() - began} ms`);
  }
});

test("coloured code is the same code", () => {
  const code = 'def f(x):  # "no string"\n    return "s" + str(1.5)\n';
  assert.equal(tokens(code, "python").map(([, text]) => text).join(""), code);
  assert.deepEqual(tokens(code, "python").filter(([kind]) => kind === "com").map(([, text]) => text), ['# "no string"']);
});

const tree = (id, ...children) => ({ session: { session_id: id, status: "idle", created_at: AT, last_activity_at: AT }, children });

test("sessions of a tree do not overlap, and parents are between their children", () => {
  const family = tree("r", tree("a", tree("a1"), tree("a2")), tree("b"));
  const { nodes } = placed(family, new Set());
  const at = Object.fromEntries(nodes.map((node) => [node.id, node]));
  assert.equal(new Set(nodes.map((node) => `${node.x} ${node.y}`)).size, 5);
  assert.equal(at.a.y, (at.a1.y + at.a2.y) / 2);
  assert.ok(at.r.x < at.a.x && at.a.x < at.a1.x);
});

test("a folded branch has its number of sessions", () => {
  const family = tree("r", tree("a", tree("a1"), tree("a2", tree("a21"))), tree("b"));
  const { nodes } = placed(family, new Set(["a"]));
  assert.deepEqual(nodes.map((node) => node.id), ["r", "a", "b"]);
  assert.equal(nodes[1].below, 3);
  const large = tree("r", ...Array.from({ length: 50 }, (_, index) => tree(`${index}`, tree(`${index}a`), tree(`${index}b`))));
  assert.equal(placed(large, foldedAtFirst(large)).nodes.length, 51);
  assert.equal(members(large).length, 151);
});

test("delivered callbacks are arrows from the child's lane to the parent's", () => {
  const run = (id, session, more) => ({ run_id: id, session_id: session, created_at: AT, started_at: AT, settled_at: AT, mode: "async_callback", parent_session_id: "r", callback: "delivered", ...more });
  const sessions = members(tree("r", tree("a"), tree("b"), tree("c")));
  const drawn = lanes(sessions, [run("1", "a"), run("2", "b", { callback: "parent_closed" }), run("3", "c", { mode: "sync" }), run("4", "unknown")], Date.parse(AT));
  assert.deepEqual(drawn.arrows.map((arrow) => [arrow.from, arrow.to]), [[1, 0]]);
  assert.equal(drawn.bars.length, 3);
});

test("an axis has a handful of round ticks", () => {
  for (const whole of [1000, 61_000, 3600_000, 86_400_000 * 9]) {
    const found = ticks(Date.parse(AT), Date.parse(AT) + whole);
    assert.ok(found.length >= 1 && found.length <= 7, `${whole}: ${found.length}`);
  }
});

/** Entries of a session whose log is served by `answer`, which gets the query of each request. */
function entriesOf(answer) {
  globalThis.fetch = async (path) => new Response(JSON.stringify(await answer(new URL(path, "http://x").searchParams)), { headers: { "Content-Type": "application/json" } });
  return new Entries("a");
}
const logOf = (...numbers) => numbers.map((number) => ({ number, kind: "phase", at: AT, data: {} }));
const newestPage = (numbers, next = null) => ({ items: logOf(...numbers).reverse(), next });
const between = (query) => ({ items: logOf(...[...Array(Number(query.get("before"))).keys()].filter((number) => number > Number(query.get("after"))).slice(0, 1000)), next: null });
const numbersOf = (entries) => entries.all.peek().map((entry) => entry.number);

test("entries that arrive while the first page loads are kept", async () => {
  let send;
  const entries = entriesOf(() => new Promise((resolve) => (send = resolve)));
  const loading = entries.load();
  entries.hear([event("phase", {}, 3)]);
  assert.deepEqual(numbersOf(entries), []);
  send(newestPage([1, 2]));
  await loading;
  assert.deepEqual(numbersOf(entries), [1, 2, 3]);
});

test("missing entries are loaded, however many there are", async () => {
  const entries = entriesOf((query) => (query.get("newest_first") ? newestPage([1, 2]) : between(query)));
  await entries.load();
  entries.hear([event("phase", {}, 2500)]);
  while (entries.isFilling) await new Promise((resolve) => setTimeout(resolve));
  assert.equal(numbersOf(entries).length, 2500);
  assert.equal(gapIn(entries.all.peek()), null);
});

test("missing entries are loaded after a failed attempt", async () => {
  let isDown = true;
  const entries = entriesOf((query) => {
    if (query.get("newest_first")) return newestPage([1]);
    if (isDown) throw new TypeError("no connection");
    return between(query);
  });
  await entries.load();
  for (const number of [4, 5]) {
    entries.hear([event("phase", {}, number)]);
    while (entries.isFilling) await new Promise((resolve) => setTimeout(resolve));
    isDown = false;
  }
  assert.deepEqual(numbersOf(entries), [1, 2, 3, 4, 5]);
});

test("a page far behind the known entries replaces them", async () => {
  let page = newestPage([1, 2]);
  const entries = entriesOf(() => page);
  await entries.load();
  page = newestPage([901, 902], "901");
  await entries.load();
  assert.deepEqual([numbersOf(entries), entries.hasEarlier.peek()], [[901, 902], true]);
  page = newestPage([902, 903], "902");
  await entries.load();
  assert.deepEqual([numbersOf(entries), entries.hasEarlier.peek()], [[901, 902, 903], true]);
});

test("merged entries are in order and unique", () => {
  const entry = (number) => ({ number });
  assert.deepEqual(merged([entry(1), entry(2)], [entry(3)]).map((each) => each.number), [1, 2, 3]);
  assert.deepEqual(merged([entry(2), entry(5)], [entry(1), entry(2), entry(4)]).map((each) => each.number), [1, 2, 4, 5]);
  const told = entryOf({ id: 9, type: "phase", session_id: "a", timestamp: AT, data: { number: 3, by: "x", interface: "rest", from: "a", to: "b" } });
  assert.deepEqual([told.number, told.kind, told.data], [3, "phase", { from: "a", to: "b" }]);
});

test("phases fill the time from creation to now", () => {
  const begin = Date.parse(AT);
  const at = (after) => new Date(begin + after * 1000).toISOString();
  const entries = [{ kind: "phase", at: at(10), data: { from: "initializing", to: "planning" } }, { kind: "suspended", at: at(20), data: {} }];
  const found = stretches({ created_at: AT, phase: "planning", state: "suspended" }, entries, begin + 60_000);
  assert.deepEqual(found.map((each) => [each.phase, (each.to - each.from) / 1000, each.isPaused]), [["initializing", 10, false], ["planning", 10, false], ["planning", 40, true]]);
});

test("phases of the same millisecond, or of a clock that stepped back, are shown", () => {
  const at = (after) => new Date(Date.parse(AT) + after).toISOString();
  const change = (from, to, after) => ({ kind: "phase", at: at(after), data: { from, to } });
  const entries = [change("initializing", "planning", 5), change("planning", "executing", 5), change("executing", "validating", 2)];
  const found = stretches({ created_at: AT, phase: "validating", state: "active" }, entries, Date.parse(AT) + 60);
  assert.deepEqual(found.map((each) => [each.phase, each.to - each.from]), [["initializing", 5], ["planning", 0], ["executing", 0], ["validating", 55]]);
});

test("an approval and the phase that it restores are one stretch", () => {
  const at = (after) => new Date(Date.parse(AT) + after).toISOString();
  const entries = [
    { kind: "phase", at: at(0), data: { from: "initializing", to: "planning" } },
    { kind: "approval_requested", at: at(5), data: {} },
    { kind: "phase", at: at(5), data: { from: "planning", to: "approval" } },
    { kind: "approval_decided", at: at(9), data: {} },
    { kind: "phase", at: at(9), data: { from: "approval", to: "planning" } },
  ];
  const found = stretches({ created_at: AT, phase: "planning", state: "active" }, entries, Date.parse(AT) + 20);
  assert.deepEqual(found.map((each) => [each.phase, each.to - each.from]), [["initializing", 0], ["planning", 5], ["approval", 4], ["planning", 11]]);
});

test("questions that follow each other are one stretch", () => {
  const at = (after) => new Date(Date.parse(AT) + after).toISOString();
  const entries = [
    { kind: "phase", at: at(5), data: { from: "planning", to: "approval" } },
    { kind: "approval_requested", at: at(6), data: {} },
    { kind: "approval_requested", at: at(9), data: {} },
    { kind: "approval_decided", at: at(11), data: {} },
  ];
  const found = stretches({ created_at: AT, phase: "approval", state: "suspended" }, entries, Date.parse(AT) + 20);
  assert.deepEqual(found.map((each) => [each.phase, each.to - each.from, each.isPaused]), [["planning", 5, false], ["approval", 15, true]]);
});

test("overlapping deletions count once", () => {
  const one = { session_id: "a", session_ids: ["a", "b"], running: ["b"], messages: 3, runs: 1, checkpoints: 0 };
  const other = { session_id: "b", session_ids: ["b"], running: ["b"], messages: 1, runs: 1, checkpoints: 0 };
  const sum = together([one, other]);
  assert.deepEqual([sum.roots, sum.ids, sum.messages], [["a"], ["a", "b"], 3]);
  assert.equal(inWords(sum), "Deletes 2 sessions, 1 running");
});
