// What a hostile HTTP/2 peer gets: the code that h2_session.h names, and no more of us than the next.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import net from "node:net";
import { after, before, test } from "node:test";
import { CODE, FLAG, Frames, PREFACE, TYPE, field, frame, headers, indexedField, u32 } from "./support/frames.mjs";
import { H2 } from "./support/h2.mjs";
import { closed, makeHome, startObserver } from "./support/observer.mjs";

/* Freed memory is given back, so that growth is growth. */
process.env.ASAN_OPTIONS = `${process.env.ASAN_OPTIONS ?? ""}:quarantine_size_mb=1`;

let home, observer, owner, port;

/* The owner's own page is there all the time, and served at the end of each test. */
before(async () => {
	home = makeHome();
	observer = await startObserver("ws://127.0.0.1:1", home, ["--tls", "127.0.0.1:0"]);
	port = Number(new URL(observer.tlsUrl).port);
	owner = await H2.connect(observer);
	assert.equal((await owner.get("/api/fleet")).status, 200);
	await owner.page(); // so that it is not idle, however long an attack takes
});

after(async () => {
	owner.close();
	await observer.end();
	home.remove();
});

const rssMiB = () => Number(readFileSync(`/proc/${observer.child.pid}/status`, "utf8").match(/VmRSS:\s+(\d+)/)[1]) / 1024;

/** `attack` ends as it should, the owner is served, and little memory stays. */
function hostile(what, attack, { timeout = 120000, mib = 100 } = {}) {
	test(what, { timeout }, async () => {
		const before = rssMiB();
		await attack();
		assert.equal(observer.child.exitCode, null, observer.stderr());
		assert.equal((await owner.get("/api/fleet")).status, 200);
		assert.ok(rssMiB() - before < mib, `grew by ${rssMiB() - before} MiB`);
	});
}

const repeat = (count, make) => Buffer.concat(Array.from({ length: count }, (_, i) => make(i)));
const HEAD = FLAG.END_HEADERS | FLAG.END_STREAM;

hostile("requests that are reset at once, without end", async () => {
	const peer = await Frames.connect(port);
	peer.write(repeat(400, () => {
		const id = peer.id();
		return Buffer.concat([frame(TYPE.HEADERS, HEAD, id, peer.head("/")), frame(TYPE.RST_STREAM, 0, id, u32(CODE.CANCEL))]);
	}));
	assert.equal(await peer.goaway(), CODE.ENHANCE_YOUR_CALM);
});

hostile("a few resets are a reader's right", async () => {
	const peer = await Frames.connect(port);
	peer.write(repeat(100, () => {
		const id = peer.id();
		return Buffer.concat([frame(TYPE.HEADERS, HEAD, id, peer.head("/")), frame(TYPE.RST_STREAM, 0, id, u32(CODE.CANCEL))]);
	}));
	assert.equal(await peer.body(peer.get("/healthz")), "ok");
	peer.close();
});

hostile("requests that we are made to reset, without end", async () => {
	const peer = await Frames.connect(port);
	peer.write(repeat(400, () => {
		const id = peer.id();
		return Buffer.concat([frame(TYPE.HEADERS, FLAG.END_HEADERS, id, peer.head("/", {}, "POST")), frame(TYPE.WINDOW_UPDATE, 0, id, u32(0x7fffffff))]);
	}));
	assert.equal(await peer.goaway(), CODE.ENHANCE_YOUR_CALM);
});

for (const [what, one] of [
	["SETTINGS", () => frame(TYPE.SETTINGS, 0, 0)],
	["PING", () => frame(TYPE.PING, 0, 0, Buffer.alloc(8))],
	["PRIORITY", (i) => frame(TYPE.PRIORITY, 0, 2 * i + 1, Buffer.concat([u32(0), Buffer.from([1])]))],
])
	hostile(`${what} without end`, async () => {
		const peer = await Frames.connect(port);
		peer.write(repeat(1000, one));
		assert.equal(await peer.goaway(), CODE.ENHANCE_YOUR_CALM);
	});

hostile("PINGs whose answers are not read", async () => {
	const peer = await Frames.connect(port);
	peer.socket.pause();
	peer.write(repeat(400, () => frame(TYPE.PING, 0, 0, Buffer.alloc(8))));
	peer.socket.resume();
	await peer.until(() => peer.of(TYPE.PING).length >= 400 || peer.closed, "the answers");
	peer.close();
});

