// perch export --format trace: read by a reader of Chrome's traces that is not ours, and by the rules that Perfetto's
// trace processor has for the JSON format (perfetto.dev, "Why are overlapping events in JSON traces not displayed
// correctly?"): what does not nest within its thread is dropped there.
import tracerbench from "@tracerbench/trace-model";
import assert from "node:assert/strict";
import { test } from "node:test";
import { untilExport } from "./support/faults.mjs";
import { Harness, ask, channelId, makeHome, run, startObserver } from "./support/observer.mjs";
import { startRelay } from "./support/perch.mjs";

const update = (members) => ({
	jsonrpc: "2.0", method: "session/update", params: { sessionId: "s1", update: members },
});
const call = (toolCallId, command) => update({
	sessionUpdate: "tool_call", toolCallId, title: command, kind: "execute", status: "in_progress",
	rawInput: { command },
});
const ended = (toolCallId) => update({ sessionUpdate: "tool_call_update", toolCallId, status: "completed" });

/** What of a track the trace processor keeps: slices that are inside of what is open, or behind it. */
function dropped(events) {
	const open = new Map(), lost = [];
	for (const event of events.filter(({ ph }) => ph === "X").sort((a, b) => a.ts - b.ts)) {
		const track = `${event.pid}/${event.tid}`, stack = open.get(track) ?? [], end = event.ts + event.dur;
		open.set(track, stack);
		while (stack.length && (stack.at(-1).end < event.ts ||
			stack.at(-1).end === event.ts && (stack.at(-1).dur || event.dur)))
			stack.pop();
		if (stack.length && event.ts < stack.at(-1).end && end > stack.at(-1).end)
			lost.push(event.name);
		else
			stack.push({ end, dur: event.dur });
	}
	return lost;
}

/** The members and types that the format's document asks for. */
function wellFormed(trace) {
	assert.deepEqual(Object.keys(trace).sort(), ["displayTimeUnit", "traceEvents"]);
	assert.ok(["ms", "ns"].includes(trace.displayTimeUnit));
	for (const event of trace.traceEvents) {
		const what = JSON.stringify(event);
		assert.ok(Number.isSafeInteger(event.pid) && Number.isSafeInteger(event.tid), what);
		assert.equal(typeof event.name, "string", what);
		if (event.ph === "M") {
			assert.ok(["process_name", "thread_name"].includes(event.name), what);
			assert.equal(typeof event.args.name, "string", what);
			continue;
		}
		assert.equal(event.ph, "X", what);
		assert.equal(typeof event.cat, "string", what);
		assert.ok(Number.isSafeInteger(event.ts) && Number.isSafeInteger(event.dur) && event.dur >= 0, what);
	}
}

