// The relay's main job: sealed frames between agents and owners, seen from real clients.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { getEventHash } from "nostr-tools/pure";
import { authEvent, control, makeAgent, makeKey, now, open, sign, telemetry } from "./support/keys.mjs";
import { Relay } from "./support/nostr_tools.mjs";
import { Peer } from "./support/peer.mjs";
import { logged, startRelay, stopRelay } from "./support/perch.mjs";

let relay;
before(async () => { relay = await startRelay(); });
after(() => stopRelay(relay));

const framesFor = (key) => ({ kinds: [24200], "#p": [key.pub], since: now() - 300 });

/** A nostr-tools client that has answered the challenge. */
async function connectTools(key) {
	const client = new Relay(relay.url);
	const signer = async (template) => sign(key, {
		...template, tags: [...template.tags, ...(key.auth ? [key.auth] : [])] });
	const challenged = new Promise((resolve) => {
		client.onauth = (template) => { resolve(); return signer(template); };
	});
	await client.connect();
	await challenged;
	await client.auth(signer);
	return client;
}

test("nostr-tools: an attested agent publishes, its owner receives and opens", async () => {
	const owner = makeKey();
	const agent = makeAgent(owner);
	const reader = await connectTools(owner);
	const writer = await connectTools(agent);
	const received = new Promise((resolve) =>
		reader.subscribe([framesFor(owner)], { onevent: resolve }));
	const frame = telemetry(agent, owner.pub, '{"seq":1}');
	await writer.publish(frame);
	const event = await received;
	assert.equal(event.id, frame.id);
	assert.equal(open(owner, event), '{"seq":1}');
	reader.close();
	writer.close();
});

test("OK says how many readers received the frame", async () => {
	const owner = makeKey();
	const agent = makeAgent(owner);
	const writer = await Peer.as(relay.url, agent);
	assert.deepEqual((await writer.publish(telemetry(agent, owner.pub))).slice(2),
		[true, "received by 0 readers"]);
	const readers = await Promise.all([Peer.as(relay.url, owner), Peer.as(relay.url, owner)]);
	for (const reader of readers) {
		await reader.subscribe("a", framesFor(owner));
		await reader.subscribe("b", framesFor(owner));
	}
	assert.deepEqual((await writer.publish(telemetry(agent, owner.pub, "2"))).slice(2),
		[true, "received by 2 readers"]);
	await Promise.all([writer, ...readers].map((peer) => peer.close()));
});

test("with --mute what is not kept and nobody received is OK false, telemetry and what is heard is not", async () => {
	const own = await startRelay(["--mute"]);
	const owner = makeKey(), agent = makeAgent(owner);
	const harness = await Peer.as(own.url, agent), observer = await Peer.as(own.url, owner);
	assert.deepEqual((await harness.publish(telemetry(agent, owner.pub))).slice(2), [true, "received by 0 readers"]);
	const lost = control(owner, agent.pub), ephemeral = sign(owner, { kind: 20001 });
	for (const event of [lost, ephemeral])
		assert.deepEqual((await observer.publish(event)).slice(2), [false, "mute: nobody listened for it"]);
	await harness.subscribe("controls", framesFor(agent));
	await harness.subscribe("others", { kinds: [20001] });
	// Sent again it is no duplicate.
	for (const event of [lost, ephemeral])
		assert.deepEqual((await observer.publish(event)).slice(2), [true, "received by 1 reader"]);
	assert.equal((await harness.next("EVENT", "controls"))[2].id, lost.id);
	await Promise.all([harness.close(), observer.close()]);
	await stopRelay(own);
});

test("an owner's control reaches the agent", async () => {
	const owner = makeKey();
	const agent = makeAgent(owner);
	const harness = await Peer.as(relay.url, agent);
	await harness.subscribe("controls", framesFor(agent));
	const observer = await Peer.as(relay.url, owner);
	const event = control(owner, agent.pub, '{"type":"cancel_turn"}');
	assert.equal((await observer.publish(event))[2], true);
	const [, , got] = await harness.next("EVENT", "controls");
	assert.equal(open(agent, got), '{"type":"cancel_turn"}');
	await Promise.all([harness.close(), observer.close()]);
});