hostile("TLS keys that are asked for again, without end", async () => {
	const peer = spawn("openssl", ["s_client", "-connect", `127.0.0.1:${port}`, "-alpn", "h2", "-tls1_3"]);
	let said = "", asked = 0;
	const ended = once(peer, "close");
	peer.stdin.on("error", () => {});
	/* One at a time: a line is a command only where it is read alone. */
	for (const stream of [peer.stdout, peer.stderr])
		stream.setEncoding("latin1").on("data", (piece) => {
			said += piece;
			const done = said.split("KEYUPDATE").length - 1;
			if (!said.includes("Verify return code") || done < asked)
				return;
			asked++;
			if (asked < 2000)
				peer.stdin.write("K\n");
			else
				peer.kill();
		});
	await ended;
	assert.ok(asked > 250 && asked < 2000, `closed after ${asked} key updates: ${said.slice(-300)}`);
});

hostile("empty DATA without end", async () => {
	const peer = await Frames.connect(port);
	const id = peer.id();
	peer.write(frame(TYPE.HEADERS, FLAG.END_HEADERS, id, peer.head("/api/control", { authorization: `Bearer ${observer.token}` }, "POST")), repeat(1000, () => frame(TYPE.DATA, 0, id)));
	assert.equal(await peer.goaway(), CODE.ENHANCE_YOUR_CALM);
});

hostile("CONTINUATION without end", async () => {
	const peer = await Frames.connect(port);
	const id = peer.id();
	peer.write(frame(TYPE.HEADERS, FLAG.END_STREAM, id, peer.head("/")), repeat(50, () => frame(TYPE.CONTINUATION, 0, id, field("x", "y".repeat(100)))));
	assert.equal(await peer.goaway(), CODE.ENHANCE_YOUR_CALM);
});

hostile("headers that are too large, by little and by much", async () => {
	const peer = await Frames.connect(port);
	const id = peer.get("/", { x: "y".repeat(15000) }), over = peer.get("/", { x: "y".repeat(16300) });
	await peer.until(() => peer.of(TYPE.HEADERS).length >= 2, "both answers");
	const status = (stream) => peer.of(TYPE.HEADERS, stream)[0].payload[0];
	assert.equal(status(id), 0x88, "200");
	assert.notEqual(status(over), 0x88);
	assert.match(await peer.body(over), /at most 16 KiB/);
	/* A small block that unfolds: one field of 4,000 bytes, named 5,000 times. */
	const bomb = Buffer.concat([peer.head("/"), indexedField("x", "y".repeat(3900)), Buffer.alloc(5000, 0x80 | 62)]);
	peer.write(frame(TYPE.HEADERS, HEAD, peer.id(), bomb));
	assert.equal(await peer.goaway(), CODE.ENHANCE_YOUR_CALM);
});

hostile("more requests at one time than are served", async () => {
	const peer = await Frames.connect(port);
	const open = repeat(101, () => frame(TYPE.HEADERS, FLAG.END_HEADERS, peer.id(), peer.head("/", {}, "POST")));
	await peer.until(() => peer.of(TYPE.SETTINGS).length >= 2, "SETTINGS and their ACK");
	/* Before the limit is acknowledged the hundred-and-first is refused, after it breaks the rules. */
	peer.write(open);
	await peer.until(() => peer.of(TYPE.RST_STREAM, 201)[0] || peer.of(TYPE.GOAWAY)[0], "a refusal");
	peer.close();
});

hostile("many large bodies without the token take no memory", async () => {
	const peer = await Frames.connect(port);
	peer.write(repeat(50, () => {
		const id = peer.id();
		return Buffer.concat([frame(TYPE.HEADERS, FLAG.END_HEADERS, id, peer.head("/api/control", {}, "POST")), repeat(64, () => frame(TYPE.DATA, 0, id, Buffer.alloc(16384)))]);
	}));
	/* An answer, or a reset for not minding the window. */
	const refused = () => new Set([...peer.of(TYPE.HEADERS), ...peer.of(TYPE.RST_STREAM)].map(({ stream }) => stream)).size;
	await peer.until(() => refused() === 50 || peer.closed, "their refusals");
	peer.close();
}, { mib: 60 });

