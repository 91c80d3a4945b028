// A disk that fills up while the relay runs: it says so, goes on, and keeps again once there is room.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { after, before, test } from "node:test";
import { mkdtempSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { makeAgent, makeKey, now, sign, telemetry } from "./support/keys.mjs";
import { Peer } from "./support/peer.mjs";
import { fetchAlone, logged, startRelay } from "./support/perch.mjs";

let folder;
before(() => { folder = mkdtempSync(join(tmpdir(), "perch-disk-")); });
after(() => rmSync(folder, { recursive: true, force: true }));

/** No file of the process may grow beyond so many bytes; "unlimited" is room again. */
const limitFiles = (relay, bytes) =>
	execFileSync("prlimit", ["--pid", String(relay.child.pid), `--fsize=${bytes}:`]);

test("without room on the disk events are refused aloud, all else goes on, and room is used again", async () => {
	const relay = await startRelay(["--open", "--db", join(folder, "full.db"), "--metrics", "127.0.0.1:0"]);
	const key = makeKey(), owner = makeKey();
	const peer = await Peer.open(relay.url);
	const reader = await Peer.open(relay.url);
	await reader.subscribe("live", { authors: [key.pub], limit: 0 });
	const agent = makeAgent(owner);
	const metricsUrl = /metrics on (http:\S+)/.exec(relay.stderr())[1];
	const ready = async () => {
		const answer = await fetchAlone(metricsUrl.replace("/metrics", "/readyz"));
		return { status: answer.status, text: await answer.text() };
	};
	assert.deepEqual(await ready(), { status: 200, text: "ready\n" });
	const event = (content) => sign(key, { kind: 1, content, created_at: now() });
	const before = event("before");
	assert.deepEqual((await peer.publish(before)).slice(2), [true, ""]);
	assert.equal((await reader.next("EVENT", "live"))[2].id, before.id);
	limitFiles(relay, 4096);
	// Several at once share a transaction, and its fate.
	const lost = Array.from({ length: 20 }, (_, i) => event(`${i} ${"x".repeat(2000)}`));
	for (const one of lost)
		peer.send("EVENT", one);
	for (const one of lost) {
		const [, , accepted, text] = await peer.next("OK", one.id);
		assert.equal(accepted, false);
		assert.equal(text, "error: the relay cannot use its database now, its log says why: try again later");
	}
	// Reading, and what needs no disk: what was committed, AUTH, ephemeral events.
	assert.deepEqual((await peer.subscribe("q", { authors: [key.pub] })).map(({ id }) => id), [before.id]);
	peer.send("COUNT", "c", { authors: [key.pub] });
	assert.deepEqual((await peer.next("COUNT", "c"))[2], { count: 1 });
	const other = await Peer.as(relay.url, owner);
	assert.equal((await other.publish(sign(owner, { kind: 20001 })))[2], true);
	await other.subscribe("frames", { kinds: [24200], "#p": [owner.pub] });
	const sender = await Peer.as(relay.url, agent);
	const frame = telemetry(agent, owner.pub, "live");
	assert.deepEqual((await sender.publish(frame)).slice(2), [true, "received by 1 reader"]);
	assert.equal((await other.next("EVENT", "frames"))[2].id, frame.id);
	const refused = await ready();
	assert.equal(refused.status, 503);
	assert.match(refused.text, /^the database cannot be written/);
	await reader.settle();
	assert.deepEqual(reader.inbox.filter(([verb]) => verb === "EVENT"), [], "what was not kept is not handed out");
	const metrics = await (await fetchAlone(metricsUrl)).text();
	assert.match(metrics, /^perch_relay_commits_total [1-9]/m);
	assert.match(metrics, /^perch_relay_commits_failed_total [1-9]/m);
	assert.match(metrics, /^perch_relay_commit_seconds_count [1-9]/m);
	assert.match(metrics, /^perch_relay_store_failing 1$/m);
	assert.match(metrics, /^perch_relay_store_waiting_bytes \d+$/m);
	assert.match(metrics, /^perch_relay_fan_out_seconds_count 3$/m, "a stored event, an ephemeral one and a frame");
	limitFiles(relay, "unlimited");
	// It finds out without anybody publishing.
	while ((await ready()).status !== 200);
	// The same events again: they were not kept, so they are no duplicates.
	for (const one of lost)
		assert.deepEqual((await peer.publish(one)).slice(2), [true, ""]);
	for (const one of lost)
		assert.equal((await reader.next("EVENT", "live"))[2].id, one.id);
	for (const one of [peer, reader, other, sender])
		await one.close();
	await relay.stop();
	const again = await startRelay(["--open", "--db", join(folder, "full.db")]);
	const late = await Peer.open(again.url);
	assert.equal((await late.subscribe("q", { authors: [key.pub] })).length, 1 + lost.length);
	await late.close();
	await again.stop();
	for (const run of [relay, again])
		assert.doesNotMatch(run.stderr(), /Sanitizer|runtime error/);
	assert.match(relay.stderr(), /^warn relay: cannot [^\n]*full\.db/m);
});

test("a database that is moved away is written to no more, and again once it is back", async () => {
	const relay = await startRelay(["--open", "--db", join(folder, "moved.db")]);
	const key = makeKey();
	const peer = await Peer.open(relay.url);
	const event = (content) => sign(key, { kind: 1, content, created_at: now() });
	assert.deepEqual((await peer.publish(event("before"))).slice(2), [true, ""]);
	renameSync(join(folder, "moved.db"), join(folder, "away.db"));
	const lost = event("lost");
	assert.deepEqual((await peer.publish(lost)).slice(2),
		[false, "error: the relay cannot use its database now, its log says why: try again later"]);
	await logged(relay, /moved\.db was moved or deleted while in use: put it back, or start again/);
	renameSync(join(folder, "away.db"), join(folder, "moved.db"));
	assert.deepEqual((await peer.publish(lost)).slice(2), [true, ""]);
	await peer.close();
	await relay.stop();
	assert.doesNotMatch(relay.stderr(), /Sanitizer|runtime error/);
});
