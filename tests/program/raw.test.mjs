// /api/raw: the lines as they were, a stretch at a time; what was cut is fetched.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { startRelay } from "./support/perch.mjs";
import { until } from "./support/up.mjs";
import { Harness, channelId, chunk, makeHome, startObserver } from "./support/observer.mjs";

let relay, home, observer, page;

before(async () => {
	relay = await startRelay();
	home = makeHome();
	observer = await startObserver(relay.url, home);
	await observer.connected();
	page = await observer.page();
});

after(async () => {
	page.close();
	await observer.end();
	await relay.stop();
	home.remove();
});

async function hello() {
	const channel = channelId();
	const agent = await Harness.open(relay.url, home.owner);
	await agent.send(agent.started_event(channel, "claude"));
	return { agent, channel, lane: `${agent.id}/${channel}` };
}

async function raw(lane, query = {}) {
	const answer = await observer.get(`/api/raw?${new URLSearchParams({ lane, ...query })}`);
	assert.equal(answer.status, 200, answer.text);
	return answer.json();
}

test("lines come as they were, either way, between two places", async () => {
	const { agent, channel, lane } = await hello();
	const there = agent.event("acp_write", { jsonrpc: "2.0", id: 3, method: "session/prompt", params: {} }, { channel, turn: "t1" });
	const back = agent.event("acp_read", chunk("one \u202e two"), { channel, turn: "t1" });
	const note = agent.event("note", { text: "end" }, { channel });
	for (const event of [there, back, note])
		await agent.send(event);
	await page.row((row) => row.lane === lane && row.text === "end");
	const all = await raw(lane);
	assert.deepEqual(all.lines.map(({ kind, direction, name }) => [kind, direction, name]), [
		["acp_write", "write", "session/prompt"],
		["acp_read", "read", "session/update agent_message_chunk"],
		["note", undefined, undefined],
	]);
	assert.equal(all.next, null);
	assert.deepEqual(JSON.parse(all.lines[1].text), back.payload);
	assert.equal(all.lines[1].bytes, Buffer.byteLength(JSON.stringify(back.payload)));
	const [first, second, third] = all.lines.map(({ pos }) => pos);
	assert.deepEqual((await raw(lane, { from: second, to: third })).lines, [all.lines[1]]);
	const one = await raw(lane, { limit: 1, cut: 8 });
	assert.deepEqual([one.lines.length, one.lines[0].text, one.next], [1, '{"jsonrp', second]);
	assert.deepEqual((await raw(lane, { from: one.next })).lines, all.lines.slice(1));
	assert.ok(first < second && second < third);
	await agent.close();
});

test("what is no question is refused, what is not there is not found", async () => {
	const { agent, lane } = await hello();
	await until(async () => (await observer.get(`/api/raw?lane=${encodeURIComponent(lane)}`)).status === 200, "the agent");
	for (const query of [
		{ lane: "x" }, { lane, from: "1" }, { lane, to: "../../etc" }, { lane, limit: "0" }, { lane, limit: "501" },
		{ lane, limit: "-1" }, { lane, cut: "0" }, { lane, cut: "262145" }, { lane, cut: "9e9" },
	])
		assert.equal((await observer.get(`/api/raw?${new URLSearchParams(query)}`)).status, 400, JSON.stringify(query));
	const stranger = `${"0".repeat(64)}/${channelId()}`;
	assert.equal((await observer.get(`/api/raw?lane=${encodeURIComponent(stranger)}`)).status, 404);
	assert.equal((await observer.get(`/api/raw?lane=${encodeURIComponent(lane)}`, { headers: { authorization: "" } })).status, 401);
	await agent.close();
});

