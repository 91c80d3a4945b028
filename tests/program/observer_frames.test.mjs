// What reaches the fleet and the rows, and what does not. The agents are nostr-tools.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { logged, startRelay } from "./support/perch.mjs";
import {
	Harness, channelId, chunk, freshEpoch, makeAgent, makeHome, makeKey, now, startHostileRelay,
	startObserver, telemetry,
} from "./support/observer.mjs";

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

test("a single frame of an attested agent becomes a lane and a row", async () => {
	const channel = channelId();
	const agent = await Harness.open(relay.url, home.owner);
	await agent.send(agent.started_event(channel));
	await agent.send(agent.event("acp_read", chunk("Hello"), { channel, turn: "t1" }));
	const row = await page.row((at) => at.type === "message" && at.lane.startsWith(agent.id));
	assert.equal(row.text, "Hello");
	assert.equal(row.lane, `${agent.id}/${channel}`);
	const fleet = (await observer.get("/api/fleet")).json();
	const shown = fleet.agents.find(({ id }) => id === agent.id);
	assert.equal(shown.name, "claude");
	assert.equal(shown.online, true);
	assert.equal(shown.foreign, false);
	assert.equal(fleet.lanes.find(({ agent: id }) => id === agent.id).channelName, "api-server");
	await agent.close();
});

test("the events of a batch become rows in order, and /api/rows has them", async () => {
	const channel = channelId();
	const agent = await Harness.open(relay.url, home.owner);
	await agent.send(agent.batch([
		agent.event("turn_started", { promptId: "p", source: "owner", text: "Go" },
			{ channel, turn: "t1" }),
		agent.event("acp_read", chunk("Hel"), { channel, turn: "t1" }),
		agent.event("acp_read", chunk("lo"), { channel, turn: "t1" }),
		agent.event("turn_completed", { promptId: "p", stopReason: "end_turn", durationMs: 1 },
			{ channel, turn: "t1" }),
	]));
	await page.row((at) => at.type === "turn" && at.lane.endsWith(channel));
	const { rows } = await observer.rows(`${agent.id}/${channel}`);
	assert.deepEqual(rows.map(({ type }) => type), ["prompt", "message", "turn"]);
	assert.equal(rows[1].text, "Hello");
	await agent.close();
});

test("frames as Buzz sends them, without epoch and number, are a foreign feed", async () => {
	const channel = channelId();
	const agent = await Harness.open(relay.url, home.owner);
	const plain = (event) => { const { monotonicMs, ...rest } = event; return rest; };
	await agent.send(plain(agent.event("acp_read", chunk("one"), { channel, turn: "t1" })),
		{ plain: true });
	await agent.send(agent.batch([
		plain(agent.event("acp_read", chunk(" two"), { channel, turn: "t1" })),
		plain(agent.event("turn_completed", {}, { channel, turn: "t1" })),
	]), { plain: true });
	await page.row((at) => at.type === "turn" && at.lane.endsWith(channel));
	const { rows } = await observer.rows(`${agent.id}/${channel}`);
	assert.equal(rows[0].text, "one two");
	const fleet = (await observer.get("/api/fleet")).json();
	assert.equal(fleet.agents.find(({ id }) => id === agent.id).foreign, true);
	await agent.close();
});

test("the archive gives an event back as it was sent", async () => {
	const channel = channelId();
	const agent = await Harness.open(relay.url, home.owner);
	const event = agent.event("note", { text: "kept \u{1f600}" }, { channel });
	await agent.send(event);
	await page.row((at) => at.type === "note" && at.lane.endsWith(channel));
	const answer = await observer.get(`/api/event/${agent.id}/${agent.epoch}/${event.seq}`);
	assert.equal(answer.status, 200);
	assert.deepEqual(answer.json().payload, event.payload);
	await agent.close();
});

test("frames that come late and twice end in the same rows", async () => {
	const channel = channelId();
	const agent = await Harness.open(relay.url, home.owner);
	const events = ["a", "b", "c"].map((text) =>
		agent.event("acp_read", chunk(text), { channel, turn: "t1" }));
	for (const number of [3, 1, 2, 1, 3])
		await agent.send(events[number - 1], { number });
	await page.until((message) => message.rows?.find((at) =>
		at.lane.endsWith(channel) && at.text === "abc"));
	const { rows } = await observer.rows(`${agent.id}/${channel}`);
	assert.equal(rows.filter(({ type }) => type === "message").length, 1);
	await agent.close();
});

