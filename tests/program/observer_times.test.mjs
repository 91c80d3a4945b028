// Where the time went: /api/report and /api/timeline, live and from the archive.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Harness, ask, channelId, makeHome, startObserver } from "./support/observer.mjs";
import { startRelay } from "./support/perch.mjs";
import { until } from "./support/up.mjs";

let relay, home, observer;

before(async () => {
	relay = await startRelay();
	home = makeHome();
	observer = await startObserver(relay.url, home);
	await observer.connected();
});

after(async () => {
	await observer.end();
	await relay.stop();
	home.remove();
});

const update = (members) => ({
	jsonrpc: "2.0", method: "session/update", params: { sessionId: "s1", update: members },
});
const call = (toolCallId, command, more = {}) => update({
	sessionUpdate: "tool_call", toolCallId, title: command, kind: "execute",
	status: "in_progress", rawInput: { command }, ...more,
});
const ended = (toolCallId, status = "completed") =>
	update({ sessionUpdate: "tool_call_update", toolCallId, status });

/** A turn of 10 s, with a call @beside it from its first second on: make test 1–4 s (waits for the owner 2–3 s), a failed npm run lint 6–8 s. */
function turn(agent, channel, name, startMs, beside = null) {
	const at = (ms, kind, payload, more = {}) => ({
		...agent.event(kind, payload, { channel, turn: name, ...more }),
		monotonicMs: startMs + ms,
		timestamp: new Date(agent.started + startMs + ms).toISOString(),
	});
	const authorization = { requestNonce: `${name}-nonce`, deadlineMs: 300000 };
	return [
		at(0, "turn_started", { promptId: `${name}-p`, source: "owner", text: `Do ${name}` }),
		...(beside ? [at(500, "acp_read", call("c0", beside))] : []),
		at(1000, "acp_read", call("c1", "make test -j4")),
		at(2000, "acp_read", ask("make test -j4"), { authorization }),
		at(3000, "acp_write", {
			jsonrpc: "2.0", id: 7, result: { outcome: { outcome: "selected", optionId: "ok" } },
		}, { authorization: { ...authorization, optionId: "ok" } }),
		at(4000, "acp_read", ended("c1")),
		at(6000, "acp_read", call("c2", "npm run lint -- --fix")),
		at(8000, "acp_read", ended("c2", "failed")),
		at(10000, "turn_completed", { promptId: `${name}-p`, stopReason: "end_turn" }),
	];
}

async function report(query) {
	const answer = await observer.get(`/api/report?${new URLSearchParams(query)}`);
	assert.equal(answer.status, 200, answer.text);
	return answer.json();
}

const rowsOf = ({ rows }) =>
	Object.fromEntries(rows.map(({ name, count, inclusive, self }) =>
		[name, [count, inclusive, self]]));

/** PTL2, as PROTOCOL.md has it. */
function decode(bytes) {
	const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
	let at = 0;
	const u8 = () => view.getUint8(at++);
	const u16 = () => { at += 2; return view.getUint16(at - 2, true); };
	const u32 = () => { at += 4; return view.getUint32(at - 4, true); };
	const i64 = () => { at += 8; return Number(view.getBigInt64(at - 8, true)); };
	const many = (count, read) => Array.from({ length: count }, read);
	assert.equal(bytes.subarray(0, 4).toString(), "PTL2");
	at = 4;
	const head = {
		request: u32(), from: i64(), to: i64(), now: i64(), completeFrom: i64(), width: u32(),
	};
	const lanes = many(u32(), () => {
		const lane = { id: u32(), generation: i64() };
		const [stretches, spans, series] = [u32(), u32(), u32()];
		lane.stretches = many(stretches, () =>
			({ columns: u16(), model: u8(), tool: u8(), you: u8(), idle: u8() }));
		lane.spans = many(spans, () => ({
			t: i64(), end: i64(), name: u32(), row: u32(), kind: u8(), flags: u8(), line: u16(),
		}));
		lane.series = many(series, () =>
			({ kind: u32(), pieces: many(u32(), () => [u16(), u32()]) }));
		return lane;
	});
	const strings = many(u32(), () => {
		const length = u16();
		at += length;
		return bytes.subarray(at - length, at).toString();
	});
	assert.equal(at, bytes.length);
	for (const lane of lanes) {
		lane.id = strings[lane.id];
		for (const span of lane.spans)
			Object.assign(span, { name: strings[span.name], row: strings[span.row] });
	}
	return { ...head, lanes };
}

