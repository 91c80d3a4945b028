// The relay on a server: beyond loopback, behind a proxy, under TLS, and what its limits say.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { get } from "node:https";
import { connect as connectTcp } from "node:net";
import { networkInterfaces, tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { connect as connectTls } from "node:tls";
import WebSocket from "ws";
import { scriptedAgent } from "./support/harness.mjs";
import { authEvent, bytesToHex, makeAgent, makeKey, open, sign, telemetry } from "./support/keys.mjs";
import { Peer, upgrade } from "./support/peer.mjs";
import { logged, perchBin, spawnPerch, withRelay } from "./support/perch.mjs";

let folder; // certificates
before(() => {
	folder = mkdtempSync(join(tmpdir(), "perch-tls-"));
	for (const name of ["first", "second"])
		execFileSync("openssl", ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
			"-days", "2", "-subj", `/CN=${name}`, "-addext", "subjectAltName=DNS:localhost,DNS:relay.example,IP:127.0.0.1",
			"-keyout", join(folder, `${name}.key`), "-out", join(folder, `${name}.pem`)], { stdio: "ignore" });
});
after(() => rmSync(folder, { recursive: true, force: true }));

const from = (address) => ({ headers: { "x-forwarded-for": address } });

test("beyond loopback it serves whoever reaches it, by each of its addresses", async (t) => {
	const addresses = Object.values(networkInterfaces()).flat().filter((each) => !each.internal && !each.scopeid);
	if (addresses.length === 0)
		return t.skip("this machine has no other address");
	for (const [listen, family] of [["0.0.0.0:0", "IPv4"], ["[::]:0", "IPv6"]]) {
		const { address } = addresses.find((each) => each.family === family) ?? {};
		if (!address)
			continue;
		await withRelay(["--listen", listen, "--owners", "open"], async (relay) => {
			const url = `ws://${family === "IPv6" ? `[${address}]` : address}:${relay.port}`;
			const peer = await Peer.open(url);
			await peer.auth(makeKey()); // the address it was reached by is ours
			await peer.close();
			await logged(relay, /^warn relay: no TLS beyond loopback: /m);
			await logged(relay, /^warn relay: --owners open beyond loopback: /m);
		});
	}
});

test("beyond loopback a foreign page's origin is its own business, on loopback it is refused", async (t) => {
	const { address } = Object.values(networkInterfaces()).flat().find((each) => !each.internal && each.family === "IPv4") ?? {};
	if (!address)
		return t.skip("this machine has no other address");
	await withRelay(["--listen", "0.0.0.0:0", "--owners", "open"], async (relay) => {
		const origin = "https://client.example";
		const far = await upgrade(`ws://${address}:${relay.port}`, { origin });
		assert.equal(far.status, 101);
		far.socket.close();
		assert.equal((await upgrade(relay.url, { origin })).status, 403);
		await logged(relay, /^info relay: refused connection address=127\.0\.0\.1 reason=origin silent=0: https:/m);
	});
});

test("connections of one address have a cap; a trusted proxy says whose they are", async () => {
	await withRelay(["--trusted-proxy", "127.0.0.1", "--connections-per-address", "2"], async (relay) => {
		const one = from("203.0.113.66, 198.51.100.7"); // the first was written by the client itself
		const open = [await upgrade(relay.url, one), await upgrade(relay.url, one)];
		const refused = await upgrade(relay.url, one);
		assert.deepEqual(refused, { status: 429, text: "too many connections from this address: 2 at most, close one first\n" });
		await logged(relay, /refused connection address=198\.51\.100\.7 reason=address silent=0: too many/);
		open.push(await upgrade(relay.url, from("203.0.113.66")));
		open.push(await upgrade(relay.url, from("2001:db8::1")), await upgrade(relay.url, from("2001:db8::2")));
		assert.equal((await upgrade(relay.url, from("2001:db8::3"))).status, 429, "a /64 is one address");
		for (const { status } of open)
			assert.equal(status, 101);
		open[0].socket.close();
		await open[0].closed;
		open.push(await untilOpen(relay.url, one));
		// The proxy itself, saying nothing, is loopback and has no cap.
		for (let i = 0; i < 4; i++)
			open.push(await upgrade(relay.url));
		assert.equal(open.at(-1).status, 101);
		for (const { socket } of open)
			socket.close();
	});
});

