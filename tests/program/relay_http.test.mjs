// The relay's HTTP side and its life as a process: NIP-11, who may connect, start and stop.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { readdirSync } from "node:fs";
import { connect as connectTcp } from "node:net";
import { networkInterfaces } from "node:os";
import { after, before, test } from "node:test";
import WebSocket from "ws";
import { authEvent, makeAgent, makeKey, sign, telemetry } from "./support/keys.mjs";
import { checkExposition } from "./support/metrics.mjs";
import { Peer, upgrade } from "./support/peer.mjs";
import { fetchAlone, logged, portToKeep, spawnPerch, startRelay, stopRelay } from "./support/perch.mjs";

let relay, http;
before(async () => {
	relay = await startRelay(["--allow-origin", "https://allowed.example", "--url", "wss://public.example/relay"]);
	http = relay.url.replace("ws:", "http:");
});
after(() => stopRelay(relay));

async function info() {
	const answer = await fetchAlone(http, { headers: { accept: "application/nostr+json" } });
	return answer.json();
}

/** The HTTP status that an upgrade was answered with; 101 for a WebSocket. */
async function upgradeStatus(url, options) {
	const { status, socket } = await upgrade(url, options);
	socket?.close();
	return status;
}

/** Sends bytes and returns all that comes back until the end. */
async function rawHttp(text) {
	const socket = connectTcp(relay.port, "127.0.0.1");
	let answer = "";
	socket.setEncoding("latin1").on("data", (piece) => (answer += piece)).on("error", () => {});
	socket.write(text);
	await new Promise((resolve) => socket.on("close", resolve)); // once() would throw a reset
	return answer;
}

/** Said between then and now; a date counts seconds. */
function assertDated(date, begin) {
	const said = Date.parse(date);
	assert.ok(said > begin - 5000 && said < Date.now() + 5000, date);
}

test("NIP-11 comes with its own type, for any origin, with the date", async () => {
	const begin = Date.now();
	const answer = await fetchAlone(http, { headers: { accept: "text/html, application/nostr+json;q=0.9" } });
	assert.equal(answer.status, 200);
	assert.equal(answer.headers.get("content-type"), "application/nostr+json");
	assert.equal(answer.headers.get("access-control-allow-origin"), "*");
	assertDated(answer.headers.get("date"), begin);
	const body = await answer.json();
	assert.deepEqual(body.supported_nips, [1, 9, 11, 40, 42, 45, 70]);
	assert.match(body.description, /keeps stored kinds/);
	assert.equal(body.perch.backfill_per_second, 80);
	assert.equal(body.perch.stores_events, true);
});

test("OPTIONS is answered for CORS", async () => {
	const answer = await fetchAlone(http, { method: "OPTIONS" });
	assert.equal(answer.status, 204);
	for (const name of ["origin", "headers", "methods"])
		assert.ok(answer.headers.get(`access-control-allow-${name}`));
	assert.ok(answer.headers.get("date"));
});

test("a browser gets a short page, other paths 404, other methods 405, all dated", async () => {
	const page = await fetchAlone(http);
	assert.equal(page.status, 200);
	assert.match(await page.text(), new RegExp(`This is a Nostr relay[^]*perch agent --relay ${relay.url} -- COMMAND`));
	const missing = await fetchAlone(`${http}/elsewhere`);
	assert.equal(missing.status, 404);
	const posted = await fetchAlone(http, { method: "POST", body: "x" });
	assert.equal(posted.status, 405);
	for (const answer of [page, missing, posted])
		assert.ok(answer.headers.get("date"));
	const ready = await fetchAlone(`${http}/readyz`);
	assert.deepEqual([ready.status, await ready.text()], [200, "ready\n"]);
	const health = await fetchAlone(`${http}/healthz`);
	assert.equal(await health.text(), "ok\n");
});

test("a request with a body is refused and ends its connection, also right behind another", async () => {
	const health = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
	for (const method of ["GET", "HEAD", "OPTIONS", "POST", "PUT"]) {
		const text = await rawHttp(`${health}${method} /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello${health}`);
		assert.deepEqual(text.match(/^HTTP\S+ \d+/gm), ["HTTP/1.1 200", `HTTP/1.1 ${/^P/.test(method) ? 405 : 400}`], method);
		assert.equal((await fetch(`${http}/healthz`)).status, 200);
	}
});