test("a foreign key cannot subscribe to somebody's frames", async () => {
	const owner = makeKey();
	const stranger = await Peer.as(relay.url, makeKey());
	stranger.send("REQ", "spy", framesFor(owner));
	assert.match((await stranger.next("CLOSED", "spy"))[2], /^restricted: /);
	stranger.send("REQ", "all", { kinds: [24200] });
	assert.match((await stranger.next("CLOSED", "all"))[2], /^restricted: /);
	await stranger.close();
});

test("before AUTH a subscription to frames is closed with auth-required", async () => {
	const owner = makeKey();
	const peer = await Peer.open(relay.url);
	peer.send("REQ", "early", framesFor(owner));
	assert.match((await peer.next("CLOSED", "early"))[2], /^auth-required: /);
	await peer.auth(owner);
	assert.deepEqual(await peer.subscribe("early", framesFor(owner)), []);
	await peer.close();
});

test("AUTH and REQ may be sent in one breath", async () => {
	const owner = makeKey();
	const peer = await Peer.open(relay.url);
	peer.send("AUTH", authEvent(owner, relay.url, await peer.challenge()));
	assert.deepEqual(await peer.subscribe("now", framesFor(owner)), []);
	await peer.close();
});

test("a broader filter never matches a frame", async () => {
	const owner = makeKey();
	const agent = makeAgent(owner);
	const spy = await Peer.as(relay.url, makeKey());
	await spy.subscribe("everything", {});
	await spy.subscribe("mixed", { kinds: [1, 24200] });
	await spy.subscribe("theirs", { "#p": [owner.pub] });
	const writer = await Peer.as(relay.url, agent);
	const ok = await writer.publish(telemetry(agent, owner.pub));
	assert.equal(ok[3], "received by 0 readers");
	await spy.settle();
	assert.deepEqual(spy.inbox, []);
	await Promise.all([spy.close(), writer.close()]);
});

test("one connection may hold several keys and reads for each", async () => {
	const [first, second] = [makeKey(), makeKey()];
	const agents = [makeAgent(first), makeAgent(second)];
	const reader = await Peer.as(relay.url, first, second);
	await reader.subscribe("both", { kinds: [24200], "#p": [first.pub, second.pub] });
	const writer = await Peer.as(relay.url, ...agents);
	for (const [i, owner] of [first, second].entries()) {
		const frame = telemetry(agents[i], owner.pub);
		assert.equal((await writer.publish(frame))[2], true);
		assert.equal((await reader.next("EVENT", "both"))[2].id, frame.id);
	}
	await Promise.all([reader.close(), writer.close()]);
});

test("a frame's own auth tag binds an agent that authenticated without one", async () => {
	const owner = makeKey();
	const agent = makeAgent(owner);
	const writer = await Peer.as(relay.url, { secret: agent.secret, pub: agent.pub });
	const bare = telemetry(agent, owner.pub);
	assert.match((await writer.publish(bare))[3], /^restricted: nothing attests/);
	const tagged = telemetry(agent, owner.pub, "{}", { tags: [agent.auth] });
	assert.equal((await writer.publish(tagged))[2], true);
	assert.equal((await writer.publish(bare))[2], true);
	await writer.close();
});

test("a frame to somebody who is not the owner is refused", async () => {
	const owner = makeKey();
	const agent = makeAgent(owner);
	const writer = await Peer.as(relay.url, agent);
	const ok = await writer.publish(telemetry(agent, makeKey().pub));
	assert.deepEqual([ok[2], /^restricted: /.test(ok[3])], [false, true]);
	await writer.close();
});

test("an attestation whose bound has passed does not bind, and AUTH says so", async () => {
	const owner = makeKey();
	const agent = makeAgent(owner, `created_at<${now() - 10}`);
	const writer = await Peer.open(relay.url);
	assert.match((await writer.auth(agent))[3], /^auth tag ignored: /);
	const ok = await writer.publish(telemetry(agent, owner.pub));
	assert.match(ok[3], /^restricted: /);
	await writer.close();
});