async function timeline(query) {
	const answer = await observer.get(`/api/timeline?${new URLSearchParams(query)}`);
	assert.equal(answer.status, 200, answer.text);
	return decode(answer.bytes);
}

async function working() {
	const channel = channelId();
	const agent = await Harness.open(relay.url, home.owner);
	agent.started = Date.now() - 60000;
	await agent.send({ ...agent.started_event(channel), monotonicMs: 0 });
	return { agent, channel, lane: `${agent.id}/${channel}` };
}

test("a turn's time is the model's, its tools' and the owner's", async () => {
	const { agent, channel, lane } = await working();
	await agent.send(agent.batch(turn(agent, channel, "one", 1000)));
	const [from, to] = [agent.started, agent.started + 12000];
	const flat = await until(async () => {
		const found = await report({ from, to, lanes: lane });
		return found.total.tool && found;
	});
	assert.deepEqual(flat.total, { model: 5000, tool: 4000, you: 1000, idle: 1000 });
	assert.deepEqual(rowsOf(flat), {
		Model: [3, 5000, 5000],
		"make test": [1, 3000, 2000],
		"npm run lint": [1, 2000, 2000],
		"Waiting for you": [1, 1000, 1000],
		Idle: [1, 1000, 1000],
	});
	assert.equal(flat.lanes[0].lane, lane);

	const [tree] = (await report({ from, to, lanes: lane, view: "top-down" })).rows;
	assert.equal(tree.agent, agent.id);
	assert.equal(tree.rows[0].lane, lane);
	const [one] = tree.rows[0].rows;
	assert.deepEqual([one.name, one.count, one.inclusive], ["Turn", 1, 10000]);
	assert.deepEqual(one.rows.map(({ name }) => name), ["Model", "make test", "npm run lint"]);
	assert.equal(one.rows[1].rows[0].name, "Waiting for you");

	/* Two stretches are added up, and are what each of them is. */
	const cuts = [[from + 500, from + 1500], [from + 2500, from + 3500]];
	const parts = await Promise.all(cuts.map(([from, to]) => report({ from, to, lanes: lane })));
	const both = await report({ ranges: cuts.map((it) => it.join("-")).join(","), lanes: lane });
	assert.deepEqual([both.from, both.to], [cuts[0][0], cuts[1][1]]);
	for (const kind of ["model", "tool", "you", "idle"])
		assert.equal(both.total[kind], parts[0].total[kind] + parts[1].total[kind], kind);
	const half = await report({ from: from + 2500, to: from + 3500, lanes: lane });
	assert.deepEqual(half.total, { model: 0, tool: 500, you: 500, idle: 0 });
	await agent.close();
});

