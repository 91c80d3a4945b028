// What an observer counts for whoever runs it: each figure is what was done, and none says who or what.
import assert from "node:assert/strict";
import { once } from "node:events";
import net from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { H2 } from "./support/h2.mjs";
import { telemetry } from "./support/keys.mjs";
import { checkExposition } from "./support/metrics.mjs";
import { Harness, channelId, chunk, closed, makeHome, request, startObserver } from "./support/observer.mjs";
import { Peer } from "./support/peer.mjs";
import { spawnPerch, startRelay } from "./support/perch.mjs";
import { until } from "./support/up.mjs";

const addressOf = (observer) => /metrics on (http:\S+)/.exec(observer.stderr())[1];

/** What one figure, or several by their labels, is now. */
async function figures(observer) {
	const answer = await fetch(addressOf(observer));
	assert.equal(answer.status, 200);
	assert.match(answer.headers.get("content-type"), /^text\/plain; version=0\.0\.4/);
	const samples = checkExposition(await answer.text());
	return (name) => samples.get(`perch_observer_${name}`);
}

/** Until each figure is that number. */
async function become(observer, wanted) {
	let got;
	const holds = async () => {
		const now = await figures(observer);
		got = Object.fromEntries(Object.keys(wanted).map((name) => [name, now(name)]));
		return Object.entries(wanted).every(([name, value]) => got[name] === value);
	};
	await until(holds, `figures to be ${JSON.stringify(wanted)}`, 45000).catch((error) => {
		throw new Error(`${error.message}; they are ${JSON.stringify(got)}`);
	});
}

test("frames, gaps, controls and the archive are counted as they happen", { timeout: 180000 }, async () => {
	const relay = await startRelay(), home = makeHome();
	const observer = await startObserver(relay.url, home, ["--metrics", "127.0.0.1:0"]);
	const channel = channelId();
	await become(observer, { relay_connected: 1, frames_total: 0, events_total: 0, agents: 0, archive_records_total: 0, archive_waiting: 0 });

	const agent = await Harness.open(relay.url, home.owner);
	await agent.send(agent.started_event(channel)); // 1
	await agent.send(agent.batch([1, 2, 3].map((i) => agent.event("acp_read", chunk(`${i}`), { channel, turn: "t1" })))); // 2
	await become(observer, { frames_total: 2, frames_live_total: 2, events_total: 4, agents: 1, archive_records_total: 2 });

	/* The same number once more, sealed anew; one that skips three. */
	await agent.send(agent.event("acp_read", chunk("again"), { channel, turn: "t1" }), { number: 2 });
	await agent.send(agent.event("acp_read", chunk("later"), { channel, turn: "t1" }), { number: 6 });
	await become(observer, { frames_total: 3, 'frames_refused_total{reason="duplicate"}': 1, frames_missing: 3 });
	const sync = await agent.control("feed_sync");
	for (let body = sync; !body.want?.length; body = await agent.control("feed_sync"));
	const asked = await figures(observer);
	assert.ok(asked("asks_total") >= 1 && asked("frames_asked_total") >= 3 && asked("frames_asked_total") % 3 === 0);
	await agent.send(agent.event("acp_read", chunk("3"), { channel, turn: "t1" }), { number: 3, replayed: true });
	await agent.send(agent.event("acp_read", chunk("4"), { channel, turn: "t1" }), { number: 4, replayed: true });
	await become(observer, { frames_total: 5, frames_filled_total: 2, frames_replayed_total: 2, frames_live_total: 3, frames_missing: 1, frames_gone: 0 });
	await agent.send(agent.event("feed_state", { epochs: [{ epoch: agent.epoch, first: 6, last: 7 }] }), { number: 7 });
	await become(observer, { frames_total: 6, frames_missing: 0, frames_gone: 1 });

	/* What is no frame. */
	const broken = await Peer.as(relay.url, agent.key);
	assert.equal((await broken.publish(telemetry(agent.key, home.owner.pub, "no frame")))[2], true);
	await become(observer, { 'frames_refused_total{reason="malformed"}': 1, 'frames_refused_total{reason="forged"}': 0 });
	await broken.close();

	/* One control that is answered, one that cannot be. */
	agent.frame = 7;
	assert.equal((await observer.post({ type: "prompt", agent: agent.id, channel, text: "go" })).status, 202);
	const first = await agent.control("prompt");
	await agent.answer(first, "started");
	await become(observer, { controls_total: 1, controls_refused_total: 0, 'controls_answered_total{outcome="started"}': 1, frames_total: 7 });
	assert.equal((await observer.post({ type: "prompt", agent: "00".repeat(32), channel, text: "x" })).status, 404);
	assert.equal((await observer.post({ type: "prompt", agent: agent.id, channel, text: "go" })).status, 202);
	let second = first; // which may have been sent twice
	while (second.requestId === first.requestId)
		second = await agent.control("prompt");
	await agent.answer(second, "as it pleases");
	await become(observer, { controls_total: 2, controls_refused_total: 1, 'controls_answered_total{outcome="other"}': 1, controls_expired_total: 0 });

	await become(observer, { archive_waiting: 0, archive_waiting_bytes: 0, archive_lost_total: 0, archive_failing: 0 });
	const end = await figures(observer);
	assert.ok(end("archive_records_total") >= end("frames_total") && end("archive_bytes") >= 4096);
	const text = await (await fetch(addressOf(observer))).text();
	for (const secret of [agent.id, home.owner.pub, channel, agent.epoch, observer.token, "claude", "api-server", "again", relay.url])
		assert.ok(!text.includes(secret), secret);
	await agent.close();
	await relay.stop();
	await become(observer, { relay_connected: 0 });
	await observer.end();
	home.remove();
});