/** The server hears of a close a moment after the client. */
async function untilOpen(url, options) {
	for (;;) {
		const answer = await upgrade(url, options);
		if (answer.status === 101)
			return answer;
	}
}

test("X-Forwarded-For of anybody else is not looked at", async () => {
	await withRelay(["--connections-per-address", "1", "--trusted-proxy", "192.0.2.77"], async (relay) => {
		const open = [];
		for (let i = 0; i < 3; i++)
			open.push(await upgrade(relay.url, from("198.51.100.7")));
		assert.deepEqual(open.map(({ status }) => status), [101, 101, 101]);
		for (const { socket } of open)
			socket.close();
	});
});

test("loopback has a cap when asked for, and so have sockets that say nothing", async () => {
	await withRelay(["--connections-per-address", "2", "--count-loopback"], async (relay) => {
		const open = [await upgrade(relay.url), await upgrade(relay.url)];
		assert.equal((await upgrade(relay.url)).status, 429);
		const silent = [];
		for (;;) { // 2 × 2 sockets may be there
			const socket = new WebSocket(relay.url);
			const [error] = await once(socket, "error");
			silent.push(error.message);
			if (!/429/.test(error.message))
				break;
			if (silent.length > 50)
				assert.fail("sockets have no cap");
			// A socket that never speaks.
			await holdSocket(relay.port);
		}
		assert.match(silent.at(-1), /hang up|ECONNRESET/);
		for (const { socket } of open)
			socket.close();
	});
});

const held = [];
async function holdSocket(port) {
	const socket = connectTcp(port, "127.0.0.1").on("error", () => {});
	held.push(socket);
	await once(socket, "connect");
}
after(() => held.forEach((socket) => socket.destroy()));

test("new connections of an address have a rate, and the refusal says which and how long", async () => {
	await withRelay(["--trusted-proxy", "127.0.0.1", "--address-connections", "1"], async (relay) => {
		// Together: a slow machine fills the bucket again while it connects them.
		const answers = await Promise.all(Array.from({ length: 40 }, () => upgrade(relay.url, from("198.51.100.7"))));
		const [open, refused] = [answers.filter(({ status }) => status === 101), answers.filter(({ status }) => status !== 101)];
		assert.ok(open.length >= 10 && refused.length > 0, `${open.length} of ${answers.length}`);
		for (const answer of refused)
			assert.deepEqual(answer, { status: 429, text: "rate-limited: connections of this address: 1/s, try again in 1 s\n" });
		open.push(await upgrade(relay.url, from("198.51.100.8")));
		assert.equal(open.at(-1).status, 101);
		for (const { socket } of open)
			socket.close();
	});
});

test("events of a key, REQ of an owner and bytes of an address have budgets of their own", async () => {
	const limits = ["--key-events", "1", "--owner-reqs", "1", "--address-bytes", "1000", "--trusted-proxy", "127.0.0.1"];
	await withRelay(limits, async (relay) => {
		const owner = makeKey(), agents = [makeAgent(owner), makeAgent(owner)];
		const [one, two] = await Promise.all(agents.map((agent) => Peer.as(relay.url, agent)));
		// Signed first and sent together: what is slow here fills the buckets again.
		const events = Array.from({ length: 40 }, (_, i) => sign(agents[0], { kind: 20001, content: `${i}` }));
		const refused = (await Promise.all(events.map((event) => one.publish(event)))).filter(([, , accepted]) => !accepted);
		assert.ok(refused.length > 0 && refused.length <= events.length - 10, `${refused.length}`);
		for (const [, , , text] of refused)
			assert.equal(text, "rate-limited: events of this key: 1/s, try again in 1 s");
		assert.equal((await two.publish(sign(agents[1], { kind: 20001 })))[2], true, "another key has its own");
		const reqs = "rate-limited: REQ and COUNT of this owner: 1/s, try again in 1 s";
		const empty = performance.now(); // or later
		for (let i = 0; i < 40; i++)
			one.send("REQ", "a", { limit: 0 });
		assert.equal((await one.next("CLOSED", "a"))[2], reqs);
		for (let i = 0; i < 20; i++)
			two.send("REQ", `${i}`, { limit: 0 });
		for (let i = 0; i < 20; i++)
			two.send("COUNT", `${i}`, {});
		let taken = 0;
		for (let i = 0; i < 40; i++) {
			const [verb, , text] = await two.nextAnswer();
			if (verb === "CLOSED")
				assert.equal(text, reqs);
			else
				taken++;
		}
		assert.ok(taken <= 1 + (performance.now() - empty) / 1000, `${taken}: an owner has one account for both`);
		const key = makeKey();
		const far = await Peer.open(relay.url, from("198.51.100.7"));
		const large = [0, 1].map((n) => sign(key, { kind: 20001, content: `${n}`.repeat(9000) }));
		for (const event of large)
			far.send("EVENT", event);
		far.raw(JSON.stringify(["HELLO", "x".repeat(9000)]));
		assert.match((await far.next("OK", large[0].id))[3], /^auth-required: /);
		assert.match((await far.next("OK", large[1].id))[3], /^rate-limited: bytes of this address: 1000\/s, try again in \d s$/);
		assert.match((await far.next("NOTICE"))[1], /^rate-limited: bytes of this address/);
		for (const peer of [one, two, far])
			await peer.close();
		await logged(relay, /reason=rate silent=\d+: rate-limited: events of this key/);
	});
});

