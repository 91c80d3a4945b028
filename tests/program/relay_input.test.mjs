// What the relay does with bad input and bad readers: a clear answer, and nobody else notices.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { control, makeAgent, makeKey, now, sign, telemetry } from "./support/keys.mjs";
import { Peer } from "./support/peer.mjs";
import { logged, startRelay, stopRelay } from "./support/perch.mjs";

let relay;
before(async () => { relay = await startRelay(); });
after(() => stopRelay(relay));

const framesFor = (key) => ({ kinds: [24200], "#p": [key.pub] });

test("malformed messages get a NOTICE and the connection stays", async () => {
	const peer = await Peer.open(relay.url);
	const messages = ["", "x", "{}", "[]", "[1]", '["HELLO"]', '["EVENT"]', '["EVENT",1]', '["EVENT",{}]', "null",
		'["EVENT",{"id":"zz"}]', '["REQ"]', '["REQ",1,{}]', '["CLOSE"]', '["AUTH","challenge"]', '["AUTH",{}]',
		'["REQ","a",{}', '["REQ","a",{}]]', "[".repeat(100000), '["EVENT",' + '{"a":'.repeat(1000),
		'["REQ","a",{}]\u0000', '\ufeff["CLOSE","a"]'];
	for (const message of messages) {
		peer.raw(message);
		const answer = await peer.nextRefusal();
		assert.match(answer.at(-1), /^invalid: ./, message.slice(0, 40));
	}
	assert.deepEqual(await peer.subscribe("still-here", {}), []);
	await peer.close();
});

test("a malformed event with an id gets OK false with that id", async () => {
	const key = makeKey();
	const peer = await Peer.as(relay.url, key);
	const good = sign(key, { kind: 20001, content: "x" });
	const broken = [
		{ ...good, kind: 65536 }, { ...good, kind: "20001" }, { ...good, kind: 1.5 }, { ...good, created_at: -1 },
		{ ...good, created_at: "now" }, { ...good, tags: [[]] }, { ...good, tags: [[1]] }, { ...good, tags: {} },
		{ ...good, tags: [["a", null]] }, { ...good, content: 7 }, { ...good, content: "a\u0000b" },
		{ ...good, sig: good.sig.slice(2) }, { ...good, pubkey: good.pubkey.toUpperCase() }, { ...good, content: undefined },
	];
	for (const event of broken) {
		const ok = await peer.publish(event);
		assert.equal(ok[2], false);
		assert.match(ok[3], /^invalid: ./);
	}
	assert.equal((await peer.publish(good))[2], true);
	await peer.close();
});

test("members that are not NIP-01's are not handed on", async () => {
	const key = makeKey();
	const peer = await Peer.as(relay.url, key);
	await peer.subscribe("a", { kinds: [20001] });
	const event = sign(key, { kind: 20001, tags: [["t", "x"]], content: 'quo"te' });
	assert.equal((await peer.publish({ seenOn: ["elsewhere"], ...event, extra: { deep: [1] } }))[2], true);
	assert.deepEqual((await peer.next("EVENT", "a"))[2], JSON.parse(JSON.stringify(event)));
	await peer.close();
});

test("bad filters get CLOSED with the subscription's id", async () => {
	const peer = await Peer.open(relay.url);
	const wrong = [{ ids: ["abc"] }, { authors: ["A".repeat(64)] }, { "#p": ["x"] }, { kinds: [70000] }, { kinds: "1" },
		{ since: -1 }, { until: 1.5 }, { limit: "1" }];
	for (const [i, filter] of wrong.entries()) {
		peer.send("REQ", `f${i}`, filter);
		assert.match((await peer.next("CLOSED", `f${i}`))[2], /^invalid: ./);
	}
	peer.send("REQ", "u", { search: "x" });
	assert.match((await peer.next("CLOSED", "u"))[2], /^unsupported: ./);
	peer.send("REQ", "none");
	assert.match((await peer.next("CLOSED", "none"))[2], /^invalid: ./);
	await peer.close();
});

test("a refused REQ ends the subscription that had its id", async () => {
	const key = makeKey();
	const peer = await Peer.as(relay.url, key);
	await peer.subscribe("a", { kinds: [20001] });
	peer.send("REQ", "a", { kinds: [24200] });
	await peer.next("CLOSED", "a");
	const ok = await peer.publish(sign(key, { kind: 20001 }));
	assert.equal(ok[3], "received by 0 readers");
	await peer.close();
});

test("subscription ids are echoed exactly", async () => {
	const peer = await Peer.open(relay.url);
	for (const id of ['quo"te', "back\\slash", "tab\tand\nline", "жар-птица 🦜", " ", "\u007f"])
		assert.deepEqual(await peer.subscribe(id, {}), []);
	await peer.close();
});

test("CLOSE ends a subscription in silence, also one that was never there", async () => {
	const key = makeKey();
	const peer = await Peer.as(relay.url, key);
	await peer.subscribe("a", { kinds: [20001] });
	peer.send("CLOSE", "a");
	peer.send("CLOSE", "never");
	assert.equal((await peer.publish(sign(key, { kind: 20001 })))[3], "received by 0 readers");
	assert.deepEqual(peer.inbox, []);
	await peer.close();
});

test("the same id again replaces the subscription", async () => {
	const key = makeKey();
	const peer = await Peer.as(relay.url, key);
	await peer.subscribe("a", { kinds: [20001] });
	await peer.subscribe("a", { kinds: [20002] });
	assert.equal((await peer.publish(sign(key, { kind: 20001 })))[3], "received by 0 readers");
	assert.equal((await peer.publish(sign(key, { kind: 20002 })))[3], "received by 1 reader");
	await peer.close();
});

