// What the system may refuse while the relay runs: to write a file system that has turned read-only, and descriptors, when
// others have them all.
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, before, test } from "node:test";
import { makeAgent, makeKey, sign, telemetry } from "./support/keys.mjs";
import { Peer } from "./support/peer.mjs";
import { fetchAlone, logged, perchBin, startRelay, stopRelay } from "./support/perch.mjs";

const library = join(dirname(perchBin), "tests/librefuse.so");
const skip = !existsSync(library) && "librefuse.so is built with the unit tests";
let folder;
before(() => { folder = mkdtempSync(join(tmpdir(), "perch-system-")); });
after(() => rmSync(folder, { recursive: true, force: true }));

const start = (args) => startRelay(["--metrics", "127.0.0.1:0", ...args], { env: { LD_PRELOAD: library, PERCH_REFUSE: folder,
	ASAN_OPTIONS: `${process.env.ASAN_OPTIONS ?? ""}:verify_asan_link_order=0` } });
const refuse = (what) => writeFileSync(join(folder, what), "");
const allow = (what) => rmSync(join(folder, what));
const metricsUrl = (relay) => /metrics on (http:\S+)/.exec(relay.stderr())[1];

test("a file system that turns read-only: storing is refused aloud, frames go on, and it keeps again when it can", { skip }, async () => {
	const relay = await start(["--open"]);
	const key = makeKey(), owner = makeKey(), agent = makeAgent(owner);
	const ready = async () => (await fetchAlone(metricsUrl(relay).replace("/metrics", "/readyz"))).status;
	const [peer, sender, reader] = [await Peer.open(relay.url), await Peer.as(relay.url, agent), await Peer.as(relay.url, owner)];
	await reader.subscribe("frames", { kinds: [24200], "#p": [owner.pub] });
	const events = [0, 1, 2].map((n) => sign(key, { kind: 1, content: `${n}` }));
	assert.deepEqual((await peer.publish(events[0])).slice(2), [true, ""]);
	assert.equal(await ready(), 200);
	refuse("writes");
	for (const event of events.slice(1))
		assert.deepEqual((await peer.publish(event)).slice(2),
			[false, "error: the relay cannot use its database now, its log says why: try again later"]);
	await logged(relay, /^warn relay: cannot [^\n]*\(Read-only file system\): [^\n]*relay\.db$/m);
	assert.equal(await ready(), 503);
	assert.match(await (await fetchAlone(metricsUrl(relay))).text(), /^perch_relay_store_failing 1$/m);
	const frame = telemetry(agent, owner.pub, "while nothing is kept");
	assert.deepEqual((await sender.publish(frame)).slice(2), [true, "received by 1 reader"]);
	assert.equal((await reader.next("EVENT", "frames"))[2].id, frame.id);
	assert.deepEqual((await peer.subscribe("q", { authors: [key.pub] })).map(({ id }) => id), [events[0].id]);
	allow("writes");
	while (await ready() !== 200);
	for (const event of events.slice(1))
		assert.deepEqual((await peer.publish(event)).slice(2), [true, ""]);
	peer.send("COUNT", "c", { authors: [key.pub] });
	assert.deepEqual((await peer.next("COUNT", "c"))[2], { count: 3 });
	await Promise.all([peer, sender, reader].map((one) => one.close()));
	await stopRelay(relay);
});

test("no descriptor in the whole system: who is connected is served, who comes waits and is taken when there is one", { skip }, async () => {
	const relay = await start([]);
	const owner = makeKey(), agent = makeAgent(owner);
	const sender = await Peer.as(relay.url, agent), reader = await Peer.as(relay.url, owner);
	await reader.subscribe("frames", { kinds: [24200], "#p": [owner.pub] });
	refuse("files");
	const late = Peer.open(relay.url);
	await logged(relay, /reason=files [^\n]*raise the limit \(ulimit -n, LimitNOFILE\) or the system's \(fs\.file-max\)/);
	for (let n = 0; n < 20; n++) {
		const frame = telemetry(agent, owner.pub, `${n}`);
		assert.equal((await sender.publish(frame))[3], "received by 1 reader");
		assert.equal((await reader.next("EVENT", "frames"))[2].id, frame.id);
	}
	allow("files");
	await (await late).settle();
	// The listener of the metrics is another one, and takes up its work as well.
	assert.match(await (await fetchAlone(metricsUrl(relay))).text(), /reason="files"\} [1-9]/);
	await Promise.all([sender, reader, await late].map((one) => one.close()));
	await stopRelay(relay);
});

test("no thread for signatures: the relay says so and checks them by itself", { skip: skip || (availableParallelism() < 2 && "one core: it wants none") }, async () => {
	refuse("threads");
	const relay = await start(["--open"]), key = makeKey(), peer = await Peer.open(relay.url);
	await logged(relay, /^warn relay: signatures are checked one by one: cannot start a thread for signatures$/m);
	const event = sign(key, { kind: 1 }), forged = { ...sign(key, { kind: 1, content: "forged" }), sig: event.sig };
	assert.deepEqual((await peer.publish(event)).slice(2), [true, ""]);
	assert.deepEqual((await peer.publish(forged)).slice(2), [false, "invalid: signature does not verify"]);
	await peer.close();
	await stopRelay(relay);
	allow("threads");
});