test("the WebSocket handshake is dated too", async () => {
	const begin = Date.now(), socket = new WebSocket(relay.url);
	const [response] = await once(socket, "upgrade");
	assertDated(response.headers.date, begin);
	socket.close();
});

test("WebSocket is at / only", async () => {
	assert.equal(await upgradeStatus(`${relay.url}/`), 101);
	assert.equal(await upgradeStatus(`${relay.url}/?x=1`), 101);
	assert.equal(await upgradeStatus(`${relay.url}/chat`), 404);
});

test("a foreign origin is refused, an allowed one and our own are not", async () => {
	const from = (origin) => upgradeStatus(relay.url, { origin });
	assert.equal(await from("https://evil.example"), 403);
	assert.equal(await from("null"), 403);
	assert.equal(await from(`http://127.0.0.1:${relay.port + 1}`), 403);
	assert.equal(await from("https://allowed.example"), 101);
	assert.equal(await from(`http://localhost:${relay.port}`), 101);
	// DNS rebinding: the page's name points at loopback, Host and Origin agree.
	assert.equal(await upgradeStatus(relay.url, {
		origin: `http://evil.example:${relay.port}`, headers: { host: `evil.example:${relay.port}` } }), 403);
});

test("an upgrade to anything but WebSocket ends the connection", async () => {
	const settings = "HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n";
	for (const protocol of ["h2c", "foo", "websocket2"]) {
		const answer = await rawHttp(`GET / HTTP/1.1\r\nHost: 127.0.0.1:${relay.port}\r\n` +
			`Connection: Upgrade, HTTP2-Settings\r\nUpgrade: ${protocol}\r\n${settings}\r\n`);
		assert.doesNotMatch(answer, /^HTTP\/1.1 (101|200)/);
	}
	assert.equal((await fetchAlone(`${http}/healthz`)).status, 200);
});

test("NIP-42: a wrong answer gets OK false with the reason, and a right one still works", async () => {
	const key = makeKey();
	const peer = await Peer.open(relay.url);
	const challenge = await peer.challenge();
	assert.ok(challenge.length >= 32);
	const good = authEvent(key, relay.url, challenge);
	const wrong = [
		authEvent(key, relay.url, "another challenge"),
		authEvent(key, "ws://evil.example", challenge),
		authEvent(key, `ws://127.0.0.1:${relay.port + 1}`, challenge),
		authEvent(key, relay.url, challenge, { created_at: good.created_at - 700 }),
		sign(key, { kind: 1, tags: good.tags }),
		{ ...good, sig: "0".repeat(128) },
	];
	for (const event of wrong) {
		peer.send("AUTH", event);
		const ok = await peer.next("OK", event.id);
		assert.equal(ok[2], false);
		assert.match(ok[3], /^invalid: ./);
	}
	await peer.auth(key);
	await peer.close();
});

test("NIP-42: our address by each loopback name and --url are taken as ours", async () => {
	const names = [`ws://127.0.0.1:${relay.port}/`, `ws://localhost:${relay.port}`, "wss://PUBLIC.example/relay/"];
	for (const name of names) {
		const key = makeKey();
		const peer = await Peer.open(relay.url);
		const event = authEvent(key, name, await peer.challenge());
		peer.send("AUTH", event);
		assert.equal((await peer.next("OK", event.id))[2], true, name);
		await peer.close();
	}
});

test("NIP-42: a forwarded loopback port in Host is ours, a foreign Host is not", async () => {
	for (const [host, accepted] of [["localhost:9000", true], ["evil.example", false]]) {
		const peer = await Peer.open(relay.url, { headers: { host } });
		const event = authEvent(makeKey(), `ws://${host}`, await peer.challenge());
		peer.send("AUTH", event);
		assert.equal((await peer.next("OK", event.id))[2], accepted, host);
		await peer.close();
	}
});

test("every connection has a challenge of its own", async () => {
	const peers = await Promise.all([Peer.open(relay.url), Peer.open(relay.url)]);
	const [a, b] = await Promise.all(peers.map((peer) => peer.challenge()));
	assert.notEqual(a, b);
	await Promise.all(peers.map((peer) => peer.close()));
});

test("NIP-11 says who may do what without AUTH", async () => {
	for (const [args, expected] of [[[], [false, true]], [["--open"], [false, false]], [["--owners", "list"], [true, true]],
		[["--owners", "list", "--open"], [false, false]]]) {
		const other = await startRelay(args);
		const { limitation } = await (await fetchAlone(other.url.replace("ws:", "http:"),
			{ headers: { accept: "application/nostr+json" } })).json();
		assert.deepEqual([limitation.auth_required, limitation.restricted_writes], expected, args.join(" "));
		await other.stop();
	}
});

