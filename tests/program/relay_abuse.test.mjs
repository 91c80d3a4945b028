// Clients that mean harm, or are broken: the relay stays calm, and a good client beside them notices nothing.
import assert from "node:assert/strict";
import net from "node:net";
import { after, afterEach, before, test } from "node:test";
import { makeAgent, makeKey, sign, telemetry } from "./support/keys.mjs";
import { Peer } from "./support/peer.mjs";
import { logged, startRelay, stopRelay } from "./support/perch.mjs";
import { close, frame, Raw, text } from "./support/raw.mjs";
import { TIMEOUT_MS } from "./support/timeout.mjs";

let relay, good, owner, agent, reader;
const framesFor = (key) => ({ kinds: [24200], "#p": [key.pub], limit: 0 });

before(async () => {
	relay = await startRelay();
	owner = makeKey();
	agent = makeAgent(owner);
	good = await Peer.as(relay.url, agent);
	reader = await Peer.as(relay.url, owner);
	await reader.subscribe("good", framesFor(owner));
});
after(async () => {
	await Promise.all([good.close(), reader.close()]);
	await stopRelay(relay);
});

// Whatever came before: a frame still reaches its reader.
let n = 0;
afterEach(async () => {
	const event = telemetry(agent, owner.pub, `{"seq":${++n}}`);
	assert.equal((await good.publish(event))[2], true);
	assert.equal((await reader.next("EVENT", "good"))[2].id, event.id);
});

const ended = (socket) => new Promise((resolve) => socket.on("close", resolve).on("error", () => {}));
const connect = () => {
	const socket = net.connect(relay.port, "127.0.0.1");
	socket.on("error", () => {});
	return socket;
};
test("a request that trickles in is cut off", async () => {
	const socket = connect();
	const timer = setInterval(() => socket.write("X-Slow: 1\r\n"), 500);
	socket.write("GET / HTTP/1.1\r\nHost: a\r\n");
	await ended(socket);
	clearInterval(timer);
});

test("a socket that says nothing is cut off", async () => {
	const socket = connect();
	socket.resume();
	await ended(socket);
});