test("the timeline has spans that are wide enough, and columns for all of it", async () => {
	const { agent, channel, lane } = await working();
	await agent.send(agent.batch(turn(agent, channel, "two", 1000)));
	const [from, to] = [agent.started, agent.started + 12000];
	const seen = await until(async () => {
		const found = await timeline({ from, to, width: 1200, request: 9, lanes: agent.id });
		return found.lanes.length && found;
	});
	assert.deepEqual([seen.request, seen.width, seen.from, seen.to], [9, 1200, from, to]);
	assert.equal(seen.lanes[0].id, lane);
	assert.deepEqual(
		seen.lanes[0].spans.map(({ name, t, end, kind, flags }) =>
			[name, t - from, end - from, kind, flags]),
		[
			["Do two", 1000, 11000, 0, 0],
			["make test", 2000, 5000, 1, 4],
			["Waiting for you", 3000, 4000, 3, 8],
			["npm run lint", 7000, 9000, 1, 5],
		]);
	const columns = seen.lanes[0].stretches.flatMap(({ columns, ...shares }) =>
		Array.from({ length: columns }, () => shares));
	assert.equal(columns.length, 1200);
	assert.deepEqual(columns[150], { model: 255, tool: 0, you: 0, idle: 0 });
	assert.deepEqual(columns[250], { model: 0, tool: 255, you: 0, idle: 0 });
	assert.deepEqual(columns[350], { model: 0, tool: 0, you: 255, idle: 0 });

	// A column is 3 s: what is shorter is only in the columns, what is under four has no title.
	const coarse = await timeline({ from, to, width: 4, lanes: lane });
	assert.deepEqual(coarse.lanes[0].spans.map(({ name, kind }) => [name, kind]),
		[["", 0], ["make test", 1]]);
	await agent.close();
});

test("a wait lies on the line of the call that it holds up", async () => {
	const { agent, channel } = await working();
	await agent.send(agent.batch(turn(agent, channel, "beside", 1000, "sleep 9")));
	const [from, to] = [agent.started, agent.started + 12000];
	const seen = await until(async () => {
		const found = await timeline({ from, to, width: 1200, lanes: agent.id });
		return found.lanes.length && found;
	});
	assert.deepEqual(
		seen.lanes[0].spans.filter(({ kind, t }) => kind && t < from + 6000).map(({ name, kind, line }) => [name, kind, line]),
		[["sleep 9", 1, 0], ["make test", 1, 1], ["Waiting for you", 3, 1]]);
	await agent.close();
});

const usage = (agent, channel, turn, ms, used, amount) => ({
	...agent.event("acp_read", update({
		sessionUpdate: "usage_update", used, size: 200000, cost: { amount, currency: "USD" },
	}), { channel, turn }),
	monotonicMs: ms, timestamp: new Date(agent.started + ms).toISOString(),
});

test("the timeline has what a lane counts: bytes, tokens, cost", async () => {
	const { agent, channel, lane } = await working();
	const events = turn(agent, channel, "three", 1000);
	// Numbered after the turn, as it was told later.
	await agent.send(agent.batch([...events, usage(agent, channel, "three", 5000, 53000, 0.045)]));
	const [from, to] = [agent.started, agent.started + 40000];
	const seen = await until(async () => {
		const found = await timeline({ from, to, width: 160, lanes: lane });
		return found.lanes[0]?.series.length === 3 && found;
	});
	const columns = (kind) => seen.lanes[0].series.find((it) => it.kind === kind).pieces
		.flatMap(([columns, value]) => Array.from({ length: columns }, () => value));
	/* A column is a second. */
	const rates = columns(0), tokens = columns(1), costs = columns(2);
	assert.deepEqual([rates.length, tokens.length, costs.length], [40, 40, 40]);
	assert.ok(rates[2] > 50 && rates[2] < 1000, String(rates[2]));
	assert.equal(rates[20], 0);
	assert.deepEqual([tokens[3], tokens[6], tokens[39]], [2 ** 32 - 1, 53000, 53000]);
	assert.deepEqual([costs[3], costs[39]], [2 ** 32 - 1, 45]);
	await agent.close();
});

test("what only the archive knows is read once someone asks", async () => {
	const { agent, channel, lane } = await working();
	await agent.send(agent.batch([...turn(agent, channel, "old", 1000), usage(agent, channel, "old", 5000, 53000, 0.045)]));
	// A start knows the newest 300 events of a lane.
	for (let i = 0; i < 5; i++)
		await agent.send(agent.batch(Array.from({ length: 80 }, (_, n) => ({
			...agent.event("note", { text: `note ${i} ${n}` }, { channel }),
			monotonicMs: 20000, timestamp: new Date(agent.started + 20000).toISOString(),
		}))));
	await agent.send(agent.batch(turn(agent, channel, "new", 30000)));
	const all = { from: agent.started, to: agent.started + 45000, lanes: lane };
	await until(async () => (await report(all)).total.you === 2000);
	const counted = async () => (await timeline({ ...all, width: 180 })).lanes[0].series;
	const before = await counted();
	assert.deepEqual(before.map(({ kind }) => kind), [0, 1, 2]);
	await observer.end();
	observer = await startObserver(relay.url, home);
	const found = await until(async () => {
		const now = await report(all);
		return now.total.you === 2000 && now;
	});
	assert.deepEqual(rowsOf(found)["make test"], [2, 6000, 4000]);
	/* What it counted then is there as it was, each event once. */
	assert.deepEqual(await counted(), before);
	await agent.close();
});