test("NIP-11 says how many frames are taken as it is now, not as it is by default", async () => {
	for (const [args, expected] of [[[], [100, 80]], [["--key-frames", "10"], [10, 8]], [["--key-frames", "500"], [500, 400]],
		[["--owner-frames", "5"], [5, 4]], [["--key-frames", "0"], [undefined, 80]], [["--key-frames", "1"], [1, 0]]]) {
		const other = await startRelay(args);
		const { perch } = await (await fetchAlone(other.url.replace("ws:", "http:"),
			{ headers: { accept: "application/nostr+json" } })).json();
		assert.deepEqual([perch.frames_per_second, perch.backfill_per_second], expected, args.join(" "));
		await other.stop();
	}
});

test("the help names every word", async () => {
	const run = spawnPerch(["relay", "--help"]);
	assert.equal((await run.exited).code, 0);
	for (const word of ["owners add", "owners list", "agents", "revoke", "allow", "export", "import"])
		assert.ok(run.stdout().replace(/\s+/g, " ").includes(word), word);
});

test("what NIP-11 says of messages is enforced", async () => {
	const { limitation } = await info();
	const peer = await Peer.open(relay.url);
	const most = limitation.max_message_length;
	const notice = JSON.stringify(["HELLO"]);
	peer.raw(notice + " ".repeat(most - notice.length));
	assert.match((await peer.next("NOTICE"))[1], /^invalid: /);
	peer.raw(notice + " ".repeat(most - notice.length + 1));
	assert.equal((await peer.next("NOTICE"))[1], `invalid: message is over ${most} bytes`);
	assert.equal((await peer.closed).code, 1009);
});

test("what NIP-11 says of subscriptions is enforced", async () => {
	const { limitation, perch } = await info();
	const peer = await Peer.open(relay.url);
	const ids = Array.from({ length: limitation.max_subscriptions }, (_, i) => `s${i}`);
	await Promise.all(ids.map((id) => peer.subscribe(id, {})));
	peer.send("REQ", "more", {});
	assert.match((await peer.next("CLOSED", "more"))[2], /^error: at most 64 subscriptions/);
	assert.deepEqual(await peer.subscribe("s0", { kinds: [20001] }), [], "replacing one is not one more");
	peer.send("CLOSE", "s0");
	assert.deepEqual(await peer.subscribe("more", {}), []);
	peer.send("CLOSE", "more");
	const longest = "é".repeat(limitation.max_subid_length);
	assert.deepEqual(await peer.subscribe(longest, {}), []);
	peer.send("CLOSE", longest);
	peer.send("REQ", `${longest}x`, {});
	const answer = await peer.nextRefusal();
	assert.match(answer.at(-1), /^invalid: /);
	assert.deepEqual(await peer.subscribe("f", ...Array(perch.max_filters).fill({})), []);
	peer.send("REQ", "g", ...Array(perch.max_filters + 1).fill({}));
	assert.match((await peer.next("CLOSED", "g"))[2], /^invalid: /);
	await peer.close();
});

test("what NIP-11 says of tags is enforced", async () => {
	const { limitation } = await info();
	const key = makeKey();
	const peer = await Peer.as(relay.url, key);
	const tags = Array.from({ length: limitation.max_event_tags }, () => ["x"]);
	assert.equal((await peer.publish(sign(key, { kind: 20001, tags })))[2], true);
	const ok = await peer.publish(sign(key, { kind: 20001, tags: [...tags, ["x"]] }));
	assert.deepEqual([ok[2], /^invalid: /.test(ok[3])], [false, true]);
	await peer.close();
});

