/** The trace of a run, without a browser: `node --test`. */
import assert from "node:assert/strict";
import { test } from "node:test";

const STATIC = "../../../src/moorage/doors/web/static";
const { costOf, spans, summary } = await import(`${STATIC}/views/session/spans.js`);
const { precise } = await import(`${STATIC}/format.js`);

const at = (seconds) => new Date(Date.UTC(2026, 0, 5, 9, 30) + seconds * 1000).toISOString();
const RUN = { run_id: "r", created_at: at(0), started_at: at(1), settled_at: at(20), state: "completed", usage: { input_tokens: 5, output_tokens: 2 }, metadata: { cost_usd: 0.5 } };
let number = 0;
const entry = (kind, seconds, data) => ({ number: ++number, kind, at: at(seconds), data });
const said = (role, seconds, content) => ({ number: ++number, kind: "message", at: at(seconds), role, content });
const call = (id) => ({ type: "tool_call", id, name: "search", input: { q: "x" } });
const ENTRIES = [
  said("user", 0, "go"),
  entry("turn_started", 1, { turn_id: "t1", epoch: 1, attempt: 1 }),
  said("assistant", 2, [{ type: "text", text: "let me look" }, call("c1"), call("c2")]),
  said("tool", 4, [{ type: "tool_result", call_id: "c1", content: "found" }]),
  entry("approval_requested", 5, { approval_id: "a", question: "Go on?" }),
  entry("approval_decided", 9, { approval_id: "a", state: "approved", decision: "approve" }),
  entry("turn_ended", 10, { turn_id: "t1", epoch: 2, outcome: "completed", usage: { total_tokens: 7 } }),
  entry("error", 11, { error: "no" }),
  entry("turn_started", 12, { turn_id: "t2", epoch: 3, attempt: 2 }),
  entry("turn_ended", 20, { turn_id: "t2", epoch: 3, outcome: "completed", reason: null }),
  entry("run_settled", 20, { run_id: "r", outcome: "completed" }),
];
const CHILD = { run_id: "k", session_id: "s", agent_name: "helper", mode: "async_callback", created_at: at(6), started_at: at(7), settled_at: at(15), state: "failed", usage: { total_tokens: 3 } };

test("spans have their kind, depth, time and end, in the order they began", () => {
  const told = spans(RUN, ENTRIES, [CHILD]).map((each) => [each.kind, each.label, each.depth, (each.from - Date.parse(at(0))) / 1000, (each.to - each.from) / 1000, each.state]);
  assert.deepEqual(told, [
    ["run", "Run", 0, 0, 20, "completed"],
    ["message", "go", 1, 0, 0, "user"],
    ["turn", "Turn 1", 1, 1, 9, "completed"],
    ["message", "let me look", 2, 2, 0, "assistant"],
    ["tool", "search", 2, 2, 2, "completed"],
    ["tool", "search", 2, 2, 8, "abandoned"],
    ["approval", "Go on?", 2, 5, 4, "approved"],
    ["child", "helper", 2, 6, 9, "failed"],
    ["event", "Error: no", 1, 11, 0, "failed"],
    ["turn", "Turn 2", 1, 12, 8, "completed"],
  ]);
});

test("turns say that they were adopted or repeated, and how many tokens they took", () => {
  const [first, second] = spans(RUN, ENTRIES, []).filter((each) => each.kind === "turn");
  assert.deepEqual([first.note, first.tokens, second.note, second.tokens], ["adopted", 7, "attempt 2", undefined]);
});

test("a run that is open leaves its spans open", () => {
  const open = spans({ ...RUN, settled_at: null, state: "running" }, ENTRIES.slice(0, 5), [{ ...CHILD, settled_at: null }]);
  assert.deepEqual(open.filter((each) => each.to === null).map((each) => each.kind), ["run", "turn", "tool", "approval", "child"]);
});

test("the summary counts steps, tokens and cost where they are known", () => {
  const told = summary(spans(RUN, ENTRIES, [CHILD]));
  assert.deepEqual(told, { turns: 2, tools: 2, approvals: 1, children: 1, queued: 1000, tokens: 7, cost: 0.5, childTokens: 3, childCost: undefined });
  assert.equal(costOf({ cost_usd: "much" }), undefined);
});

test("measured spans have a decimal below ten seconds", () => {
  assert.deepEqual([143, 1420, 12_300].map(precise), ["143ms", "1.4s", "12s"]);
});