test("a stale frame is refused with the relay's clock in the text", async () => {
	const owner = makeKey();
	const agent = makeAgent(owner);
	const writer = await Peer.as(relay.url, agent);
	for (const away of [-400, 400]) {
		const ok = await writer.publish(telemetry(agent, owner.pub, "{}", { created_at: now() + away }));
		assert.equal(ok[2], false);
		assert.match(ok[3], /^invalid: created_at is more than 300 s from the relay's clock/);
	}
	await writer.close();
});

test("a forged frame is refused for its id or its signature", async () => {
	const owner = makeKey();
	const agent = makeAgent(owner);
	const writer = await Peer.as(relay.url, agent);
	const frame = telemetry(agent, owner.pub);
	const other = telemetry(agent, owner.pub, "other");
	// Whoever wrote the client sees which id we make of it, there and in the log, but no content.
	const ours = getEventHash({ ...frame, content: other.content });
	let ok = await writer.publish({ ...frame, content: other.content });
	assert.deepEqual(ok.slice(2), [false, `invalid: id is not the hash of the event, which is ${ours}`]);
	await logged(relay, new RegExp(`reason=id [^\n]*which is ${ours}$`, "m"));
	assert.ok(!relay.stderr().includes(other.content));
	ok = await writer.publish({ ...frame, sig: other.sig });
	assert.deepEqual([ok[2], /^invalid: .*signature/.test(ok[3])], [false, true], ok[3]);
	await writer.close();
});

test("a repeat is a duplicate once a reader has it, and is sent on until then", async () => {
	const owner = makeKey();
	const agent = makeAgent(owner);
	const harness = await Peer.as(relay.url, agent);
	const observer = await Peer.as(relay.url, owner);
	const event = control(owner, agent.pub); // not kept in the window
	assert.equal((await observer.publish(event))[3], "received by 0 readers");
	await harness.subscribe("controls", framesFor(agent));
	assert.equal((await observer.publish(event))[3], "received by 1 reader");
	assert.equal((await harness.next("EVENT", "controls"))[2].id, event.id);
	const ok = await observer.publish(event);
	assert.deepEqual([ok[2], /^duplicate: /.test(ok[3])], [true, true]);
	await harness.settle();
	assert.deepEqual(harness.inbox, []);
	await Promise.all([harness.close(), observer.close()]);
});

test("a frame that a reader got from the window is a duplicate too", async () => {
	const owner = makeKey();
	const agent = makeAgent(owner);
	const writer = await Peer.as(relay.url, agent);
	const frame = telemetry(agent, owner.pub);
	await writer.publish(frame);
	const reader = await Peer.as(relay.url, owner);
	assert.equal((await reader.subscribe("all", framesFor(owner))).length, 1);
	assert.match((await writer.publish(frame))[3], /^duplicate: /);
	await reader.settle();
	assert.deepEqual(reader.inbox, []);
	await Promise.all([writer.close(), reader.close()]);
});

test("an unknown frame value is accepted and goes nowhere", async () => {
	const owner = makeKey();
	const agent = makeAgent(owner);
	const reader = await Peer.as(relay.url, owner);
	await reader.subscribe("all", framesFor(owner));
	const writer = await Peer.as(relay.url, agent);
	const frame = sign(agent, { kind: 24200, content: telemetry(agent, owner.pub).content,
		tags: [["p", owner.pub], ["agent", agent.pub], ["frame", "weather"]] });
	assert.equal((await writer.publish(frame))[2], true);
	await reader.settle();
	assert.deepEqual(reader.inbox, []);
	await Promise.all([reader.close(), writer.close()]);
});

test("more frames a second of one agent than it may send are refused with rate-limited", async () => {
	const own = await startRelay(["--key-frames", "5"]); // a slow machine would not send 100 a second
	const owner = makeKey();
	const agent = makeAgent(owner);
	const writer = await Peer.as(own.url, agent);
	const frames = Array.from({ length: 400 }, (_, i) => telemetry(agent, owner.pub, String(i)));
	const started = performance.now();
	const oks = await Promise.all(frames.map((frame) => writer.publish(frame)));
	const seconds = (performance.now() - started) / 1000;
	const accepted = oks.filter((ok) => ok[2]).length;
	assert.ok(accepted >= 5 && accepted <= 5 + 5 * seconds + 1, `${accepted} in ${seconds} s`);
	assert.ok(accepted < frames.length, `400 frames took ${seconds} s: too slow to be refused`);
	for (const ok of oks.filter((each) => !each[2]))
		assert.match(ok[3], /^rate-limited: frames of this agent: 5\/s, try again in 1 s$/);
	await writer.close();
	await stopRelay(own);
});

test("the window serves what came before, oldest first, then EOSE, then live", async () => {
	const owner = makeKey();
	const agent = makeAgent(owner);
	const writer = await Peer.as(relay.url, agent);
	const t = now();
	const frames = [-200, -100, -1].map((age) =>
		telemetry(agent, owner.pub, String(age), { created_at: t + age }));
	for (const frame of [frames[1], frames[0], frames[2]])
		assert.equal((await writer.publish(frame))[2], true);
	const reader = await Peer.as(relay.url, owner);
	const events = await reader.subscribe("all", framesFor(owner));
	assert.deepEqual(events.map((event) => event.id), frames.map((frame) => frame.id));
	const recent = await reader.subscribe("recent", { ...framesFor(owner), since: t - 100 });
	assert.deepEqual(recent.map((event) => event.id), [frames[1].id, frames[2].id]);
	const newest = await reader.subscribe("newest", { ...framesFor(owner), limit: 2 });
	assert.deepEqual(newest.map((event) => event.id), [frames[2].id, frames[1].id]);
	assert.deepEqual(await reader.subscribe("none", { ...framesFor(owner), limit: 0 }), []);
	const live = telemetry(agent, owner.pub, "live");
	await writer.publish(live);
	for (const id of ["all", "recent", "newest", "none"])
		assert.equal((await reader.next("EVENT", id))[2].id, live.id);
	await Promise.all([writer.close(), reader.close()]);
});

test("controls are not kept in the window", async () => {
	const owner = makeKey();
	const agent = makeAgent(owner);
	const harness = await Peer.as(relay.url, agent);
	const observer = await Peer.as(relay.url, owner);
	assert.equal((await observer.publish(control(owner, agent.pub)))[2], true);
	assert.deepEqual(await harness.subscribe("late", framesFor(agent)), []);
	await Promise.all([harness.close(), observer.close()]);
});

test("no frame is lost or doubled between the window and live", async () => {
	const owner = makeKey();
	const agent = makeAgent(owner);
	const writer = await Peer.as(relay.url, agent);
	const reader = await Peer.as(relay.url, owner);
	const frames = Array.from({ length: 90 }, (_, i) => telemetry(agent, owner.pub, String(i)));
	const oks = [];
	for (const [i, frame] of frames.entries()) {
		oks.push(writer.publish(frame));
		if (i === 45)
			reader.send("REQ", "middle", framesFor(owner));
	}
	for (const ok of await Promise.all(oks))
		assert.equal(ok[2], true, ok[3]);
	await reader.settle();
	await reader.next("EOSE", "middle");
	const ids = reader.inbox.filter((message) => message[0] === "EVENT").map((message) => message[2].id);
	assert.deepEqual(ids, frames.map((frame) => frame.id));
	await Promise.all([writer.close(), reader.close()]);
});

test("other ephemeral kinds reach whoever asks, the publisher too", async () => {
	const key = makeKey();
	const peer = await Peer.as(relay.url, key);
	const other = await Peer.open(relay.url);
	await peer.subscribe("own", { kinds: [20001], authors: [key.pub] });
	await other.subscribe("tagged", { kinds: [20001], "#t": ["perch"] }, { kinds: [20001] });
	const event = sign(key, { kind: 20001, tags: [["t", "perch"]], content: "typing" });
	assert.equal((await peer.publish(event))[3], "received by 2 readers");
	assert.equal((await peer.next("EVENT", "own"))[2].id, event.id);
	assert.equal((await other.next("EVENT", "tagged"))[2].id, event.id);
	await other.settle();
	assert.deepEqual(other.inbox.filter((message) => message[0] === "EVENT"), []);
	assert.match((await other.publish(event))[3], /^auth-required: /);
	await Promise.all([peer.close(), other.close()]);
});