test("a trace has every turn, call and wait where a reader of Chrome's traces finds it, and none that Perfetto drops", async () => {
	const relay = await startRelay(), home = makeHome(), channel = channelId();
	const observer = await startObserver(relay.url, home);
	await observer.connected();
	const page = await observer.page(), agent = await Harness.open(relay.url, home.owner);
	agent.started = Date.now() - 60000;
	const at = (turn, ms, kind, payload, more = {}) => ({
		...agent.event(kind, payload, { channel, turn, ...more }), monotonicMs: ms,
		timestamp: new Date(agent.started + ms).toISOString(),
	});
	const authorization = { requestNonce: "n", deadlineMs: 300000 };
	await agent.send({ ...agent.started_event(channel), monotonicMs: 0 });
	await agent.send(agent.batch([
		at("one", 1000, "turn_started", { promptId: "p1", source: "owner", text: "Do one" }),
		at("one", 2000, "acp_read", call("c1", "make all")),
		at("one", 3000, "acp_read", ask("make all"), { authorization }),
		at("one", 4000, "acp_write", {
			jsonrpc: "2.0", id: 7, result: { outcome: { outcome: "selected", optionId: "ok" } },
		}, { authorization: { ...authorization, optionId: "ok" } }),
		// These three overlap, and none is inside another.
		at("one", 5000, "acp_read", call("c2", "npm ci")),
		at("one", 6000, "acp_read", call("c3", "du -sh")),
		at("one", 7000, "acp_read", ended("c1")),
		at("one", 8000, "acp_read", ended("c2")),
		at("one", 9000, "acp_read", ended("c3")),
		at("one", 10000, "turn_completed", { promptId: "p1", stopReason: "end_turn" }),
		at("two", 10000, "turn_started", { promptId: "p2", source: "owner", text: "Do \"two\" \u2713" }),
		at("two", 10000, "acp_read", call("d0", "   ")),
		at("two", 11000, "acp_read", ended("d0")),
		at("two", 11000, "acp_read", call("d1", "git log")),
		at("two", 12000, "acp_read", ended("d1")),
		at("two", 12000, "turn_completed", { promptId: "p2", stopReason: "end_turn" }),
		{ ...at("two", 13000, "note", { text: "the last" }), turnId: null },
	]));
	await page.row((row) => JSON.stringify(row).includes("the last"));
	page.close();
	await untilExport(home, ({ events }) => events.length === agent.seq); // shown before it is stored
	const { code, stdout, stderr } = await run(home, "export", "--format", "trace");
	assert.equal(code, 0, stderr);
	const trace = JSON.parse(stdout);
	wellFormed(trace);
	assert.deepEqual(dropped(trace.traceEvents), []);
	// What one thread for all would lose.
	assert.deepEqual(dropped(trace.traceEvents.map((event) => ({ ...event, tid: 1 }))), ["npm ci", "du"]);

	const model = tracerbench.buildModel(trace.traceEvents);
	assert.equal(model.processes.length, 1);
	assert.equal(model.processes[0].name, "claude");
	const ms = (us) => us / 1000 - agent.started;
	const found = model.processes[0].threads.flatMap(({ name: thread, events }) =>
		events.filter((event) => event.isComplete()).map(({ name, cat, start, end, parent }) =>
			[ms(start), ms(end), String(cat), name, parent?.name, thread]));
	const name = "api-server";
	assert.deepEqual(found.sort((a, b) => a[0] - b[0] || b[1] - a[1]), [
		[1000, 10000, "turn", "Do one", undefined, name],
		[2000, 7000, "tool", "make all", "Do one", name],
		[3000, 4000, "wait", "Waiting for you", "make all", name],
		[5000, 8000, "tool", "npm ci", undefined, `${name} (2)`],
		[6000, 9000, "tool", "du", undefined, `${name} (3)`],
		[10000, 12000, "turn", "Do \"two\" \u2713", undefined, name],
		[10000, 11000, "tool", "Shell", "Do \"two\" \u2713", name], // a command of blanks has no name
		[11000, 12000, "tool", "git log", "Do \"two\" \u2713", name],
	]);
	await agent.close();
	await observer.end();
	await relay.stop();
	home.remove();
});

/** A turn that is not over, a call in it and a question: 1, 2 and 3 s after the agent's start; with a channel for each agent. */
async function leaveOpen(agent, channel, more) {
	const at = (ms, kind, payload, members = {}) => ({
		...agent.event(kind, payload, { channel, turn: "one", ...members }), monotonicMs: ms,
		timestamp: new Date(agent.started + ms).toISOString(),
	});
	await agent.send({ ...agent.started_event(channel), monotonicMs: 0, timestamp: new Date(agent.started).toISOString() });
	await agent.send(agent.batch([
		at(1000, "turn_started", { promptId: "p1", source: "owner", text: "Do one" }),
		at(2000, "acp_read", call("c1", "make all")),
		at(3000, "acp_read", ask("make all"), { authorization: { requestNonce: "n", deadlineMs: 300000 } }),
	]));
	for (const [ms, kind, payload] of more)
		await agent.send({ ...at(ms, kind, payload), channelId: null, turnId: null, sessionId: null });
}

