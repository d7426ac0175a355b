/** The logic of approvals, agents and analytics, without a browser: `node --test`. */
import assert from "node:assert/strict";
import { test } from "node:test";

const STATIC = "../../../src/moorage/doors/web/static";
const { diff, inWords } = await import(`${STATIC}/diff.js`);
const { toToml } = await import(`${STATIC}/toml.js`);
const { axis, percent, targetOf, told } = await import(`${STATIC}/measures.js`);
const { before, mostUrgent } = await import(`${STATIC}/views/approvals/order.js`);

const shape = (changes) => changes.map(({ kind, text }) => ({ same: " ", gone: "-", new: "+" })[kind] + text);

test("a difference has kept, removed and added lines in order", () => {
  assert.deepEqual(shape(diff("a\nb\nc\nd", "a\nc\nx\nd")), [" a", "-b", " c", "+x", " d"]);
  assert.deepEqual(shape(diff("a", "a")), [" a"]);
  assert.equal(inWords(diff("a\nb", "a\nb")), "");
  assert.equal(inWords(diff("a\nb\nc", "a\nx\ny")), "2 lines added, 2 removed");
  assert.equal(inWords(diff("a", "a\nb")), "1 line added");
});

test("a difference restores both texts", () => {
  let seed = 7;
  const random = (below) => (seed = (seed * 48271) % 2147483647) % below;
  for (let round = 0; round < 200; round++) {
    const text = () => Array.from({ length: random(9) }, () => "abc"[random(3)]).join("\n");
    const one = text(), other = text(), changes = diff(one, other);
    const without = (kind) => changes.filter((line) => line.kind !== kind).map((line) => line.text).join("\n");
    assert.deepEqual([without("new"), without("gone")], [one, other]);
  }
});

test("two large texts without common lines count as replaced", () => {
  const text = (word) => Array.from({ length: 5000 }, (_, index) => word + index).join("\n");
  assert.equal(inWords(diff(text("a"), text("b"))), "5000 lines added, 5000 removed");
});

test("approvals are ordered by expiry, then by age", () => {
  const one = { id: 1, asked_at: "2026-01-01T09:00:00Z", expires_at: null };
  const two = { id: 2, asked_at: "2026-01-01T08:00:00Z", expires_at: null };
  const three = { id: 3, asked_at: "2026-01-01T10:00:00Z", expires_at: "2026-01-01T11:00:00Z" };
  assert.deepEqual([one, two, three].sort(mostUrgent).map((each) => each.id), [3, 2, 1]);
});

test("a plan is compared with the newest one before it", () => {
  const at = (id, hour, plan = {}) => ({ approval_id: id, asked_at: `2026-01-01T0${hour}:00:00Z`, plan });
  const all = [at("a", 1), at("b", 3), at("none", 4, null), at("c", 5), at("later", 6)];
  assert.equal(before(all, all[3]).approval_id, "b");
  assert.equal(before(all, all[0]), undefined);
});

test("a definition is readable TOML", () => {
  const written = toToml("agent", {
    name: "reviewer", command: ["claude", "-p"], enabled: false, max_concurrent: 2, system_prompt: "Be brief.\nSay \"no\".",
    env: { STYLE: "short" },
    mcp_servers: { moorage: { url: "http://x/mcp", headers: { "X-Agent-Session-Name": "${AGENT_SESSION_NAME}" } } },
  });
  assert.equal(written, [
    "[agent]", 'name = "reviewer"', 'command = ["claude", "-p"]', "enabled = false", "max_concurrent = 2", 'system_prompt = """', "Be brief.", 'Say "no"."""', "",
    "[agent.env]", 'STYLE = "short"', "",
    "[agent.mcp_servers.moorage]", 'url = "http://x/mcp"', 'headers = { X-Agent-Session-Name = "${AGENT_SESSION_NAME}" }', ""].join("\n"));
});

test("targets are numbers in the unit of their measure", () => {
  assert.deepEqual(["> 60 %", "< 5 min", "< 30 min", "< 5 KB per small session", null].map(targetOf), [0.6, 300, 1800, 5000, null]);
  assert.deepEqual([percent(0), percent(0.153), percent(0.0123), percent(1)], ["0 %", "15 %", "1.2 %", "100 %"]);
  assert.deepEqual([told({ value: null, unit: "share" }), told({ value: 90, unit: "seconds" }), told({ value: 2048, unit: "bytes" })], ["–", "1m 30s", "2.0 KB"]);
});

test("empty hours are on the axis", () => {
  const groups = [{ key: "2026-01-05T09:00:00Z" }, { key: "2026-01-05T12:00:00Z" }];
  const start = Date.parse("2026-01-05T07:30:00Z") / 1000, end = Date.parse("2026-01-05T13:00:00Z") / 1000;
  const { times, at } = axis(groups, "hour", start, end);
  assert.deepEqual(times.map((time) => new Date(time * 1000).getUTCHours()), [8, 9, 10, 11, 12, 13]);
  assert.deepEqual(at.map((group) => group?.key.slice(11, 13) ?? null), [null, "09", null, null, "12", null]);
  assert.deepEqual(axis([], "day"), { times: [], at: [] });
});
