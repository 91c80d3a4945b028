// perch doctor: what is well, what is not, and that it ends.
import assert from "node:assert/strict";
import { chmodSync, mkdirSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { once } from "node:events";
import { join } from "node:path";
import { test } from "node:test";
import { Harness, makeAgent, makeHome, run, startObserver } from "./support/observer.mjs";
import { bytesToHex, makeKey, open } from "./support/keys.mjs";
import { startRelay } from "./support/perch.mjs";

const named = (report, name) => report.checks.filter((check) => check.name === name);

async function doctor(home, ...args) {
	const { code, stdout } = await run(home, "doctor", "--json", ...args);
	const report = JSON.parse(stdout);
	assert.equal(code, report.ok ? 0 : 1);
	assert.equal(report.ok, report.checks.every(({ state }) => state !== "failed"));
	return report;
}

/** Writes an agent's key with its attestation. */
function keepAgent(home, name, agent) {
	writeFileSync(join(home.dir, "keys", name), `${bytesToHex(agent.secret)}\n`, { mode: 0o600 });
	writeFileSync(join(home.dir, "keys", `${name}.auth`), JSON.stringify(agent.auth), { mode: 0o600 });
	mkdirSync(join(home.dir, "attested"), { recursive: true });
	writeFileSync(join(home.dir, "attested", agent.pub), JSON.stringify(agent.auth), { mode: 0o600 });
}

test("all is well: relay, clock, keys, archive, and an agent that answers through the relay", async () => {
	const relay = await startRelay(), home = makeHome();
	const observer = await startObserver(relay.url, home);
	const agent = makeAgent(home.owner);
	keepAgent(home, "claude", agent);
	const harness = await Harness.open(relay.url, home.owner, { key: agent });
	await observer.connected();
	harness.peer.socket.on("message", (data) => {
		const [verb, , event] = JSON.parse(String(data));
		const body = verb === "EVENT" && JSON.parse(open(agent, event));
		if (body?.type === "feed_sync")
			harness.peer.send("EVENT", harness.seal(harness.event("feed_state",
				{ requestId: body.requestId, epochs: [], gone: [] })));
	});
	const report = await doctor(home, "--relay", relay.url);
	assert.deepEqual(report.checks.filter(({ name, state }) =>
		state !== "ok" && !["user", "disk"].includes(name)), []);
	assert.match(named(report, "relay")[0].text, /a frame was answered in \d+ ms/);
	assert.match(named(report, "agent")[0].text, /^npub1\S+: answered through the relay/);
	assert.match(named(report, "observer")[0].text, /connected to its relay/);
	assert.match(named(report, "archive")[0].text, /sound$/);
	assert.match(named(report, "user")[0].text, /root|not against an agent that means harm/);
	const { stdout } = await run(home, "doctor"); // the observer knows which relay
	assert.match(stdout, /^ok +relay +ws:/m);
	assert.match(stdout, /\d+ failed, \d+ warnings?, of \d+\n$/);
	await harness.close();
	await observer.end();
	await relay.stop();
	home.remove();
});

test("each thing that is wrong is named, with what to do", async () => {
	const home = makeHome();
	const agent = makeAgent(home.owner, "created_at<1700000000");
	keepAgent(home, "expired", agent);
	keepAgent(home, "open", makeAgent(home.owner));
	chmodSync(join(home.dir, "keys", "open"), 0o644);
	keepAgent(home, "theirs", makeAgent(makeKey()));
	writeFileSync(join(home.dir, "perch.conf"), "ticks-ms = 3\n");
	writeFileSync(join(home.dir, "archive.db"), "this is no database, and long enough to be looked at".repeat(100));
	const report = await doctor(home, "--relay", "ws://127.0.0.1:1");
	assert.equal(report.ok, false);
	const text = (name) => named(report, name).map(({ state, text }) => `${state} ${text}`).join("\n");
	assert.match(text("perch.conf"), /^failed .*perch\.conf:1: .*ticks-ms/);
	assert.match(text("key"), /^failed expired: its attestation ended 2023-.*`perch attest expired`/m);
	assert.match(text("key"), /^failed open: .*chmod 600/m);
	assert.match(text("key"), /^warning theirs: attested by another owner/m);
	assert.match(text("archive"), /^failed .*broken.*moves it aside/);
	assert.match(text("relay"), /^failed ws:\/\/127\.0\.0\.1:1: .*: start it, or name another with --relay/);
	assert.match(text("observer"), /^warning no observer runs here/);
	home.remove();
});

test("a relay that takes the connection and says nothing ends the wait", async () => {
	const home = makeHome(), mute = createServer((socket) => socket.on("error", () => {}));
	mute.listen(0, "127.0.0.1");
	await once(mute, "listening");
	const report = await doctor(home, "--relay", `ws://127.0.0.1:${mute.address().port}`);
	assert.equal(named(report, "relay")[0].state, "failed");
	mute.close();
	home.remove();
});
