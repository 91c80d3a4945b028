// The local API: who may ask, the stream, controls, and what a restart keeps.
import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync, statSync } from "node:fs";
import net from "node:net";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { npubEncode } from "nostr-tools/nip19";
import { startRelay } from "./support/perch.mjs";
import { until } from "./support/up.mjs";
import {
	Harness, ask, channelId, chunk, closed, makeHome, request, run, startObserver,
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

/** An agent that has said hello in a channel of its own. */
async function hello(name = "claude") {
	const channel = channelId();
	const agent = await Harness.open(relay.url, home.owner);
	await agent.send(agent.started_event(channel, name));
	await agent.send(agent.event("session_resolved", {
		sessionId: "s1", isNew: true,
		modes: { currentModeId: "ask", availableModes: [{ id: "ask", name: "Ask" }] },
	}, { channel }));
	await page.until((message) => message.lanes?.find(({ id }) => id.endsWith(channel)));
	return { agent, channel, lane: `${agent.id}/${channel}` };
}

// ---- who may ask ----

test("without the token there is no answer", async () => {
	for (const authorization of ["", "Bearer wrong", `Bearer ${"A".repeat(43)}`, "Basic x"])
		assert.equal((await observer.get("/api/fleet", { headers: { authorization } })).status, 401);
});

test("another Host, Origin or site is refused", async () => {
	for (const headers of [
		{ host: "evil.example" }, { host: `127.0.0.1:${observer.port + 1}` },
		{ origin: "http://evil.example" }, { origin: "null" },
		{ "sec-fetch-site": "cross-site" }, { "sec-fetch-site": "same-site" },
	])
		assert.equal((await observer.get("/api/fleet", { headers })).status, 403,
			JSON.stringify(headers));
});

test("our own page is served, by address and as localhost", async () => {
	for (const name of ["127.0.0.1", "localhost"]) {
		const headers = {
			host: `${name}:${observer.port}`, origin: `http://${name}:${observer.port}`,
			"sec-fetch-site": "same-origin",
		};
		assert.equal((await observer.get("/api/fleet", { headers })).status, 200);
	}
});

test("the page needs no token and says what it may load", async () => {
	const answer = await observer.get("/", { headers: { authorization: "" } });
	assert.equal(answer.status, 200);
	assert.match(answer.headers["content-security-policy"], /default-src 'none'/);
	assert.match(answer.headers["content-security-policy"], /require-trusted-types-for 'script'/);
	assert.equal(answer.headers["x-content-type-options"], "nosniff");
	assert.match(answer.headers.date, /GMT$/);
});

test("what is not there, not allowed or too large is said in one sentence", async () => {
	const cases = [
		[await observer.get("/api/nothing"), 404],
		[await observer.get("/api/fleet", { method: "DELETE" }), 405],
		[await observer.get("/api/control"), 405],
		[await observer.get("/api/rows?lane=x"), 400],
		[await observer.post("{}", { headers: { "content-type": "text/plain" } }), 415],
		[await observer.post("{"), 400],
		[await observer.post({ type: "launch" }), 400],
		[await observer.post({ type: "prompt", agent: "00".repeat(32), channel: "c", text: "x" }),
			404],
		[await observer.post("x".repeat((1 << 20) + 1)), 413],
	];
	for (const [answer, status] of cases) {
		assert.equal(answer.status, status, answer.text);
		assert.equal(typeof answer.json().error, "string");
	}
});

/** What a POST that is sent as it stands is answered. */
async function rawPost(headers, body = "") {
	const socket = net.connect(observer.port, "127.0.0.1");
	socket.on("error", () => {});
	socket.write(`POST /api/control HTTP/1.1\r\nHost: 127.0.0.1:${observer.port}\r\n` +
		`Authorization: Bearer ${observer.token}\r\nContent-Type: application/json\r\n` +
		`${headers}\r\n${body}`);
	let text = "";
	for await (const piece of socket) {
		text += piece;
		if (text.includes('"}'))
			break;
	}
	return { status: Number(text.split(" ")[1]), text };
}

test("a body whose length is not told, no number or too large is refused at once", async () => {
	// Who waited for the rest of a body would answer 408 in the end.
	for (const [headers, body, status] of [
		["Transfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\n\r\n", 411],
		["", "", 411],
		["Content-Length: -5\r\n", "{}", 400],
		["Content-Length: abc\r\n", "{}", 400],
		["Content-Length: 2\r\nContent-Length: 3\r\n", "{}", 400],
		["Content-Length: 99999999999999\r\n", "{}", 413],
	]) {
		const answer = await rawPost(headers, body);
		assert.equal(answer.status, status, `${headers}: ${answer.text}`);
	}
	assert.equal((await observer.post("{}", { headers: { "content-type": "application/jsonp" } })).status, 415);
	assert.equal((await observer.post("{}", { headers: { "content-type": "application/json; charset=utf-8" } })).status, 400);
});

test("pages that were closed keep no other from opening", async () => {
	const open = () => request({
		host: "127.0.0.1", port: observer.port, path: "/api/stream", agent: false,
		headers: { authorization: `Bearer ${observer.token}` },
	});
	const head = `GET /api/stream HTTP/1.1\r\nHost: 127.0.0.1:${observer.port}\r\n` +
		`Authorization: Bearer ${observer.token}\r\n\r\n`;
	const opened = [];
	let refused = false;
	while (!refused) {
		const socket = net.connect(observer.port, "127.0.0.1").on("error", () => {});
		socket.write(head);
		const [answer] = await once(socket, "data");
		refused = /^HTTP.1.1 503/.test(String(answer));
		socket.resume();
		opened.push(socket);
	}
	assert.match((await open()).text, /too many pages are open/);
	for (const socket of opened) {
		socket.destroy();
		await closed(socket);
	}
	const page = await until(() => observer.page().catch(() => undefined), "a place for a page");
	page.close();
});

/* Does the broker still hold the connection that came from this port? */
const isHeld = (port) => readFileSync("/proc/net/tcp", "utf8").split("\n").map((line) => line.trim().split(/\s+/))
	.some(([, local, remote, state]) => (state === "01" || state === "08") && parseInt(remote.split(":")[1], 16) === port
		&& parseInt(local.split(":")[1], 16) === Number(observer.port));

/* Processor time used so far, in ticks of 10 ms. */
const cpuTicks = () => readFileSync(`/proc/${observer.child.pid}/stat`, "utf8").split(") ")[1].split(" ")
	.slice(11, 13).reduce((sum, ticks) => sum + Number(ticks), 0);

for (const [what, end] of [
	["went away", (socket) => socket.destroy()],
	["ended its side", (socket) => socket.end()],
	["says more", (socket) => socket.write("GET /healthz HTTP/1.1\r\n")],
])
	test(`the stream of a page that ${what} ends and costs nothing`, async () => {
		const socket = net.connect({ port: Number(observer.port), host: "127.0.0.1", allowHalfOpen: true }).resume();
		socket.on("error", () => {});
		socket.write(`GET /api/stream HTTP/1.1\r\nHost: 127.0.0.1:${observer.port}\r\nAuthorization: Bearer ${observer.token}\r\n\r\n`);
		await once(socket, "data");
		const { localPort } = socket;
		await until(() => isHeld(localPort), "the connection in the system's table");
		const before = cpuTicks();
		end(socket);
		await until(() => !isHeld(localPort), "the connection to be let go");
		assert.ok(cpuTicks() - before < 50, `${cpuTicks() - before} ticks`);
		socket.destroy();
	});

test("the Unix socket is the user's alone and asks for no token", async () => {
	const socketPath = join(home.dir, "run", "observer.sock");
	assert.equal(statSync(socketPath).mode & 0o777, 0o600);
	const answer = await request({ socketPath, path: "/api/fleet" });
	assert.equal(answer.status, 200);
	assert.ok(answer.json().snapshot);
});

test("a second observer on the same archive is refused and names the first", async () => {
	const second = await run(home, "observer", "--relay", relay.url, "--listen", "127.0.0.1:0");
	assert.equal(second.code, 1);
	assert.match(second.stderr, new RegExp(`pid ${observer.child.pid}`));
});

// ---- the stream ----

test("a page that comes back with its cursor gets what it missed and no snapshot", async () => {
	const { agent, channel } = await hello();
	const first = await observer.page();
	const { cursor } = await first.until((message) => message.snapshot && message);
	first.close();
	await agent.send(agent.event("note", { text: "meanwhile" }, { channel }));
	await page.row((at) => at.text === "meanwhile");
	const second = await observer.page(cursor);
	await second.row((at) => at.text === "meanwhile");
	assert.ok(!second.messages.some(({ snapshot }) => snapshot));
	second.close();
	await agent.close();
});

// The messages that say nothing but that agents and lanes live.
function pulsesAlone(messages) {
	const known = new Map();
	const isNew = (key, { frameAtMs, completeMs, seenMs, lastMs, activityMs, activity, turn, ...rest }) => {
		const { timeMs, ...of } = turn ?? {};
		const text = JSON.stringify([rest, of]);
		const before = known.get(key);
		known.set(key, text);
		/* A lane that does something has each stroke told. */
		return text !== before || activity?.at(-1) > 1;
	};
	return messages.filter(({ cursor, now, health, agents = [], lanes = [], ...others }) =>
		[isNew("health", health), ...[...agents, ...lanes].map((one) => isNew(one.id, one)), Object.keys(others).length > 0]
			.every((news) => !news));
}

test("signs of life alone come joined, once in five seconds", async () => {
	const crew = [];
	for (let n = 0; n < 5; n++) {
		const agent = await Harness.open(relay.url, home.owner), channel = channelId();
		const lane = `${agent.id}/${channel}`;
		await agent.send(agent.started_event(channel));
		/* As of before, so that it is no stroke of these ten seconds. */
		await agent.send(agent.event("turn_started", { promptId: "p", source: "owner", text: "go" }, { channel, turn: "t1" }), { replayed: true });
		await page.until((message) => message.lanes?.some(({ id, state }) => id === lane && state === "working"));
		crew.push({ agent, channel, lane });
	}
	const from = page.messages.length, fromMs = Date.now();
	for (const { agent, channel } of crew)
		await agent.send(agent.event("turn_liveness", { elapsedMs: 1, openTools: 0, openPermissions: 0, intervalMs: 10_000 }, { channel, turn: "t1" }));
	for (const { lane } of crew)
		await until(() => page.messages.slice(from).some(({ lanes }) => lanes?.some(({ id, lastMs }) => id === lane && lastMs >= fromMs - 1000)), "its sign of life");
	/* A quarter of a second before each full five; two clocks are compared. */
	const steps = (ms) => Math.floor((ms + 250 + 5) / 5000);
	const told = pulsesAlone(page.messages).filter(({ now }) => now >= fromMs);
	/* News may have come with them. */
	assert.ok(!told.length || told.length <= steps(told.at(-1).now) - steps(fromMs - 10), JSON.stringify(told));
	for (const { agent } of crew)
		await agent.close();
});

test("a cursor of another start gets a snapshot", async () => {
	const stale = await observer.page("00000000-1");
	await stale.until((message) => message.snapshot);
	stale.close();
});

// ---- controls ----

test("a prompt reaches the agent, again until it is answered, with one request id", async () => {
	const { agent, channel, lane } = await hello();
	const asked = Date.now() / 1000;
	const answer = await observer.post(
		{ type: "prompt", agent: agent.id, channel, text: 'say "hi"\n' });
	assert.equal(answer.status, 202);
	const { requestId } = answer.json();
	const first = await agent.control("prompt");
	const second = await agent.control("prompt");
	assert.equal(first.requestId, requestId);
	assert.equal(second.requestId, requestId);
	assert.notEqual(first.id, second.id);
	assert.equal(first.epoch, agent.epoch);
	assert.ok(first.expires > asked + 50);
	assert.deepEqual(first.content, [{ type: "text", text: 'say "hi"\n' }]);
	await agent.answer(first, "queued", { position: 2 });
	await page.until((message) => message.controls?.find((at) =>
		at.requestId === requestId && at.state === "answered" && at.status === "queued"));
	const queue = await page.until((message) =>
		message.lanes?.find((at) => at.id === lane && at.queue[0]?.state === "queued")?.queue);
	assert.equal(queue[0].position, 2);
	await agent.close();
});

test("a decision is sent, relayed and applied, and only then the card goes", async () => {
	const { agent, channel } = await hello();
	await agent.send(agent.event("turn_started", { promptId: "p" }, { channel, turn: "t1" }));
	await agent.send(agent.event("acp_read", ask("rm -rf build"), {
		channel, turn: "t1", authorization: { requestNonce: `n-${channel}`, actionable: true },
	}));
	const id = `n-${channel}`;
	const card = await page.until((message) => message.cards?.find((at) => at.id === id));
	assert.equal(card.text, "rm -rf build");
	assert.equal(card.state, "pending");
	assert.equal((await observer.post(
		{ type: "permission_decision", card: id, option: "else" })).status, 400);
	assert.equal((await observer.post(
		{ type: "permission_decision", card: id, option: "ok" })).status, 202);
	const decision = await agent.control("permission_decision");
	assert.equal(decision.requestNonce, id);
	assert.equal(decision.optionId, "ok");
	await page.until((message) =>
		message.cards?.find((at) => at.id === id && at.state === "relayed"));
	await agent.answer(decision, "sent");
	await agent.send(agent.event("acp_write", {
		jsonrpc: "2.0", id: 7, result: { outcome: { outcome: "selected", optionId: "ok" } },
	}, {
		channel, turn: "t1",
		authorization: { requestNonce: id, actionable: false, reason: "applied" },
	}));
	const over = await page.until((message) =>
		message.cards?.find((at) => at.id === id && at.state === "over"));
	assert.equal(over.outcome, "applied");
	await page.until((message) => message.removedCards?.includes(id));
	assert.equal((await observer.post(
		{ type: "permission_decision", card: id, option: "ok" })).status, 404);
	await agent.close();
});

test("a trimmed request cannot be allowed before its body has come", async () => {
	const { agent, channel } = await hello();
	const id = `t-${channel}`;
	const whole = agent.event("acp_read", ask("make install"), {
		channel, turn: "t1", authorization: { requestNonce: id, actionable: true },
	});
	await agent.send({ ...whole, trimmed: 9000,
		payload: { elided: "acp_read payload too large", originalBytes: 70000 } });
	const card = await page.until((message) => message.cards?.find((at) => at.id === id));
	assert.equal(card.bodyReady, false);
	const early = await observer.post({ type: "permission_decision", card: id, option: "ok" });
	assert.notEqual(early.status, 202);
	assert.equal((await observer.post({ type: "fetch_body", card: id })).status, 202);
	const fetch = await agent.control("fetch_body");
	assert.equal(fetch.epoch, agent.epoch);
	assert.equal(fetch.seq, whole.seq);
	const text = JSON.stringify(whole);
	await agent.answer(fetch, "ok");
	for (const part of [2, 1])
		await agent.send(agent.event("body_part", {
			epoch: agent.epoch, seq: whole.seq, part, parts: 2,
			text: part === 1 ? text.slice(0, 100) : text.slice(100),
		}, { channel }), { replayed: true });
	const ready = await page.until((message) =>
		message.cards?.find((at) => at.id === id && at.bodyReady));
	assert.equal(ready.text, "make install");
	assert.equal((await observer.post(
		{ type: "permission_decision", card: id, option: "ok" })).status, 202);
	await agent.control("permission_decision");
	await agent.close();
});

// ---- commands ----

test("a prompt that is refused without a word says what to do", async () => {
	const channel = channelId(), shy = await Harness.open(relay.url, home.owner);
	const started = shy.started_event(channel, "shy");
	await shy.send({ ...started, payload: { ...started.payload, control: "approve" } });
	await page.until((message) => message.agents?.find(({ name }) => name === "shy"));
	const refused = run(home, "prompt", "shy@atlas", "Run the tests");
	await shy.answer(await shy.control("prompt"), "refused");
	assert.deepEqual(await refused, {
		code: 1, stdout: "refused: it takes none from here: start it with --control full\n", stderr: "",
	});
	await shy.close();
});

test("perch ls, tail, prompt and approve work without a page", async () => {
	const { agent, channel } = await hello("gemini");
	const listed = await run(home, "ls");
	assert.match(listed.stdout, /gemini@atlas +api-server/);

	const tail = run(home, "tail", "--json", "--count", "1", "gemini");
	let tailed = false;
	tail.then(() => { tailed = true; });
	for (let i = 0; !tailed; i++) {
		await agent.send(agent.event("note", { text: `tick ${i}` }, { channel }));
		await page.row((at) => at.text === `tick ${i}`);
	}
	assert.match(JSON.parse((await tail).stdout).text, /^tick/);

	const prompted = run(home, "prompt", "gemini", "Run the tests");
	const prompt = await agent.control("prompt");
	assert.equal(prompt.content[0].text, "Run the tests");
	await agent.answer(prompt, "started");
	assert.deepEqual(await prompted, { code: 0, stdout: "started\n", stderr: "" });

	const refused = run(home, "prompt", `gemini/${channel}`, "Again");
	let again;
	do // copies of the first prompt may still come
		again = await agent.control("prompt");
	while (again.content[0].text !== "Again");
	await agent.answer(again, "refused", { detail: "not now" });
	assert.equal((await refused).code, 1);

	await agent.send(agent.event("acp_read", ask("make"), {
		channel, turn: "t1", authorization: { requestNonce: `cli-${channel}`, actionable: true },
	}));
	await page.until((message) => message.cards?.find((at) => at.id === `cli-${channel}`));
	// Cards of the tests before may still be about to go.
	assert.match((await run(home, "approve")).stdout,
		/^cli-0000 {2}gemini@atlas\/api-server wants to run make {2}\(waiting 0:\d\d\)\n {10}1 {2}ok: Allow once\n {10}2 {2}no: Reject\n$/m);
	const cards = JSON.parse((await run(home, "approve", "--json")).stdout);
	assert.equal(cards.find(({ id }) => id === `cli-${channel}`).options.length, 2);
	for (const [args, words] of [
		[["nobody", "allow"], /no such request waits/], [["gemini", "maybe"], /no option fits/],
		[["gemini", "3"], /no option fits/], [["gemini", "0"], /no option fits/], [["", "allow"], /say which request/],
	]) {
		const wrong = await run(home, "approve", ...args);
		assert.equal(wrong.code, 1);
		assert.match(wrong.stderr, words);
	}
	assert.equal((await run(home, "approve", "gemini")).code, 2);
	const approved = run(home, "approve", "gemini", "allow");
	const decision = await agent.control("permission_decision");
	assert.equal(decision.optionId, "ok");
	await agent.send(agent.event("acp_write", {
		id: 7, result: { outcome: { outcome: "selected", optionId: "ok" } },
	}, {
		channel, turn: "t1",
		authorization: { requestNonce: `cli-${channel}`, actionable: false, reason: "applied" },
	}));
	assert.deepEqual(await approved, { code: 0, stdout: "applied\n", stderr: "" });

	// By number, and one that did not count.
	await agent.send(agent.event("acp_read", ask("make install"), {
		channel, turn: "t1", authorization: { requestNonce: `two-${channel}`, actionable: true },
	}));
	await page.until((message) => message.cards?.find((at) => at.id === `two-${channel}`));
	const denied = run(home, "approve", "two-", "2");
	let second;
	do // copies of the first decision may still come
		second = await agent.control("permission_decision");
	while (second.requestNonce !== `two-${channel}`);
	assert.equal(second.optionId, "no");
	await agent.answer(second, "already_decided");
	assert.equal((await denied).code, 1);
	await agent.close();
});

test("perch open prints the address with the token; --rotate makes another", async () => {
	const opened = await run(home, "open");
	assert.equal(opened.stdout, `http://127.0.0.1:${observer.port}/#${observer.token}\n`);
	const rotated = (await run(home, "open", "--rotate")).stdout.trim().split("#")[1];
	assert.notEqual(rotated, observer.token);
	assert.equal((await observer.get("/api/fleet")).status, 401);
	observer.token = rotated;
	assert.equal((await observer.get("/api/fleet")).status, 200);
});

test("perch key and perch attest make an agent known that carries no attestation", async (t) => {
	const own = makeHome();
	const quiet = await startObserver(relay.url, own);
	t.after(async () => { await quiet.end(); own.remove(); });
	await quiet.connected();
	const shown = await run(own, "key", "show");
	assert.equal(shown.stdout.trim(), npubEncode(own.owner.pub));
	const agent = await Harness.open(relay.url, own.owner);
	const tag = JSON.parse((await run(own, "attest", agent.id)).stdout);
	assert.deepEqual(tag.slice(0, 3), ["auth", own.owner.pub, ""]);
	const channel = channelId();
	const watched = await quiet.page();
	t.after(() => watched.close());
	agent.key.auth = undefined;
	await agent.send(agent.event("note", { text: "first" }, { channel }), { plain: true });
	await watched.row(({ text }) => text === "first");
	await agent.close();
});

test("a large Cookie of another server on this address does no harm", async () => {
	const headers = { authorization: "", cookie: `session=${"x".repeat(12000)}` };
	assert.equal((await observer.get("/healthz", { headers })).status, 200);
});

test("a page that does not read is dropped to a snapshot and hinders nobody", async () => {
	const { agent, channel } = await hello();
	const slow = await observer.page();
	const { cursor } = await slow.until((message) => message.snapshot && message);
	slow.res.pause();
	const text = "y".repeat(60000);
	/* More than the ring and the sockets hold. */
	for (let i = 0; i < 260; i++)
		await agent.send(agent.event("note", { text: `${i} ${text}` }, { channel }));
	await page.row((at) => at.text?.startsWith("259 "));
	slow.res.resume();
	await slow.until((message) => message.snapshot && message.cursor !== cursor);
	slow.close();
	await agent.close();
});

test("a message is made once for all pages, and none while no page listens", async () => {
	const own = makeHome(), one = await startObserver(relay.url, own);
	const agent = await Harness.open(relay.url, own.owner), channel = channelId();
	/* No page: connected() would be one. */
	const made = async () => (await one.get("/api/self")).json().broker.messages;
	const last = async () => Number((await one.get("/api/fleet")).json().cursor.split("-")[1]);
	await until(async () => (await one.get("/api/fleet")).json().health.relay.state === "ready", "the relay");
	await agent.send(agent.started_event(channel));
	await until(async () => (await one.get("/api/fleet")).text.includes(agent.id), "the agent");
	assert.equal(await made(), 0);

	const pages = await Promise.all(Array.from({ length: 6 }, () => one.page()));
	await Promise.all(pages.map((page) => page.until(({ snapshot }) => snapshot)));
	const [from, before] = [await last(), await made()];
	await agent.send(agent.event("note", { text: "for all six" }, { channel }));
	const news = await Promise.all(pages.map((page) => page.until((message) => JSON.stringify(message).includes("for all six"))));
	const [after, to] = [await made(), await last()];
	for (const message of news)
		assert.deepEqual(message, news[0]); // with its time: it was written once
	assert.ok(after > before && after - before <= to - from, `${after - before} made, ${to - from} told`);
	for (const page of pages)
		page.close();
	await agent.close();
	await one.end();
	own.remove();
});

test("SIGTERM ends an observer that has pages open", async () => {
	const own = makeHome();
	const stopping = await startObserver(relay.url, own);
	const open = await stopping.page();
	await open.until((message) => message.snapshot);
	await stopping.end();
	own.remove();
});

// ---- restart ----

test("a restart keeps the fleet, the rows, the token and what was seen", async () => {
	const own = makeHome();
	let again = await startObserver(relay.url, own);
	const { token } = again;
	await again.connected();
	const channel = channelId();
	const agent = await Harness.open(relay.url, own.owner);
	await agent.send(agent.started_event(channel));
	for (let i = 0; i < 20; i++)
		await agent.send(agent.batch(Array.from({ length: 40 }, (_, k) =>
			agent.event("note", { text: `note ${i * 40 + k}` }, { channel }))));
	const shown = await again.page();
	await shown.until((message) => message.rows?.find(({ text }) => text === "note 799")
		|| message.lanes?.find(({ lastMs }) => lastMs));
	const lane = `${agent.id}/${channel}`;
	const wait = async () => {
		for (;;) {
			const { rows } = await again.rows(lane, "&limit=1");
			if (rows[0]?.text === "note 799")
				return;
			await shown.until((message) => message.now && message.cursor);
		}
	};
	await wait();
	const before = await again.rows(lane, "&limit=1000");
	shown.close();
	await again.end();

	again = await startObserver(relay.url, own);
	assert.equal(again.token, token);
	const fleet = (await again.get("/api/fleet")).json();
	assert.equal(fleet.lanes.find(({ id }) => id === lane).channelName, "api-server");
	/* Newest from memory, the rest from the archive: pages that join without a seam. */
	let rows = [], query = "";
	for (let more = true; more;) {
		const part = await again.rows(lane, `&limit=150${query}`);
		rows = [...part.rows, ...rows];
		more = part.more;
		if (rows.length)
			query = `&before=${rows[0].pos}`;
	}
	assert.deepEqual(rows.map(({ id }) => id), before.rows.map(({ id }) => id));
	assert.deepEqual(rows, before.rows);
	await again.end();
	await agent.close();
	own.remove();
});