test("frames are counted apart from other events, and an owner's may have a ceiling", async () => {
	await withRelay(["--key-events", "1", "--owner-frames", "5"], async (relay) => {
		const owner = makeKey(), agent = makeAgent(owner);
		const peer = await Peer.as(relay.url, agent);
		for (let i = 0; i < 11; i++)
			await peer.publish(sign(agent, { kind: 20001, content: `${i}` }));
		// Signed first and sent together: what is slow here fills the bucket again.
		const frames = Array.from({ length: 100 }, (_, i) => telemetry(agent, owner.pub, `${i}`));
		const answers = await Promise.all(frames.map((frame) => peer.publish(frame)));
		const refused = answers.findIndex(([, , accepted]) => !accepted);
		assert.ok(refused >= 5, `${refused}`);
		assert.equal(answers[refused][3], "rate-limited: frames of this owner: 5/s, try again in 1 s");
		await peer.close();
	});
});

const tls = (name) => ["--tls-cert", join(folder, `${name}.pem`), "--tls-key", join(folder, `${name}.key`)];

/** Name in the certificate that the relay shows now. */
async function shownName(port, options = {}) {
	const socket = connectTls({ port, host: "127.0.0.1", servername: "localhost", rejectUnauthorized: false, ...options });
	await once(socket, "secureConnect");
	const name = socket.getPeerCertificate().subject.CN;
	socket.destroy();
	return name;
}

test("TLS: a client that trusts the certificate connects, authenticates and gets large frames", async () => {
	const ca = readFileSync(join(folder, "first.pem"));
	await withRelay(tls("first"), async (relay) => {
		await logged(relay, /listening on wss:\/\/127\.0\.0\.1:/);
		const url = `wss://localhost:${relay.port}`;
		const owner = makeKey(), agent = makeAgent(owner);
		const reader = await Peer.open(url, { ca });
		await reader.auth(owner);
		await reader.subscribe("frames", { kinds: [24200], "#p": [owner.pub] });
		const writer = await Peer.open(url, { ca });
		await writer.auth(agent);
		const texts = Array.from({ length: 40 }, (_, i) => `${i} `.repeat(20000 / `${i} `.length));
		const frames = texts.map((text) => telemetry(agent, owner.pub, text));
		const answers = await Promise.all(frames.map((frame) => writer.publish(frame)));
		assert.ok(answers.every((ok) => ok[2] === true), JSON.stringify(answers));
		for (const text of texts)
			assert.equal(open(owner, (await reader.next("EVENT", "frames"))[2]), text);
		await assert.rejects(Peer.open(url), /self-signed certificate/);
		assert.doesNotMatch(await plainAnswer(relay.port), /HTTP/, "plain text is not served");
		const name = await Peer.open(`wss://127.0.0.1:${relay.port}`, { ca, headers: { host: "relay.example" } });
		const event = authEvent(makeKey(), "wss://relay.example", await name.challenge());
		name.send("AUTH", event);
		assert.equal((await name.next("OK", event.id))[2], true, "a name in our certificate is ours");
		for (const peer of [reader, writer, name])
			await peer.close();
		assert.equal(await (await fetchTls(relay.port, ca)), "ok\n");
		await assert.rejects(shownName(relay.port, { maxVersion: "TLSv1.1", minVersion: "TLSv1", ciphers: "DEFAULT@SECLEVEL=0" }));
	});
});