test("a diff is read beyond its row, and its new text whole", async () => {
	const { agent, channel, lane } = await hello();
	const lines = (word) => Array.from({ length: 5000 }, (_, i) => `${word} ${i}\n`).join("");
	const update = (update) => ({ jsonrpc: "2.0", method: "session/update", params: { sessionId: "s1", update } });
	await agent.send(agent.event("acp_read", update({
		sessionUpdate: "tool_call", toolCallId: "c9", title: "Edit", kind: "edit", status: "pending",
	}), { channel, turn: "t1" }));
	const said = agent.event("acp_read", update({
		sessionUpdate: "tool_call_update", toolCallId: "c9", status: "completed",
		content: [{ type: "content", content: { type: "text", text: "done" } },
			{ type: "diff", path: "/a.c", oldText: lines("a").slice(0, 20000), newText: lines("b").slice(0, 20000) }],
	}), { channel, turn: "t1" });
	await agent.send(said);
	const row = await page.row((at) => at.lane === lane && at.status === "completed");
	assert.equal(row.partsAt, `${agent.epoch}/${String(said.seq).padStart(16, "0")}`);
	assert.equal(row.parts[1].more, true);
	const part = async (query) => {
		const answer = await observer.get(`/api/part?${new URLSearchParams({ agent: agent.id, at: row.partsAt, part: 1, ...query })}`);
		return answer.status === 200 ? answer.json() : answer.status;
	};
	const first = await part({ limit: 200 });
	assert.deepEqual(first.hunks, row.parts[1].hunks);
	assert.equal(first.lines, first.added + first.removed);
	const last = await part({ from: first.lines - 3, limit: 2000 });
	assert.deepEqual([last.hunks[0].lines.length, last.more], [3, false]);
	assert.equal((await part({ side: "new" })).text, lines("b").slice(0, 20000));
	assert.equal((await part({ side: "old" })).text, lines("a").slice(0, 20000));
	assert.deepEqual([await part({ part: 0 }), await part({ part: 7 }), await part({ at: `${agent.epoch}/${"9".padStart(16, "0")}` })],
		[404, 404, 404]);
	for (const wrong of [{ part: "x" }, { part: 65 }, { side: "up" }, { from: -1 }, { limit: 0 }, { limit: 2001 }, { at: "" }, { agent: "x" }])
		assert.equal(await part(wrong), 400, JSON.stringify(wrong));
	await agent.close();
});

test("an output is read whole, of its content or of what the call gave raw", async () => {
	const { agent, channel, lane } = await hello();
	const whole = Array.from({ length: 900 }, (_, i) => `\u001b[31mline\u001b[0m ${i} "ü"\n`).join("");
	const update = (update) => ({ jsonrpc: "2.0", method: "session/update", params: { sessionId: "s1", update } });
	const say = async (call, over) => {
		await agent.send(agent.event("acp_read", update({
			sessionUpdate: "tool_call", toolCallId: call, title: "Run", kind: "execute", status: "in_progress", rawInput: { command: "make" },
		}), { channel, turn: "t1" }));
		const said = agent.event("acp_read", update({
			sessionUpdate: "tool_call_update", toolCallId: call, status: "completed", ...over,
		}), { channel, turn: "t1" });
		await agent.send(said);
		const row = await page.row((at) => at.lane === lane && at.call === call && at.status === "completed");
		assert.equal(row.partsAt, `${agent.epoch}/${String(said.seq).padStart(16, "0")}`);
		return row;
	};
	const part = async (row, query) => {
		const answer = await observer.get(`/api/part?${new URLSearchParams({ agent: agent.id, at: row.partsAt, side: "text", ...query })}`);
		return answer.status === 200 ? answer.json().text : answer.status;
	};
	const told = await say("c1", { content: [
		{ type: "content", content: { type: "text", text: whole } },
		{ type: "diff", path: "/a.c", oldText: "a", newText: "b" },
	] });
	assert.deepEqual([told.parts[0].more, told.parts[0].bytes], [true, Buffer.byteLength(whole)]);
	assert.equal(await part(told, { part: 0 }), whole);
	assert.deepEqual([await part(told, { part: 1 }), await part(told, { part: 2 })], [404, 404]);
	for (const rawOutput of [whole, { exitCode: 0, stdout: whole }]) {
		const raw = await say(typeof rawOutput === "string" ? "c2" : "c3", { rawOutput });
		assert.equal(raw.parts[0].more, true);
		assert.equal(await part(raw, { part: 0 }), whole);
		assert.equal(await part(raw, { part: 1 }), 404);
	}
	await agent.close();
});

