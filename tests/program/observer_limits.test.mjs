// What the broker lets nobody do to it by HTTP/1.1: wait without end, fill its memory, take every connection.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import net from "node:net";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Frames, TYPE, frame, u32 } from "./support/frames.mjs";
import { H2 } from "./support/h2.mjs";
import { checkExposition } from "./support/metrics.mjs";
import { Harness, channelId, closed, makeHome, run, startObserver } from "./support/observer.mjs";
import { startRelay } from "./support/perch.mjs";
import { until } from "./support/up.mjs";

let home, observer;

before(async () => {
	home = makeHome();
	observer = await startObserver("ws://127.0.0.1:1", home);
});

after(async () => {
	await observer.end();
	home.remove();
});

const connect = () => net.connect(observer.port, "127.0.0.1").on("error", () => {});

/** All that comes until the other side closes. */
async function ending(socket) {
	let text = "";
	socket.setEncoding("utf8").on("data", (piece) => { text += piece; });
	await closed(socket);
	return text;
}

const post = (length, authorization = "") => `POST /api/control HTTP/1.1\r\nHost: 127.0.0.1:${observer.port}\r\n${
	authorization}Content-Type: application/json\r\nContent-Length: ${length}\r\n\r\n`;
const bearer = () => `Authorization: Bearer ${observer.token}\r\n`;

test("a body that its sender may not send is not waited for", async () => {
	const socket = connect();
	socket.write(post(1000000));
	assert.match(await ending(socket), /^HTTP\/1\.1 401 /);
});

test("a parameter that is too long is refused, not left out, nor are those behind it", async () => {
	for (const query of [`lanes=${"a".repeat(3000)}`, `x=${"a".repeat(3000)}&view=flat`, `lanes=${"a,".repeat(1021)}&view=none`])
		assert.equal((await observer.get(`/api/report?${query}`)).status, 400, query.slice(0, 9));
	assert.equal((await observer.get(`/api/report?lanes=${"a,".repeat(1021)}&view=flat`)).status, 200);
});

test("a body that no method asks for is dropped", async () => {
	for (const [method, status] of [["PUT", 405], ["PATCH", 405], ["DELETE", 405], ["GET", 200], ["HEAD", 200]]) {
		const socket = connect();
		socket.write(`${method} /healthz HTTP/1.1\r\nHost: 127.0.0.1:${observer.port}\r\nConnection: close\r\nContent-Length: 300000\r\n\r\n${"x".repeat(300000)}`);
		assert.match(await ending(socket), new RegExp(`^HTTP/1\\.1 ${status} `), method);
	}
	assert.equal((await observer.get("/healthz")).status, 200);
});

test("a body right behind another request ends its connection, and nothing else", async () => {
	const first = `GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:${observer.port}\r\n\r\n`;
	const body = "Content-Length: 5\r\n\r\nhello", host = `Host: 127.0.0.1:${observer.port}\r\n`;
	for (const second of [post(5) + "hello", post(5, bearer()) + "hello", post(70000, bearer()) + " ".repeat(70000),
		`PUT / HTTP/1.1\r\n${host}${body}`, `GET / HTTP/1.1\r\n${host}${body}${first}`, `HEAD / HTTP/1.1\r\n${host}${body}`]) {
		const socket = connect();
		socket.write(first + second);
		assert.match(await ending(socket), /^HTTP\/1\.1 200 /, second.slice(0, 60));
		assert.equal((await observer.get("/healthz")).status, 200);
	}
});

test("a request that never ends is ended, also when it goes on byte by byte", { timeout: 120000 }, async () => {
	const begins = [post(100, bearer()), post(100, bearer()), "GET /healthz HTTP/1.1\r\nX: ", "GET /healthz HTTP/1.1\r\nX: "];
	const sockets = begins.map((begin) => {
		const socket = connect();
		socket.write(begin);
		return socket;
	});
	const timer = setInterval(() => {
		sockets[1].write(" ");
		sockets[3].write("x");
	}, 500);
	try {
		const answers = await Promise.all(sockets.map(ending));
		assert.match(answers[1], /^HTTP\/1\.1 408 /);
		assert.deepEqual([answers[0], answers[2], answers[3]], ["", "", ""]);
	} finally {
		clearInterval(timer);
	}
});