test("missing frames are asked for, and their row goes when they come", async () => {
	const channel = channelId();
	const agent = await Harness.open(relay.url, home.owner);
	const held = agent.event("note", { text: "held back" }, { channel });
	await agent.send(agent.event("note", { text: "first" }, { channel }), { number: 1 });
	await agent.send(agent.event("note", { text: "third" }, { channel }), { number: 3 });
	let sync;
	do {
		sync = await agent.control("feed_sync");
	} while (!sync.want?.length);
	assert.deepEqual(sync.want, [{ epoch: agent.epoch, frames: [[2, 2]] }]);
	const gap = await page.row((at) => at.type === "gap" && at.lane.endsWith(channel));
	assert.deepEqual(gap.frames, [[2, 2]]);
	await agent.send(held, { number: 2, replayed: true });
	await page.until((message) => message.removedRows?.find(({ id }) => id === gap.id));
	await page.row((at) => at.text === "held back");
	await agent.close();
});

test("frames that the harness no longer has stay a row that says so", async () => {
	const channel = channelId();
	const agent = await Harness.open(relay.url, home.owner);
	await agent.send(agent.event("note", { text: "first" }, { channel }), { number: 1 });
	await agent.send(agent.event("note", { text: "ninth" }, { channel }), { number: 9 });
	const sync = await agent.control("feed_sync");
	await agent.send(agent.event("feed_state", {
		requestId: sync.requestId, epochs: [{ epoch: agent.epoch, first: 9, last: 9 }],
		control: "full", permissions: "ask",
	}), { number: 10 });
	const gap = await page.row((at) =>
		at.type === "gap" && at.state === "gone" && at.lane.endsWith(channel));
	assert.deepEqual(gap.frames, [[2, 8]]);
	await agent.close();
});

test("what a hostile relay delivers is nobody's row", async (t) => {
	const hostile = await startHostileRelay();
	const own = makeHome();
	const victim = await startObserver(hostile.url, own);
	t.after(async () => { await victim.end(); hostile.close(); own.remove(); });
	await hostile.subscribed;
	const channel = channelId();
	const agent = Object.assign(new Harness(), {
		owner: own.owner, key: makeAgent(own.owner), epoch: freshEpoch(),
	});
	const stranger = makeKey();
	const mallory = Object.assign(new Harness(), {
		owner: own.owner, key: { ...stranger, auth: makeAgent(makeKey()).auth },
		epoch: freshEpoch(),
	});
	const note = (text) => agent.event("note", { text }, { channel });

	const forged = agent.seal(note("forged")), altered = agent.seal(note("altered"));
	hostile.deliver({ ...forged, sig: altered.sig });
	hostile.deliver({ ...altered, content: agent.seal(note("other")).content });
	hostile.deliver(mallory.seal(mallory.event("note", { text: "stranger" }, { channel })));
	hostile.deliver(telemetry(agent.key, makeKey().pub, "{}", { tags: [agent.key.auth] }));
	hostile.deliver({ kind: 24200 });
	const good = agent.seal(note("good"));
	hostile.deliver(good);
	hostile.deliver(good);
	const shown = await victim.page();
	t.after(() => shown.close());
	await shown.until((message) => message.lanes?.length);
	const fleet = (await victim.get("/api/fleet")).json();
	assert.deepEqual(fleet.agents.map(({ id }) => id), [agent.id]);
	const { rows } = await victim.rows(`${agent.id}/${channel}`);
	assert.deepEqual(rows.map(({ text }) => text), ["good"]);
	await logged(victim, /perch attest npub1/);
});

test("a frame older than 300 s is history: no card", async (t) => {
	const hostile = await startHostileRelay();
	const own = makeHome();
	const late = await startObserver(hostile.url, own);
	t.after(async () => { await late.end(); hostile.close(); own.remove(); });
	await hostile.subscribed;
	const channel = channelId();
	const agent = Object.assign(new Harness(), {
		owner: own.owner, key: makeAgent(own.owner), epoch: freshEpoch(),
	});
	const request = { jsonrpc: "2.0", id: 1, method: "session/request_permission",
		params: { toolCall: { toolCallId: "c" }, options: [] } };
	hostile.deliver(agent.seal(agent.event("acp_read", request, {
		channel, turn: "t1", authorization: { requestNonce: "n1", actionable: true },
	}), { created_at: now() - 400 }));
	const shown = await late.page();
	t.after(() => shown.close());
	await shown.until((message) => message.lanes?.length);
	const fleet = (await late.get("/api/fleet")).json();
	assert.deepEqual(fleet.cards, []);
	const { rows } = await late.rows(`${agent.id}/${channel}`);
	assert.ok(rows.find(({ type }) => type === "permission"));
});