test("what a harness left out of an output is told with it", async () => {
	const { agent, channel, lane } = await hello();
	const output = (text) => ({ jsonrpc: "2.0", method: "session/update", params: { sessionId: "s1", update: {
		sessionUpdate: "tool_call", toolCallId: "c1", title: "Run", kind: "execute", status: "completed", rawInput: { command: "make" },
		content: [{ type: "content", content: { type: "text", text } }],
	} } });
	const own = "an …[elided 7 bytes]… of the agent's own";
	const cases = [
		[`${"begin ".repeat(500)}…[elided 81920 bytes]…${"end ".repeat(750)}`, 82000, 81920],
		// Two leaves that were joined; words that only look so; more than was left out at all.
		["a…[elided 10 bytes]…b…[elided 20 bytes]…c…[elided x bytes]……[elided 5", 40, 30],
		["…[elided 99999999999999999999 bytes]…", 5, 5],
		["nothing of this one", 812, undefined],
		[own, undefined, undefined],
	];
	for (const [text, trimmed, elided] of cases) {
		const event = agent.event("acp_read", output(text), { channel, turn: `t${agent.seq}` });
		await agent.send(trimmed ? { ...event, trimmed } : event);
		const row = await page.row((at) => at.lane === lane && at.partsAt === `${agent.epoch}/${String(event.seq).padStart(16, "0")}`);
		const answer = await observer.get(`/api/part?${new URLSearchParams({ agent: agent.id, at: row.partsAt, side: "text", part: 0 })}`);
		assert.deepEqual(answer.json(), elided ? { text, elided } : { text });
	}
	await agent.close();
});

test("a line that was cut says so and is fetched by its place", async () => {
	const { agent, channel, lane } = await hello();
	const whole = agent.event("acp_read", chunk("long ".repeat(100)), { channel, turn: "t1" });
	const cut = { ...whole, trimmed: JSON.stringify(whole.payload).length, payload: chunk("long") };
	await agent.send(cut);
	const [line] = await until(async () => {
		const answer = await observer.get(`/api/raw?lane=${encodeURIComponent(lane)}`);
		return answer.status === 200 && answer.json().lines.length && answer.json().lines;
	}, "the line");
	assert.equal(line.trimmed, cut.trimmed);
	for (const wrong of [{ epoch: "zzzzzzzzzzzzzzzz", seq: 1 }, { epoch: agent.epoch }, { epoch: agent.epoch, seq: 0 }, {}])
		assert.equal((await observer.post({ type: "fetch_body", agent: agent.id, channel, ...wrong })).status, 400);
	const [epoch, seq] = line.pos.split("/");
	assert.equal((await observer.post({ type: "fetch_body", agent: agent.id, channel, epoch, seq: Number(seq) })).status, 202);
	const asked = await agent.control("fetch_body");
	assert.deepEqual([asked.epoch, asked.seq], [agent.epoch, whole.seq]);
	await agent.answer(asked, "ok");
	await agent.send(agent.event("body_part", {
		epoch: agent.epoch, seq: whole.seq, part: 1, parts: 1, text: JSON.stringify(whole),
	}, { channel }), { replayed: true });
	const fetched = await until(async () => (await raw(lane)).lines.find((at) => at.pos === line.pos && !at.trimmed), "the body");
	assert.deepEqual(JSON.parse(fetched.text), whole.payload);
	await agent.close();
});