test("connections have a bound: who never had the token makes room, who had it does not", { timeout: 120000 }, async () => {
	const open = async (path, authorization = "") => {
		const socket = connect();
		socket.write(`GET ${path} HTTP/1.1\r\nHost: 127.0.0.1:${observer.port}\r\n${authorization}\r\n`);
		const answer = await new Promise((resolve) => socket.once("data", resolve).once("close", resolve));
		return { socket, served: /200 OK/.test(String(answer)) };
	};
	/* One of the owner, the oldest of all, and 255 of others. */
	const owner = await open("/api/self", bearer());
	const others = [];
	for (let i = 0; i < 255; i++)
		others.push((await open("/healthz")).socket);
	assert.ok([owner.socket, ...others].every((socket) => !socket.destroyed));
	const pushed = closed(others[0]);
	const late = await open("/healthz");
	assert.ok(late.served);
	await pushed;
	assert.ok(!owner.socket.destroyed && !others[1].destroyed);
	/* All places are the owner's: then nobody else is served, nor takes one. */
	const own = [];
	for (let i = 0; i < 255; i++) {
		own.push((await open("/api/self", bearer())).socket);
		assert.ok(!own.at(-1).destroyed);
	}
	await Promise.all([...others, late.socket].map(closed));
	assert.equal((await open("/healthz")).served, false);
	for (const socket of [owner.socket, ...own]) {
		assert.ok(!socket.destroyed);
		socket.destroy();
		await closed(socket);
	}
	while (!(await open("/healthz")).served)
		;
});

const hasSqlite = (() => {
	try { return Boolean(execFileSync("sqlite3", ["--version"])); } catch { return false; }
})();

/* Another writer has the archive, so that a search waits for it five seconds, twice that the second one. */
test("an answer that the disk is slow to give is waited for; who leaves, or goes on talking, does not wait", { timeout: 120000, skip: !hasSqlite && "there is no sqlite3" }, async () => {
	const writer = spawn("sqlite3", [join(home.dir, "archive.db")]);
	const search = `GET /api/search?q=x HTTP/1.1\r\nHost: 127.0.0.1:${observer.port}\r\n${bearer()}\r\n`;
	writer.stdin.write("BEGIN IMMEDIATE; SELECT 'held';\n");
	await once(writer.stdout, "data");
	const answers = [observer.get("/api/search?q=x"), observer.get("/api/search?q=x"), run(home, "search", "x")];
	const talker = connect();
	talker.write(search);
	const talk = setInterval(() => talker.write("x"), 100);
	await new Promise((closed) => talker.resume().on("close", closed)); // or reset, so not by ending()
	clearInterval(talk);
	assert.equal(talker.bytesRead, 0);
	for (const { status } of await Promise.all(answers.slice(0, 2)))
		assert.equal(status, 200);
	writer.stdin.end("COMMIT;\n");
	assert.match((await answers[2]).stderr, /nothing found/);
});

test("what all connections hold has one bound by every way, and what goes makes room", { timeout: 180000 }, async () => {
	const own = makeHome(), one = await startObserver("ws://127.0.0.1:1", own, ["--tls", "127.0.0.1:0"]);
	const h2 = await H2.connect(one), full = 1 << 20, sockets = [];
	const asks = async () => [(await one.get("/api/fleet")).status, (await h2.get("/api/fleet")).status];
	assert.deepEqual(await asks(), [200, 200]);
	/* Bodies of which the last byte is not sent: 64 of them leave less than any answer. What is as old as 20 s is let go,
	 * so one more comes each time. */
	const hold = () => {
		const socket = net.connect(one.port, "127.0.0.1").on("error", () => {});
		socket.write(`POST /api/control HTTP/1.1\r\nHost: 127.0.0.1:${one.port}\r\nAuthorization: Bearer ${one.token}\r\n` +
			`Content-Type: application/json\r\nContent-Length: ${full}\r\n\r\n`);
		socket.write(Buffer.alloc(full - 1, " "));
		sockets.push(socket);
	};
	for (let i = 0; i < 63; i++)
		hold();
	await until(async () => {
		if (sockets.filter((socket) => !socket.closed).length < 100)
			hold();
		return (await asks()).every((status) => status === 503);
	}, "the bound", 120000);
	for (const socket of sockets)
		socket.destroy();
	await until(async () => (await asks()).every((status) => status === 200), "room");
	h2.close();
	await one.end();
	own.remove();
});