/** What of PTL2 its spans say, of the one lane that was asked for: [t, end] of each; -1 goes on. */
function spansOf(bytes) {
	const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
	const time = (at) => Number(view.getBigInt64(at, true));
	assert.equal(view.getUint32(44, true), 1, "lanes");
	const [stretches, spans] = [view.getUint32(60, true), view.getUint32(64, true)];
	return Array.from({ length: spans }, (_, i) => 72 + 6 * stretches + 28 * i).map((at) => [time(at), time(at + 8)]);
}

test("what goes on ends now, of an agent that is gone when that was last heard: in a trace, a replay and on the page", async () => {
	const relay = await startRelay(), home = makeHome();
	const observer = await startObserver(relay.url, home);
	await observer.connected();
	const page = await observer.page();
	const there = await Harness.open(relay.url, home.owner), gone = await Harness.open(relay.url, home.owner);
	const [channel, other] = [channelId(), channelId()];
	gone.started = Date.now() - 3600000;
	// It said so later still that it lives, which makes no row.
	await leaveOpen(gone, other, [[9000, "feed_state", { turns: [{ channelId: other }] }]]);
	there.started = Date.now() - 9000;
	await leaveOpen(there, channel, [[9000, "feed_state", { turns: [{ channelId: channel }] }]]);
	for (const agent of [there, gone])
		await page.row(({ lane, type }) => lane.startsWith(agent.id) && type === "permission");
	page.close();
	await untilExport(home, ({ events }) => events.length === there.seq + gone.seq);

	const before = Date.now();
	const trace = JSON.parse((await run(home, "export", "--format", "trace")).stdout);
	const html = (await run(home, "export", "--format", "html")).stdout;
	const after = Date.now();
	wellFormed(trace);
	const replay = JSON.parse(html.match(/id="perch-replay">([^<]*)</)[1]);
	const starts = [1000, 2000, 3000];
	const found = (agent) => {
		// A process is called by what its harness calls itself, all of them claude: the lane's starts tell them apart.
		const events = trace.traceEvents.filter(({ ph, ts }) => ph === "X" && ts / 1000 - agent.started < 10000 && ts / 1000 >= agent.started);
		assert.deepEqual(events.map(({ ts }) => ts / 1000 - agent.started), starts);
		return events.map(({ ts, dur }) => (ts + dur) / 1000);
	};
	for (const end of found(there))
		assert.ok(end >= before && end <= after, `${end} is not in ${before}–${after}`);
	assert.deepEqual(found(gone), starts.map(() => gone.started + 9000));

	const replayed = (agent) => replay.times.find(({ id }) => id.startsWith(agent.id));
	assert.deepEqual(replayed(there).spans.slice(1).map(([t, end]) => [t - there.started, end]), starts.map((t) => [t, -1]));
	assert.deepEqual(replayed(gone).spans.slice(1).map(([t, end]) => [t, end].map((ms) => ms - gone.started)), starts.map((t) => [t, 9000]));
	assert.equal(replayed(gone).until, gone.started + 9000);
	assert.ok(replayed(there).until >= before);
	assert.equal(replay.to, replay.now + 1);
	const you = ({ rows }) => rows.find(({ name }) => name === "Waiting for you").inclusive;
	const now = replay.now - there.started - 3000;
	assert.equal(you(replay.reports.flat), now + 6000);
	await observer.end();

	// One that starts now knows of neither but by its archive: both are gone for it, until they are heard.
	const again = await startObserver(relay.url, home);
	for (const [agent, lane] of [[gone, other], [there, channel]]) {
		const id = `${agent.id}/${lane}`;
		const answer = await again.get(`/api/timeline?${new URLSearchParams({ from: agent.started, to: agent.started + 20000, width: 1000, lanes: id })}`);
		assert.equal(answer.status, 200, answer.text);
		assert.deepEqual(spansOf(answer.bytes).map((span) => span.map((ms) => ms - agent.started)), starts.map((t) => [t, 9000]));
	}
	await there.close();
	await gone.close();
	await again.end();
	await relay.stop();
	home.remove();
});