test("a header over the limit, and a body, are refused", async () => {
	for (const request of [`GET / HTTP/1.1\r\nHost: a\r\nX: ${"y".repeat(20000)}\r\n\r\n`,
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\nx", "GARBAGE\r\n\r\n", "\0\0\0\0\r\n\r\n"]) {
		const socket = connect();
		let answer = "";
		socket.setEncoding("latin1").on("data", (piece) => { answer += piece; });
		socket.write(request);
		await ended(socket);
		assert.doesNotMatch(answer, /^HTTP\/1.1 (1|2)/);
	}
});

test("a message that trickles in costs what it weighs and is answered when whole", async () => {
	const raw = await Raw.open(relay.port);
	const message = JSON.stringify(["REQ", "slow", { kinds: [20001] }]);
	raw.send(frame({ payload: message[0], fin: false }));
	for (const letter of message.slice(1)) raw.send(frame({ opcode: 0, fin: false, payload: letter }));
	raw.send(frame({ opcode: 0 }));
	assert.equal((await raw.message("EOSE"))[1], "slow");
	await raw.end();
});

test("of ten thousand subscriptions 64 are kept, the others are refused one by one", async () => {
	const raw = await Raw.open(relay.port);
	const refused = { subscriptions: 0, rate: 0 };
	const begin = performance.now();
	let open = 0;
	for (let i = 0; i < 10000; i += 100) {
		raw.send(...Array.from({ length: 100 }, (_, k) => text(["REQ", `s${i + k}`, { kinds: [20001] }])));
		for (let k = 0; k < 100; k++) {
			const { payload } = await raw.next(({ opcode, payload }) => opcode === 1 && /^\["(EOSE|CLOSED)"/.test(payload));
			const [verb, , why] = JSON.parse(payload);
			if (verb === "EOSE") open++;
			else if (/^rate-limited: /.test(why)) refused.rate++;
			else refused.subscriptions += /^error: at most 64/.test(why) ? 1 : NaN;
		}
	}
	assert.equal(open, 64);
	// 256 at once and 50 a second are looked at.
	const looked = 256 + 50 * (performance.now() - begin) / 1000;
	assert.ok(refused.subscriptions > 0 && open + refused.subscriptions <= looked, `${JSON.stringify(refused)}, ${looked}`);
	assert.equal(open + refused.subscriptions + refused.rate, 10000);
	await raw.end();
});

test("giant filters are refused by their number of values, their bytes or the message's size", async () => {
	const peer = await Peer.open(relay.url);
	const hex = (i) => i.toString(16).padStart(64, "0");
	const many = (count, make) => Array.from({ length: count }, (_, i) => make(i));
	peer.send("REQ", "values", { "#t": many(5001, String) });
	assert.match((await peer.next("CLOSED", "values"))[2], /^invalid: filter: more than 5000 values/);
	peer.send("REQ", "filters", ...many(11, () => ({ kinds: [1] })));
	assert.match((await peer.next("CLOSED", "filters"))[2], /^invalid: /);
	for (let i = 0; i < 10; i++) peer.send("REQ", `bytes${i}`, { authors: many(3000, hex) });
	const answers = await Promise.all(many(10, () => peer.nextAnswer()));
	assert.ok(answers.some(([verb, , why]) => verb === "CLOSED" && /^error: more than \d+ bytes of filters/.test(why)));
	peer.socket.terminate();
	await peer.closed;
});

test("NUL, broken UTF-8 and lone surrogates are refused and harm nobody", async () => {
	const peer = await Peer.open(relay.url);
	assert.deepEqual(await peer.subscribe("a\u0000b", {}), []); // escaped, it is a character like others
	for (const id of ['"\\ud800"', '"a\u0000b"']) {
		peer.raw(`["REQ",${id},{}]`);
		assert.match((await peer.nextRefusal()).at(-1), /^invalid: /);
	}
	peer.raw('["REQ","t",{"#t":["\\u0000"]}]');
	assert.match((await peer.nextRefusal()).at(-1), /^invalid: /);
	await peer.close();
});

test("AUTH that races other messages is judged in the order sent", async () => {
	const key = makeKey();
	const peer = await Peer.open(relay.url);
	const first = sign(key, { kind: 20001, content: "before" }), second = sign(key, { kind: 20001, content: "after" });
	const wrong = sign(key, { kind: 22242, tags: [["relay", relay.url], ["challenge", "guessed"]] });
	const right = sign(key, { kind: 22242, tags: [["relay", relay.url], ["challenge", await peer.challenge()]] });
	for (const message of [["EVENT", first], ["AUTH", wrong], ["AUTH", right], ["AUTH", right], ["EVENT", second]]) peer.send(...message);
	assert.match((await peer.next("OK", first.id))[3], /^auth-required: /);
	assert.match((await peer.next("OK", wrong.id))[3], /^invalid: /);
	assert.equal((await peer.next("OK", right.id))[2], true);
	assert.equal((await peer.next("OK", right.id))[2], true);
	assert.equal((await peer.next("OK", second.id))[2], true);
	await peer.close();
});

test("a challenge is good for its own connection only", async () => {
	const key = makeKey();
	const [one, two] = [await Peer.open(relay.url), await Peer.open(relay.url)];
	const stolen = sign(key, { kind: 22242, tags: [["relay", relay.url], ["challenge", await one.challenge()]] });
	two.send("AUTH", stolen);
	assert.equal((await two.next("OK", stolen.id))[2], false);
	await Promise.all([one.close(), two.close()]);
});

test("two thousand connections come and go, half in mid-handshake, mid-frame or mid-close", async () => {
	const request = "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
	const ends = [
		(socket) => socket.destroy(),
		(socket) => { socket.write(request.slice(0, 40)); socket.destroy(); },
		(socket) => { socket.write(request); socket.destroy(); },
		(socket) => { socket.write(request); socket.once("data", () => socket.destroy()); },
		(socket) => { socket.write(request); socket.once("data", () => { socket.write(text('["REQ","a",{}]').subarray(0, 9)); socket.destroy(); }); },
		(socket) => { socket.write(request); socket.once("data", () => socket.end(Buffer.concat([text('["REQ","a",{}]'), close(1000)]))); },
		(socket) => { socket.write(Buffer.concat([Buffer.from(request), text('["REQ","a",{}]'), close(1000)])); },
		(socket) => { socket.write(request); socket.once("data", () => socket.resetAndDestroy()); },
	];
	for (let i = 0; i < 2000; i += 100)
		await Promise.all(Array.from({ length: 100 }, (_, k) => {
			const socket = connect();
			socket.once("connect", () => ends[(i + k) % ends.length](socket));
			socket.resume();
			return ended(socket);
		}));
	// None of them is left behind as a reader.
	let heard = "";
	for (const end = Date.now() + TIMEOUT_MS; heard !== "received by 0 readers" && Date.now() < end;) {
		heard = (await good.publish(sign(agent, { kind: 20003, content: Math.random().toString(36) })))[3];
		await new Promise((resolve) => setTimeout(resolve, 50));
	}
	assert.equal(heard, "received by 0 readers");
});

test("many idle subscribers are held, and all of them hear an event", async () => {
	const topic = Math.random().toString(36);
	const peers = [];
	for (let i = 0; i < 1000; i += 50)
		peers.push(...await Promise.all(Array.from({ length: 50 }, async () => {
			const peer = await Peer.open(relay.url);
			await peer.subscribe("idle", { kinds: [20001], "#t": [topic] });
			return peer;
		})));
	const event = sign(agent, { kind: 20001, tags: [["t", topic]] });
	assert.equal((await good.publish(event))[3], "received by 1000 readers");
	await Promise.all(peers.map((peer) => peer.next("EVENT", "idle")));
	for (const peer of peers) peer.socket.terminate();
	await Promise.all(peers.map((peer) => peer.closed));
});

test("a reader that never reads costs its queue at most, and is told and closed", async () => {
	const slow = await Raw.open(relay.port);
	slow.send(text(["REQ", "slow", { kinds: [20002] }]));
	await slow.message("EOSE");
	slow.socket.pause();
	const writer = makeKey();
	const peer = await Peer.as(relay.url, writer);
	let last = ["OK", "", true, ""];
	// More than its queue and both sockets' buffers may hold: it is no reader any more.
	for (let i = 0; i < 400 && last[3] !== "received by 0 readers"; i++) {
		last = await peer.publish(sign(writer, { kind: 20002, content: "x".repeat(200000), tags: [["n", String(i)]] }));
		assert.equal(last[2], true, last[3]);
	}
	assert.equal(last[3], "received by 0 readers");
	slow.socket.resume();
	await slow.ended;
	await logged(relay, /reason=behind/);
	await peer.close();
});