test("TLS: a reader whose socket is full gets all of it later, byte for byte", async () => {
	const ca = readFileSync(join(folder, "first.pem"));
	await withRelay(tls("first"), async (relay) => {
		const url = `wss://localhost:${relay.port}`, key = makeKey();
		const reader = await Peer.open(url, { ca }), writer = await Peer.open(url, { ca });
		await writer.auth(key);
		await reader.subscribe("all", { kinds: [20001] });
		reader.socket.pause();
		// 2.7 MB of all sizes: more than the sockets hold, less than its queue may.
		const events = Array.from({ length: 100 }, (_, i) => sign(key, { kind: 20001, content: `${i} `.repeat(1 + i * 180) }));
		for (const event of events)
			assert.deepEqual((await writer.publish(event)).slice(2), [true, "received by 1 reader"]);
		reader.socket.resume();
		for (const event of events)
			assert.deepEqual((await reader.next("EVENT", "all"))[2], JSON.parse(JSON.stringify(event)));
		await Promise.all([reader.close(), writer.close()]);
	});
});

/** What comes back, until the end, when HTTP is spoken to the port without TLS. */
async function plainAnswer(port) {
	const socket = connectTcp(port, "127.0.0.1");
	let text = "";
	socket.setEncoding("latin1").on("data", (piece) => (text += piece)).on("error", () => {});
	socket.write("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
	await new Promise((resolve) => socket.on("close", resolve)); // once() would throw the reset
	return text;
}

async function fetchTls(port, ca) {
	return new Promise((resolve, reject) => get({ port, host: "localhost", path: "/healthz", ca }, (response) => {
		let text = "";
		response.setEncoding("utf8").on("data", (piece) => (text += piece)).on("end", () => resolve(text));
	}).on("error", reject));
}

test("TLS: what is wrong with a file is one line, and exit 1; half of it is exit 2", async () => {
	writeFileSync(join(folder, "broken.pem"), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
	for (const [cert, key, words] of [
		["none.pem", "first.key", /cannot read the TLS certificate .*none\.pem: No such file/],
		["broken.pem", "first.key", /TLS certificate .*broken\.pem cannot be used: ./],
		["first.pem", "second.key", /TLS key .*second\.key cannot be used: .*mismatch/],
		["first.pem", "first.pem", /TLS key .*first\.pem cannot be used: ./],
	]) {
		const relay = spawnPerch(["relay", "--listen", "127.0.0.1:0", "--tls-cert", join(folder, cert), "--tls-key", join(folder, key)]);
		assert.equal((await relay.exited).code, 1, cert);
		assert.match(relay.stderr(), words);
		assert.equal(relay.stderr().trim().split("\n").length, 1, relay.stderr());
	}
	const half = spawnPerch(["relay", "--tls-cert", join(folder, "first.pem")]);
	assert.equal((await half.exited).code, 2);
});

test("perch agent reaches it by wss:// with a private authority in SSL_CERT_FILE", async () => {
	const ca = readFileSync(join(folder, "first.pem"));
	await withRelay(tls("first"), async (relay) => {
		const url = `wss://localhost:${relay.port}`;
		const owner = makeKey();
		const reader = await Peer.open(url, { ca });
		await reader.auth(owner);
		await reader.subscribe("frames", { kinds: [24200], "#p": [owner.pub] });
		const args = ["agent", "--relay", url, "--name", "far", "--channel", "main", "--prompt", "say hello", "--", ...scriptedAgent];
		const run = async (env) => {
			const home = mkdtempSync(join(tmpdir(), "perch-far-"));
			mkdirSync(join(home, "keys"), { mode: 0o700 });
			writeFileSync(join(home, "keys/owner"), bytesToHex(owner.secret) + "\n", { mode: 0o600 });
			const child = spawn(perchBin, args, { env: { ...process.env, PERCH_HOME: home, XDG_CONFIG_HOME: home, ...env }, stdio: ["ignore", "ignore", "pipe"] });
			let stderr = "";
			child.stderr.setEncoding("utf8").on("data", (piece) => (stderr += piece));
			const [code] = await once(child, "close");
			rmSync(home, { recursive: true, force: true });
			return { code, stderr };
		};
		const { code, stderr } = await run({ SSL_CERT_FILE: join(folder, "first.pem") });
		assert.equal(code, 0, stderr);
		const frame = (await reader.next("EVENT", "frames"))[2];
		assert.match(open(owner, frame), /"kind":/);
		await reader.close();
	});
});