test("the observer says how it does, and what a harness counts as it last said it", async () => {
	const { agent, channel, lane } = await working();
	await agent.send(agent.batch(turn(agent, channel, "self", 1000)));
	await until(async () => (await report({ from: agent.started, to: agent.started + 12000, lanes: lane })).total.tool, "its spans");
	const self = async () => (await observer.get("/api/self")).json();
	const before = await self();
	const page = await observer.page();
	await page.until((message) => message.snapshot);
	const state = (queueEvents) => agent.event("feed_state", {
		epochs: [], control: "full", permissions: "ask",
		figures: { queueEvents, queueBytes: 9, sealUs: 800 },
	});
	await agent.send(state(5));
	await agent.send(state(6));
	const found = await until(async () => {
		const now = await self();
		return now.harnesses.find((it) => it.agent === agent.id)?.figures.queueEvents === 6 && now;
	});
	assert.deepEqual(found.harnesses.find((it) => it.agent === agent.id).figures,
		{ queueEvents: 6, queueBytes: 9, sealUs: 800 });
	assert.equal(found.broker.pages, before.broker.pages + 1);
	assert.ok(found.broker.snapshots > before.broker.snapshots);
	await until(async () => {
		const now = await self();
		return now.broker.messages > before.broker.messages && now.broker.messageBytes > before.broker.messageBytes;
	});
	assert.ok(found.rowBytes > 0 && found.broker.spanLanes > 0 && found.broker.spanBytes > 0);
	/* What is no object is no figure. */
	await agent.send(agent.event("feed_state", { epochs: [], figures: [1, 2] }));
	await agent.send(state(7));
	await until(async () => (await self()).harnesses.find((it) => it.agent === agent.id).figures.queueEvents === 7);
	/* What came again is counted. */
	const replays = async () => (await self()).harnesses.find((it) => it.agent === agent.id).replayed;
	assert.equal(await replays(), 0);
	await agent.send(agent.event("note", { text: "again" }), { replayed: true });
	await until(async () => await replays() === 1);
	page.close();
	await agent.close();
	assert.equal((await observer.get("/api/self", { headers: { authorization: "" } })).status, 401);
});

test("what cannot be asked is refused with what is allowed", async () => {
	for (const [query, words] of [
		["/api/timeline?width=0", /width must be 1 to 16384/],
		["/api/timeline?width=20000", /width must be a number up to 16384/],
		["/api/timeline?from=x", /from must be a number/],
		["/api/report?from=5&to=5", /to must be behind from/],
		["/api/report?ranges=", /ranges must be up to 16 of FROM-TO, by time/],
		["/api/report?ranges=5-5", /ranges must be/],
		["/api/report?ranges=5-9,8-12", /ranges must be/],
		["/api/report?ranges=5-9,1-2", /ranges must be/],
		["/api/report?ranges=5-9,x", /ranges must be/],
		[`/api/report?ranges=${Array.from({ length: 17 }, (_, i) => `${2 * i}-${2 * i + 1}`).join(",")}`, /ranges must be/],
		["/api/report?view=sideways", /view must be flat, top-down, bottom-up or live/],
	]) {
		const answer = await observer.get(query);
		assert.equal(answer.status, 400, query);
		assert.match(answer.json().error, words);
	}
	assert.equal((await observer.get("/api/report", { headers: { authorization: "" } })).status, 401);
});