test("since and until hold for live events", async () => {
	const key = makeKey();
	const peer = await Peer.as(relay.url, key);
	await peer.subscribe("past", { kinds: [20001], until: now() - 10 });
	await peer.subscribe("future", { kinds: [20001], since: now() + 1000 });
	assert.equal((await peer.publish(sign(key, { kind: 20001 })))[3], "received by 0 readers");
	await peer.close();
});

test("a fragmented message is one message", async () => {
	const peer = await Peer.open(relay.url);
	const text = JSON.stringify(["REQ", "in-pieces", { kinds: [20001] }]);
	for (const [i, letter] of [...text].entries())
		peer.socket.send(letter, { fin: i === text.length - 1 });
	await peer.next("EOSE", "in-pieces");
	await peer.close();
});

test("a binary message gets a NOTICE and the connection stays", async () => {
	const peer = await Peer.open(relay.url);
	peer.socket.send(Buffer.from('["REQ","a",{}]'), { binary: true });
	assert.match((await peer.next("NOTICE"))[1], /^unsupported: binary/);
	assert.deepEqual(await peer.subscribe("b", {}), []);
	await peer.close();
});

test("text that is not UTF-8 closes with 1007", async () => {
	for (const text of ['["EVENT",{"content":"\xff"}]', '["REQ","\xc0\xaf",{}]', "\xff"]) {
		const peer = await Peer.open(relay.url);
		peer.socket.send(Buffer.from(text, "latin1"), { binary: false });
		assert.equal((await peer.closed).code, 1007);
	}
});

test("answers come in the order of the messages", async () => {
	const key = makeKey();
	const peer = await Peer.as(relay.url, key);
	await peer.challenge();
	const events = Array.from({ length: 50 }, (_, i) => sign(key, { kind: 20001, content: String(i) }));
	for (const event of events)
		peer.send("EVENT", event);
	await peer.settle();
	assert.deepEqual(peer.inbox.map((message) => message[1]), events.map((event) => event.id));
	await peer.close();
});

test("a reader that stops reading is dropped with CLOSED; another one gets everything", async () => {
	const owner = makeKey();
	const agents = Array.from({ length: 6 }, () => makeAgent(owner));
	const writers = await Promise.all(agents.map((agent) => Peer.as(relay.url, agent)));
	const [slow, quick] = await Promise.all([Peer.as(relay.url, owner), Peer.as(relay.url, owner)]);
	await Promise.all([slow.subscribe("slow", framesFor(owner)), quick.subscribe("quick", framesFor(owner))]);
	slow.socket.pause();
	// 6 x 45 frames of 87 kB: more than the socket buffers of both ends and the queue hold.
	const sent = [];
	for (const [i, agent] of agents.entries()) {
		const { kind, tags, content } = telemetry(agent, owner.pub, "x".repeat(65000));
		for (let n = 0; n < 45; n++) {
			const frame = sign(agent, { kind, content, tags: [...tags, ["n", String(n)]] });
			const ok = await writers[i].publish(frame);
			assert.equal(ok[2], true, ok[3]);
			sent.push(frame.id);
		}
	}
	await quick.settle();
	assert.deepEqual(quick.inbox.map((message) => message[2].id), sent);
	// It was cut within 5 s; what was on its way may still be read.
	slow.socket.resume();
	const { code } = await slow.closed;
	const got = slow.inbox.filter((message) => message[0] === "EVENT").length;
	assert.ok(got < sent.length, `slow got all ${got}`);
	if (code === 1008)
		assert.match(slow.inbox.at(-1)[2], /^error: reader too slow/);
	else
		assert.equal(code, 1006); // cut before it read again
	await logged(relay, /reason=behind/);
	assert.equal((await writers[0].publish(telemetry(agents[0], owner.pub, "after")))[3], "received by 1 reader");
	await Promise.all([...writers, quick].map((peer) => peer.close()));
});

test("a flood of refusals is one log line a reason, with a count", async () => {
	const other = await startRelay();
	const key = makeKey();
	const peer = await Peer.as(other.url, key);
	// Signed first and sent together: after ten seconds there would be another line.
	const events = Array.from({ length: 50 }, (_, i) => sign(key, { kind: 22242, content: String(i) }));
	await Promise.all(events.map((event) => peer.publish(event)));
	await peer.close();
	await other.stop();
	assert.equal(other.stderr().match(/reason=kind/g).length, 1);
});

test("what is refused is not written to the log with all it holds", async () => {
	const other = await startRelay();
	const key = makeKey(), long = "secret ".repeat(30000);
	const peer = await Peer.as(other.url, key);
	const event = sign(key, { kind: 20001, content: long });
	for (const wrong of [{ ...event, sig: "0".repeat(128) }, { ...event, kind: 70000 }, { ...event, content: "", tags: [[long]] }])
		assert.equal((await peer.publish(wrong))[2], false);
	for (const message of [["HELLO", long], ["REQ", long, {}], ["REQ", "a", { [long]: 1 }], ["REQ", "a", { kinds: [long] }], ["CLOSE", long]]) {
		peer.send(...message);
		await peer.nextRefusal();
	}
	peer.raw("secret ".repeat(40000));
	assert.equal((await peer.closed).code, 1009);
	await other.stop();
	const lines = other.stderr().trim().split("\n");
	assert.ok(lines.length >= 5, other.stderr().slice(0, 5000));
	for (const line of lines)
		assert.ok(line.length < 400 && !line.includes("secret secret"), line.slice(0, 1000));
});

test("a control to an agent that never showed its attestation is refused", async () => {
	const owner = makeKey();
	const peer = await Peer.as(relay.url, owner);
	const ok = await peer.publish(control(owner, makeKey().pub));
	assert.deepEqual([ok[2], /^restricted: /.test(ok[3])], [false, true]);
	await peer.close();
});