test("frames, deliveries and how long both take are there for Prometheus", async () => {
	const other = await startRelay(["--metrics", "127.0.0.1:0"]);
	const owner = makeKey(), agent = makeAgent(owner);
	const reader = await Peer.as(other.url, owner), writer = await Peer.as(other.url, agent);
	await reader.subscribe("frames", { kinds: [24200], "#p": [owner.pub] });
	for (let i = 0; i < 3; i++)
		await writer.publish(telemetry(agent, owner.pub, `${i}`));
	await writer.publish({ ...telemetry(agent, owner.pub, "forged"), sig: "0".repeat(128) });
	const address = /metrics on (http:\S+)/.exec(other.stderr())[1];
	const samples = checkExposition(await (await fetchAlone(address)).text());
	for (const [name, value] of Object.entries({ frames_total: 3, deliveries_total: 3, agents_bound: 1, connections: 2,
		fan_out_seconds_count: 3, verify_seconds_count: 4, 'refused_total{reason="signature"}': 1 }))
		assert.equal(samples.get(`perch_relay_${name}`), value, name);
	assert.ok(samples.get("perch_relay_verify_seconds_sum") > 0);
	assert.ok(samples.get("perch_relay_unsent_bytes_max") > 500);
	await reader.close();
	await writer.close();
	await other.stop();
});

test("metrics and health have a port of their own when asked for", async () => {
	const other = await startRelay(["--metrics", "127.0.0.1:0"]);
	const key = makeKey();
	const peer = await Peer.as(other.url, key);
	await peer.publish(sign(key, { kind: 22242 }));
	await peer.settle();
	const base = /metrics on (http:\/\/[\d.:]+)\/metrics/.exec(other.stderr())[1];
	const text = await (await fetchAlone(`${base}/metrics`)).text();
	assert.match(text, /^perch_relay_refused_total\{reason="kind"\} 1$/m);
	assert.match(text, /^perch_relay_connections 1$/m);
	checkExposition(text);
	assert.equal(await (await fetchAlone(`${base}/healthz`)).text(), "ok\n");
	assert.equal((await fetchAlone(base)).status, 404);
	assert.equal((await fetchAlone(`${other.url.replace("ws:", "http:")}/metrics`)).status, 404);
	await peer.close();
	await other.stop();
});

test("SIGTERM closes every client with 1001 and exits 0", async () => {
	const other = await startRelay();
	const peers = await Promise.all([Peer.open(other.url), Peer.open(other.url), Peer.open(other.url)]);
	await Promise.all(peers.map((peer) => peer.subscribe("a", {})));
	const stopped = other.stop();
	for (const peer of peers)
		assert.equal((await peer.closed).code, 1001);
	assert.deepEqual(await stopped, { code: 0, signal: null });
	assert.match(other.stderr(), /^info relay: listening on ws:\/\/127\.0\.0\.1:\d+\/$/m);
	assert.match(other.stderr(), /^info relay: stopping on signal 15: connections=3 /m);
	assert.doesNotMatch(other.stderr(), /Sanitizer|runtime error/);
});

test("SIGTERM does not wait for a client that stopped reading", async () => {
	const other = await startRelay();
	const peer = await Peer.open(other.url);
	peer.socket.pause();
	const { code } = await other.stop();
	assert.equal(code, 0);
});

test("after kill -9 it starts again on the same port, with clients still connected", async () => {
	const listen = ["--listen", `127.0.0.1:${await portToKeep()}`];
	const first = await startRelay(listen);
	const peer = await Peer.as(first.url, makeKey());
	assert.deepEqual(await first.stop("SIGKILL"), { code: null, signal: "SIGKILL" });
	const second = await startRelay(listen);
	assert.equal(second.port, first.port);
	await peer.closed;
	await (await Peer.as(second.url, makeKey())).close();
	await second.stop();
});

test("a taken port is one line: who has it, and what to do", async () => {
	const second = spawnPerch(["relay", "--listen", `127.0.0.1:${relay.port}`]);
	assert.equal((await second.exited).code, 1);
	assert.equal(second.stderr().trim().split("\n").length, 1);
	assert.match(second.stderr(), new RegExp(
		`port ${relay.port} is taken by process ${relay.child.pid} \\(.*relay.*\\): stop it, or .*--listen HOST:PORT`));
});

test("a name to listen on is refused and the line says what is wanted", async () => {
	for (const host of ["relay.example:7447", "x"]) {
		const other = spawnPerch(["relay", "--listen", host]);
		assert.equal((await other.exited).code, 2, host);
		assert.match(other.stderr(), /^perch relay: .*(numeric address: 127\.0\.0\.1|HOST:PORT)/);
	}
});

test("nobody can reach it by an address that is not loopback", async (t) => {
	const addresses = Object.values(networkInterfaces()).flat().filter((each) => !each.internal && !each.scopeid);
	if (addresses.length === 0)
		return t.skip("this machine has none");
	for (const { address } of addresses) {
		const socket = connectTcp(relay.port, address);
		const outcome = await new Promise((resolve) => {
			socket.on("connect", () => resolve("connected")).on("error", (error) => resolve(error.code));
		});
		socket.destroy();
		assert.equal(outcome, "ECONNREFUSED", address);
	}
});