test("among strangers, and readers that stopped with all that may be held, the owner's page is served", { timeout: 240000 }, async () => {
	const own = makeHome(), relay = await startRelay(), channel = channelId();
	const one = await startObserver(relay.url, own, ["--tls", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]);
	const tlsPort = Number(new URL(one.tlsUrl).port);
	const metrics = async () => checkExposition(await (await fetch(/metrics on (http:\S+)/.exec(one.stderr())[1])).text());
	const figure = async (name) => (await metrics()).get(`perch_observer_http_${name}`);
	/* Some 1 MB that the archive can be asked for. */
	const agent = await Harness.open(relay.url, own.owner);
	for (let i = 0; i < 21; i++)
		await agent.send(agent.event("note", { text: `${i} `.repeat(50_000 / `${i} `.length) }, { channel }));
	const path = `/api/raw?lane=${agent.id}/${channel}&limit=21&cut=262144`;
	const size = await until(async () => {
		const { bytes } = await one.get(path);
		return bytes.length > 0.95e6 && bytes.length;
	}, "all of it");

	/* By HTTP/1.1 one that reads nothing, on the socket, which takes little; it is the first, and so the one that was
	 * still longest. */
	const reader = net.connect(join(own.dir, "run", "observer.sock")).on("error", () => {}).pause();
	reader.write(`GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`);
	await until(async () => await figure("held_bytes") >= size, "its answer");
	/* By HTTP/2 those whose window is closed, 14 answers each. */
	const peers = [];
	await until(async () => {
		const peer = await Frames.connect(tlsPort, { settings: Buffer.concat([Buffer.from([0, 4, 0, 0, 0, 0])]) });
		peers.push(peer);
		for (let i = 0; i < 14; i++)
			peer.get(path, { authorization: `Bearer ${one.token}` });
		await peer.until(() => peer.of(1).length >= 14 || peer.closed, "14 heads");
		return await figure("held_bytes") + size > await figure("held_bytes_max");
	}, "all that may be held");
	const strangers = [one.port, tlsPort].flatMap((port) => Array.from({ length: 300 }, () => net.connect(port, "127.0.0.1").on("error", () => {})));
	await Promise.all(strangers.map((socket) => socket.connecting && once(socket, "connect")));

	const h2 = await H2.connect(one);
	for (const ask of [() => one.get(path), () => h2.get(path), () => one.get("/"), () => h2.get("/api/fleet")])
		await until(async () => (await ask()).status === 200, "an answer");
	const page = await h2.page();
	await page.until((message) => message.snapshot);
	assert.ok(await figure("stalled_total") >= 1);
	/* Byte by byte is not reading. */
	const drips = setInterval(() => {
		for (const peer of peers)
			peer.write(...[0, ...Array.from({ length: 14 }, (_, i) => 2 * i + 1)].map((id) => frame(TYPE.WINDOW_UPDATE, 0, id, u32(id ? 1 : 14))));
	}, 500);
	const last = await Frames.connect(tlsPort, { settings: Buffer.concat([Buffer.from([0, 4, 0, 0, 0, 0])]) });
	peers.push(last);
	for (let held = 0; held < 3;)
		await until(async () => {
			const id = last.get(path, { authorization: `Bearer ${one.token}` });
			await last.until(() => last.of(TYPE.HEADERS, id).length, "a head");
			return await figure("stalled_total") > held && ++held;
		}, "those that drip to make room", 60000);
	clearInterval(drips);
	let read = 0;
	reader.on("data", (piece) => { read += piece.length; }).resume();
	await closed(reader);
	assert.ok(read < size, `${read} of ${size} bytes`);
	assert.ok(await figure("held_bytes") <= await figure("held_bytes_max"));
	for (const socket of [...strangers, ...peers.map(({ socket }) => socket)])
		socket.destroy();
	page.close();
	h2.close();
	await until(async () => await figure("held_bytes") === 0, "all to be given back");
	await agent.close();
	await one.end();
	await relay.stop();
	own.remove();
});
