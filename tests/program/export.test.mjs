// perch export and perch forget.
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { untilExport } from "./support/faults.mjs";
import { channelId, chunk, Harness, makeHome, run, startObserver } from "./support/observer.mjs";
import { startRelay } from "./support/perch.mjs";

async function ok(home, ...args) {
	const { code, stdout, stderr } = await run(home, ...args);
	assert.equal(code, 0, stderr);
	return stdout;
}

const lines = (text) => text.split("\n").filter(Boolean).map((line) => JSON.parse(line));

test("export prints what was sent, byte for byte, also beside an observer; forget takes it away for good", async () => {
	const relay = await startRelay(), home = makeHome(), api = channelId(), web = channelId();
	assert.equal((await run(home, "export")).code, 1); // no archive yet
	let observer = await startObserver(relay.url, home);
	await observer.connected();
	const page = await observer.page();
	const harness = await Harness.open(relay.url, home.owner);
	await harness.send(harness.started_event(api));
	await harness.send(harness.event("turn_started", { promptId: "p" }, { channel: api, turn: "t1" }));
	await harness.send(harness.batch([
		harness.event("acp_read", chunk("one"), { channel: api, turn: "t1" }),
		harness.event("acp_read", chunk("two"), { channel: api, turn: "t1" }),
	]));
	await harness.send(harness.event("turn_completed", { stopReason: "end_turn" }, { channel: api, turn: "t1" }));
	await harness.send(harness.event("note", { text: "elsewhere \u00e9", n: 1.5 }, { channel: web }));
	await page.row((row) => JSON.stringify(row).includes("elsewhere"));
	page.close();
	await observer.end();
	observer = await startObserver(relay.url, home); // it may run meanwhile
	const all = lines(await ok(home, "export"));
	assert.deepEqual(all.map(({ event }) => event.kind),
		["harness_started", "turn_started", "acp_read", "acp_read", "turn_completed", "note"]);
	assert.deepEqual(all.map(({ frame }) => frame), [1, 2, 3, 3, 4, 5]);
	assert.ok(all.every(({ agent, epoch }) => agent === harness.id && epoch === harness.epoch));
	assert.deepEqual(all[5].event.payload, { text: "elsewhere \u00e9", n: 1.5 });
	assert.equal(lines(await ok(home, "export", "--agent", "claude", "--channel", "api-server")).length, 4);
	assert.equal(lines(await ok(home, "export", "--channel", web)).length, 1);
	assert.equal(lines(await ok(home, "export", "--from", "1h")).length, 6);
	assert.equal(lines(await ok(home, "export", "--to", "1h")).length, 0);
	assert.equal((await run(home, "export", "--from", "soon")).code, 2);
	assert.match((await run(home, "export", "--agent", "nobody")).stderr, /the archive has no such agent/);
	const { traceEvents } = JSON.parse(await ok(home, "export", "--format", "trace"));
	const turn = traceEvents.find(({ ph, cat }) => ph === "X" && cat === "turn");
	assert.ok(turn.dur >= 0 && turn.ts > 1e15, JSON.stringify(traceEvents));
	const named = (what) => traceEvents.filter(({ name }) => name === what).map(({ args }) => args.name);
	assert.deepEqual(named("process_name"), ["claude"]);
	assert.ok(named("thread_name").includes("api-server"));

	// The observer that has the archive does it: its pages, its search and its report forget it, too.
	const lane = `${harness.id}/${web}`, pages = await observer.page();
	const shown = async () => JSON.parse((await observer.get(`/api/rows?lane=${lane}`)).text).rows;
	const [row] = (await shown()).filter(({ type }) => type !== "lifecycle");
	assert.ok(row);
	assert.equal(await ok(home, "forget", "--yes", "--before", "1h"), "forgot 0 frames\n");
	assert.equal(await ok(home, "forget", "--yes", "--channel", web), "forgot 1 frames\n");
	await pages.until(({ removedRows }) => removedRows?.some(({ id }) => id === row.id));
	await pages.until(({ removedLanes }) => removedLanes?.includes(lane));
	assert.deepEqual((await shown()).filter(({ id }) => id === row.id), []);
	// A bound that cannot be read is not taken for none.
	for (const [what, value] of [["channel", 5], ["channel", ""], ["before", "1h"], ["before", -1], ["before", 1.5]]) {
		const answer = await observer.post({ agent: harness.id, [what]: value },
			{ host: undefined, port: undefined, socketPath: join(home.dir, "run", "observer.sock"), path: "/api/forget" });
		assert.equal(answer.status, 400, `${what} ${value}`);
	}
	assert.equal(lines(await ok(home, "export")).length, 5);
	pages.close();
	await observer.end();
	assert.equal((await run(home, "forget", "claude")).code, 2); // without --yes
	assert.equal((await run(home, "forget", "--yes")).code, 2);
	assert.match(await ok(home, "forget", "--yes", "claude"), /^forgot 4 frames$/m);
	assert.equal(await ok(home, "export"), "");

	// The next start does not ask for what it was told to forget, but for what is missing since.
	observer = await startObserver(relay.url, home);
	await observer.connected();
	await harness.send(harness.event("note", { text: "after" }, { channel: web }), { number: 7 });
	for (;;) {
		const { requestId, want } = await harness.control("feed_sync");
		await harness.send(harness.event("feed_state", {
			requestId, epochs: [{ epoch: harness.epoch, first: 1, last: 8 }], gone: [],
		}), { number: 8 });
		if (want.length) {
			assert.deepEqual(want, [{ epoch: harness.epoch, frames: [[6, 6]] }]);
			break;
		}
	}
	await harness.close();
	await observer.end();
	await relay.stop();
	home.remove();
});

test("an observer that runs knows the names of an agent whose first words were forgotten", async () => {
	const relay = await startRelay(), home = makeHome(), api = channelId();
	const observer = await startObserver(relay.url, home);
	await observer.connected();
	const harness = await Harness.open(relay.url, home.owner);
	const stored = (events) => untilExport(home, (found) => found.events.length === events);
	await harness.send(harness.started_event(api));
	await stored(1);
	assert.equal(await ok(home, "forget", "--yes", "claude"), "forgot 1 frames\n");
	await harness.send(harness.event("note", { text: "later" }, { channel: api }));
	await stored(1);
	assert.match((await run(home, "forget", "--yes", "codex")).stderr, /codex: the archive has no such agent/);
	assert.match((await run(home, "forget", "--yes", "--channel", "web")).stderr, /web: the archive has no such channel/);
	assert.equal(await ok(home, "forget", "--yes", "--channel", "api-server", "claude"), "forgot 1 frames\n");
	await harness.close();
	await observer.end();
	await relay.stop();
	home.remove();
});