hostile("answers that nobody reads are bounded by what they are of", async () => {
	/* No window at all: nothing of a body can be sent. */
	const peer = await Frames.connect(port, { settings: Buffer.concat([Buffer.from([0, 4]), u32(0)]) });
	for (let i = 0; i < 90; i++)
		peer.get("/");
	await peer.until(() => peer.of(TYPE.HEADERS).length >= 90, "90 heads");
	assert.equal(peer.of(TYPE.DATA).length, 0);
	peer.close();
}, { mib: 30 });

hostile("what is no HTTP/2 at all", async () => {
	const garbage = await Frames.connect(port, { raw: true });
	garbage.write(Buffer.from("GET / HTTP/1.1\r\nHost: x\r\n\r\n"));
	assert.equal(await garbage.goaway(), CODE.PROTOCOL_ERROR);
	const noSettings = await Frames.connect(port, { raw: true });
	noSettings.write(PREFACE, frame(TYPE.PING, 0, 0, Buffer.alloc(8)));
	assert.equal(await noSettings.goaway(), CODE.PROTOCOL_ERROR);
	for (const [bytes, code] of [
		[frame(TYPE.DATA, 0, 1, Buffer.alloc(3)), CODE.PROTOCOL_ERROR], [frame(TYPE.HEADERS, HEAD, 2, headers({ ":method": "GET" })), CODE.PROTOCOL_ERROR],
		[frame(TYPE.PUSH_PROMISE, 4, 1, u32(2)), CODE.PROTOCOL_ERROR], [frame(TYPE.SETTINGS, 0, 0, Buffer.alloc(5)), CODE.FRAME_SIZE_ERROR],
		[frame(TYPE.WINDOW_UPDATE, 0, 0, u32(0x7fffffff)), CODE.FLOW_CONTROL_ERROR], [frame(TYPE.HEADERS, HEAD, 1, Buffer.from([0xff, 0xff, 0xff, 0xff, 0xff])), 9],
		[frame(TYPE.DATA, 0, 1, Buffer.alloc(20000)), CODE.FRAME_SIZE_ERROR],
	]) {
		const peer = await Frames.connect(port);
		peer.write(bytes);
		assert.equal(await peer.goaway(), code, bytes.subarray(0, 20).toString("hex"));
	}
});

hostile("malformed requests are reset, and their connection goes on", async () => {
	const peer = await Frames.connect(port);
	const ids = [{ ":path": "/" }, { ":method": "GET", ":scheme": "https", ":path": "/", Upper: "x" }, { ":method": "GET", ":scheme": "https", ":path": "/", ":authority": "x", connection: "close" },
		{ ":method": "GET", ":scheme": "https", ":path": "", ":authority": "x" }, { ":method": "GET", ":scheme": "https", ":path": "/\u007f", ":authority": "x" }, { ":method": "POST", ":scheme": "https", ":path": "/", ":authority": "x", "content-length": "-1" }].map((fields) => {
		const id = peer.id();
		peer.write(frame(TYPE.HEADERS, HEAD, id, headers(fields)));
		return id;
	});
	for (const id of ids)
		assert.equal(await peer.reset(id), CODE.PROTOCOL_ERROR);
	for (const path of ["//", "/%", "/%0", "/%zz", "/%00", "/a?b=%0a", `/${"x".repeat(9000)}`])
		assert.match(await peer.body(peer.get(path)), /no request|nothing here/, path);
	assert.equal(await peer.body(peer.get("/healthz")), "ok");
	peer.close();
});

hostile("handshakes that never end, and bytes that are none", async () => {
	const silent = net.connect(port, "127.0.0.1"), half = net.connect(port, "127.0.0.1"), noise = net.connect(port, "127.0.0.1");
	const ends = [silent, half, noise].map((socket) => closed(socket.on("error", () => {}).resume()));
	half.write(Buffer.from([0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]));
	noise.write(Buffer.alloc(70000, 0x42));
	await Promise.all(ends);
});

hostile("more connections than are served: those without the token give way, the owner's does not", async () => {
	const sockets = Array.from({ length: 300 }, () => net.connect(port, "127.0.0.1").on("error", () => {}));
	await Promise.all(sockets.map((socket) => once(socket, "connect")));
	/* Somebody new is still served. */
	const late = await H2.connect(observer);
	assert.equal((await late.get("/api/fleet")).status, 200);
	assert.ok(!owner.session.destroyed);
	for (const socket of sockets)
		socket.destroy();
	await Promise.all(sockets.map(closed));
	late.close();
}, { mib: 150 });