test("usage errors exit 2", async () => {
	const other = spawnPerch(["relay", "--lisen", "127.0.0.1:0"]);
	assert.equal((await other.exited).code, 2);
});

const limitFiles = (process, count) => execFileSync("prlimit", ["--pid", String(process.child.pid), `--nofile=${count}:`]);

test("sockets beyond the file limit are closed and counted, and whoever is connected is served", async () => {
	const own = await startRelay(["--metrics", "127.0.0.1:0"]);
	limitFiles(own, 160);
	own.child.kill("SIGHUP"); // it looks how many files there may be
	await logged(own, /^warn relay: at most 96 connections: /m);
	const metrics = await heldMetrics(own);
	const peer = await Peer.as(own.url, makeKey()); // who is nobody is told to go
	let closed = 0;
	const many = Array.from({ length: 400 }, () => connectTcp(own.port, "127.0.0.1").on("error", () => {})
		.on("close", () => closed++).resume());
	let full = 0;
	while (full < 200 || closed < full) full = await metrics.ask(/reason="full"\} (\d+)\n/);
	await peer.settle();
	for (const socket of many)
		socket.destroy();
	await peer.close();
	metrics.close();
	await stopRelay(own);
});

/** Reads /metrics on a connection that stays: nobody new may come. */
async function heldMetrics(process) {
	const { port, hostname } = new URL(/metrics on (http:\S+)/.exec(process.stderr())[1]);
	const socket = connectTcp(port, hostname).setEncoding("utf8");
	let text = "";
	socket.on("data", (piece) => (text += piece));
	await once(socket, "connect");
	const ask = async (words) => {
		text = "";
		socket.write("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
		while (!words.test(text)) await once(socket, "data");
		return Number(words.exec(text)[1]);
	};
	assert.equal(await ask(/sockets (\d+)\n/), 1);
	return { ask, close: () => socket.destroy() };
}
const FILES = /reason="files"\} (\d+)\n/;

test("without a free descriptor who comes is closed and counted, and whoever is connected is served", async () => {
	const own = await startRelay(["--metrics", "127.0.0.1:0"]);
	const metrics = await heldMetrics(own);
	// Those who stay fill the gaps among its descriptors.
	const peers = await Promise.all(Array.from({ length: 20 }, () => Peer.as(own.url, makeKey())));
	const settle = () => Promise.all(peers.map((peer) => peer.settle()));
	await settle();
	const files = new Set(readdirSync(`/proc/${own.child.pid}/fd`).map(Number));
	limitFiles(own, Array.from({ length: 1024 }, (_, fd) => fd).find((fd) => !files.has(fd)));
	let closed = 0;
	const turned = Array.from({ length: 100 }, () => connectTcp(own.port, "127.0.0.1")
		.on("error", () => {}).on("close", () => closed++).resume());
	while (await metrics.ask(FILES) < turned.length || closed < turned.length);
	await settle();
	assert.equal(await metrics.ask(FILES), turned.length);
	await logged(own, /reason=files [^\n]*no file descriptor for another connection: raise the limit/);
	assert.equal(own.stderr().match(/reason=files/g).length, 1, "one line for all of them");
	limitFiles(own, 1024);
	const again = await Peer.open(own.url);
	await again.settle();
	await Promise.all([...peers, again].map((peer) => peer.close()));
	metrics.close();
	await stopRelay(own);
});

test("when not even the descriptor in reserve can be used it waits, and asks again at its ease", async () => {
	const own = await startRelay(["--metrics", "127.0.0.1:0"]);
	const metrics = await heldMetrics(own);
	const peer = await Peer.as(own.url, makeKey());
	limitFiles(own, 3);
	const begin = performance.now();
	const late = Peer.open(own.url);
	while (await metrics.ask(FILES) < 3);
	await peer.settle();
	const count = await metrics.ask(FILES);
	assert.ok(count <= (performance.now() - begin + 1) / 200 + 1, `${count} times`); // its clock counts milliseconds
	limitFiles(own, 1024);
	await (await late).settle();
	await Promise.all([peer.close(), (await late).close()]);
	metrics.close();
	await stopRelay(own);
});
