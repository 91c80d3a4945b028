// perch tail --story: one sentence a row, like rows in one.
import assert from "node:assert/strict";
import { once } from "node:events";
import { after, before, test } from "node:test";
import { logged, spawnPerch, startRelay } from "./support/perch.mjs";
import { Harness, channelId, envOf, makeHome, run, startObserver } from "./support/observer.mjs";

let relay, home, observer;

before(async () => {
	relay = await startRelay();
	home = makeHome();
	observer = await startObserver(relay.url, home);
	await observer.connected();
});

after(async () => {
	await observer.end();
	await relay.stop();
	home.remove();
});

const update = (update) => ({
	jsonrpc: "2.0", method: "session/update", params: { sessionId: "s1", update },
});
const call = (toolCallId, kind, more) =>
	update({ sessionUpdate: "tool_call", toolCallId, kind, title: toolCallId, status: "completed", ...more });

test("rows are told as sentences, like ones in one; nothing hides and no colour goes into a pipe", async () => {
	const channel = channelId();
	const agent = await Harness.open(relay.url, home.owner);
	const page = await observer.page();
	await agent.send(agent.started_event(channel, "claude"));
	await page.until((message) => message.lanes?.find(({ id }) => id.endsWith(channel)));
	const tail = run(home, "tail", "--story", "--count", "4", "claude");
	// What is told before the command listens, it cannot tell: notes, until one is known to be after.
	let done = false;
	void tail.then(() => { done = true; });
	const say = (payload) => agent.event("acp_read", payload, { channel, turn: "t1" });
	for (let i = 0; !done; i++) {
		// Two in one frame: what comes a second later is told by itself.
		await agent.send(agent.batch(["a.c", "b.c"].map((name) =>
			say(call(`${name} ${i}`, "read", { locations: [{ path: `/src/${name}` }] })))));
		await agent.send(say(call(`make ${i}`, "execute",
			{ status: "failed", rawInput: { command: "make \u202eall" }, rawOutput: { exitCode: 2 } })));
		await page.row((row) => row.call === `make ${i}`);
	}
	const { code, stdout } = await tail;
	assert.equal(code, 0);
	const lines = stdout.trimEnd().split("\n").map((line) => line.replace(/^\d\d:\d\d:\d\d claude@atlas\/api-server {2}/, ""));
	assert.equal(lines.length, 4);
	for (const line of lines)
		assert.match(line, /^(Read (2 files|src\/[ab]\.c)|Ran make <U\+202E>all(, \d+ times)?: failed \(2\))$/);
	assert.ok(lines.includes("Read 2 files"), lines.join("\n"));
	assert.ok(lines.some((line) => line.startsWith("Ran make")));
	page.close();
	await agent.close();
});

test("--story and --json exclude each other", async () => {
	const { code, stderr } = await run(home, "tail", "--json", "--story");
	assert.equal(code, 2);
	assert.match(stderr, /^perch tail: .*use one\n$/);
});

test("who is not there yet is waited for with a word that says who is", async () => {
	const channel = channelId();
	const agent = await Harness.open(relay.url, home.owner);
	const page = await observer.page();
	await agent.send(agent.started_event(channel, "claude"));
	await page.until((message) => message.lanes?.find(({ id }) => id.endsWith(channel)));
	for (const [name, said] of [
		["nobody", /^perch tail: nobody here is called nobody yet, only .*claude@atlas.*; waiting for it\n$/],
		["claude/nowhere", /^perch tail: nobody here is called claude\/nowhere yet, only .*claude@atlas\/api-server.*; waiting for it\n$/],
	]) {
		const tail = spawnPerch(["tail", name], { env: envOf(home) });
		await logged(tail, /\n/);
		await tail.stop();
		assert.match(tail.stderr(), said);
	}
	page.close();
	await agent.close();
});

async function printed(tail, words) {
	while (!tail.stdout().includes(words))
		await once(tail.child.stdout, "data");
}

test("a quiet agent is told by what it did last, once, and then followed", async () => {
	const channel = channelId();
	const agent = await Harness.open(relay.url, home.owner);
	const page = await observer.page();
	await agent.send(agent.started_event(channel, "quiet"));
	const say = (text) => agent.send(agent.event("note", { text }, { channel }));
	for (let i = 1; i <= 14; i++)
		await say(`note ${i}.`);
	await page.row(({ text }) => text === "note 14.");
	for (const way of [[], ["--story"]]) {
		const tail = spawnPerch(["tail", ...way, "quiet"], { env: envOf(home) });
		await printed(tail, "note 14.");
		await say(`and then ${way.length}`);
		await printed(tail, `and then ${way.length}`);
		await tail.stop();
		const notes = [...tail.stdout().matchAll(/note (\d+)\./g)].map(([, n]) => Number(n));
		assert.ok(notes.length >= 9 && notes.length <= 10, tail.stdout());
		assert.deepEqual(notes, [...new Set(notes)].sort((a, b) => a - b));
	}
	page.close();
	await agent.close();
});