test("requests, pages and connections are counted by what they came by and what they were answered", { timeout: 180000 }, async () => {
	const home = makeHome(), observer = await startObserver("ws://127.0.0.1:1", home, ["--metrics", "127.0.0.1:0", "--tls", "127.0.0.1:0"]);
	const answers = (part, status) => `http_answers_total{part="${part}",status="${status}"}`;
	for (let i = 0; i < 3; i++)
		assert.equal((await observer.get("/api/fleet")).status, 200);
	for (let i = 0; i < 2; i++)
		assert.equal((await observer.get("/api/fleet", { headers: { authorization: "" } })).status, 401);
	assert.equal((await observer.get("/api/fleet", { headers: { origin: "http://evil.example" } })).status, 403);
	assert.equal((await observer.get("/api/nothing")).status, 404);
	assert.equal((await observer.get("/api/fleet", { method: "DELETE" })).status, 405);
	assert.equal((await observer.post("{")).status, 400);
	assert.equal((await observer.get("/")).status, 200);
	assert.equal((await observer.get("/healthz")).status, 200);
	const h2 = await H2.connect(observer);
	assert.equal((await h2.get("/api/fleet")).status, 200);
	assert.equal((await h2.request("/", { headers: { x: "y".repeat(17000) } })).status, 431);
	const pages = [await observer.page(), await observer.page(), await h2.page()];
	await Promise.all(pages.map((page) => page.until((message) => message.snapshot)));
	await become(observer, {
		[answers("fleet", 200)]: 4, [answers("fleet", 405)]: 1, [answers("refused", 401)]: 2, [answers("refused", 403)]: 1, [answers("none", 404)]: 1,
		[answers("none", 431)]: 1, [answers("control", 400)]: 1, [answers("page", 200)]: 1, [answers("health", 200)]: 1, [answers("stream", 200)]: 3,
		'pages{by="tcp"}': 2, 'pages{by="tls"}': 1, 'pages{by="unix"}': 0, stream_snapshots_total: 3,
		'http_connections{by="tls"}': 1, 'http_connections_total{by="tls"}': 1, http_held_bytes_max: 64 << 20, http_no_room_total: 0,
		http_handshakes_failed_total: 0, http_calmed_total: 0,
	});
	const { length } = pages[0].messages[0] && Buffer.from(JSON.stringify(pages[0].messages[0]));
	assert.ok((await figures(observer))("http_body_bytes_total") > 3 * length);
	for (const page of pages)
		page.close();
	const plain = net.connect(Number(new URL(observer.tlsUrl).port), "127.0.0.1").on("error", () => {});
	plain.write("GET / HTTP/1.1\r\n\r\n");
	await closed(plain.resume());
	h2.close();
	await become(observer, { 'pages{by="tcp"}': 0, 'pages{by="tls"}': 0, 'http_connections{by="tls"}': 0, 'http_connections_total{by="tls"}': 2, http_handshakes_failed_total: 1 });
	await observer.end();
	home.remove();
});

test("figures have a port of their own, which has nothing else, and the socket; the page's ports have none", async () => {
	const home = makeHome(), observer = await startObserver("ws://127.0.0.1:1", home, ["--metrics", "localhost:0", "--tls", "127.0.0.1:0"]);
	const base = addressOf(observer).replace("/metrics", "");
	assert.equal(await (await fetch(`${base}/healthz`)).text(), "ok");
	assert.equal((await fetch(`${base}/metrics`, { method: "HEAD" })).status, 200);
	assert.equal((await fetch(`${base}/metrics`, { method: "POST", body: "x" })).status, 405);
	for (const path of ["/", "/api/fleet", "/api/stream", "/api/open", "/metrics/"])
		assert.equal((await fetch(base + path, { headers: { authorization: `Bearer ${observer.token}` } })).status, 404, path);
	const local = await request({ socketPath: join(home.dir, "run", "observer.sock"), path: "/metrics" });
	assert.equal(local.status, 200);
	checkExposition(local.text);
	const h2 = await H2.connect(observer);
	assert.deepEqual([(await observer.get("/metrics")).status, (await h2.get("/metrics")).status], [404, 404]);
	h2.close();
	await observer.end();
	home.remove();
});

test("a port of the figures that is taken, or none, is said", async () => {
	const home = makeHome(), taken = net.createServer().listen(0, "127.0.0.1");
	await once(taken, "listening");
	for (const [value, says] of [[`127.0.0.1:${taken.address().port}`, /--metrics/], ["nowhere", /nowhere/]]) {
		const process = spawnPerch(["observer", "--listen", "127.0.0.1:0", "--metrics", value], { env: { PERCH_HOME: home.dir, XDG_CONFIG_HOME: home.dir, XDG_RUNTIME_DIR: "" } });
		assert.equal((await process.exited).code, 1);
		assert.match(process.stderr(), says);
	}
	taken.close();
	home.remove();
});
