// Faults: whatever breaks on the way, in the end the archive has what the harness said, event for
// event and once, or says which frames it does not have.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { scriptedAgent, SmallRelay } from "./support/harness.mjs";
import { envOf, freshEpoch, makeAgent, makeHome, makeKey, now, run, startObserver, telemetry }
	from "./support/observer.mjs";
import { perchBin, startRelay } from "./support/perch.mjs";

const TIMEOUT_MS = 40000;
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** A harness in the owner's home, under the scripted agent. */
async function startAgent(url, home) {
	const work = join(home.dir, "work");
	mkdirSync(work, { recursive: true });
	const child = spawn(perchBin, ["agent", "--relay", url, "--name", "tested", "--channel", "main",
		"--cwd", work, "--tick-ms", "100", "--control", "full", "--ready-fd", "3", "--", ...scriptedAgent],
	{ env: { ...process.env, ...envOf(home) }, stdio: ["ignore", "ignore", "pipe", "pipe"] });
	const agent = { child, stderr: "", exited: once(child, "close") };
	child.stderr.setEncoding("utf8").on("data", (piece) => (agent.stderr += piece));
	await Promise.race([once(child.stdio[3], "data"), agent.exited.then(() => assert.fail(agent.stderr))]);
	agent.stop = async (signal = "SIGTERM") => {
		child.kill(signal);
		await agent.exited;
		assert.doesNotMatch(agent.stderr, /Sanitizer|runtime error/);
	};
	return agent;
}

/** What `perch export` prints: events, and ranges that are gone. */
async function exported(home) {
	const { code, stdout, stderr } = await run(home, "export");
	assert.equal(code, 0, stderr);
	const lines = stdout.split("\n").filter(Boolean).map((line) => JSON.parse(line));
	return { events: lines.filter(({ event }) => event), gone: lines.filter(({ gone }) => gone) };
}

/** Numbers of the markers that the agent said, in the order of the feed. */
function markersOf(events) {
	const said = events.filter(({ event }) => event.kind === "acp_read")
		.sort((a, b) => (a.epoch < b.epoch ? -1 : a.epoch > b.epoch ? 1 : a.event.seq - b.event.seq))
		.map(({ event }) => event.payload.params?.update)
		.filter((update) => update?.sessionUpdate === "agent_message_chunk")
		.map((update) => update.content.text).join("");
	return [...said.matchAll(/\[marker (\d+)\]/g)].map(([, number]) => Number(number));
}

const count = (n) => Array.from({ length: n }, (_, i) => i);
const kindCount = ({ events }, kind) => events.filter(({ event }) => event.kind === kind).length;
const prompts = ({ events }) =>
	events.filter(({ event }) => event.kind === "acp_write" && event.payload.method === "session/prompt").length;

/** No event, and no frame's number, twice; none but those of the harness. */
function assertOnce({ events }) {
	const keys = events.map(({ agent, epoch, event }) => `${agent}/${epoch}/${event.seq}`);
	assert.equal(new Set(keys).size, keys.length, "an event is there twice");
	assert.equal(new Set(events.map(({ agent }) => agent)).size, 1, "only our agent's");
}

/** Exports until it holds; nothing tells from outside when the last frame was stored. */
async function untilExport(home, holds) {
	const end = Date.now() + TIMEOUT_MS;
	for (;;) {
		const found = await exported(home);
		if (holds(found) || Date.now() > end)
			return found;
		await pause(300);
	}
}

/** The lane of our agent, once it is there. */
async function laneOf(observer) {
	const page = await observer.page();
	const lane = await page.until((message) => message.lanes?.find(({ channelName }) => channelName === "main"));
	page.close();
	return lane;
}

const prompt = (observer, lane, text) =>
	observer.post({ type: "prompt", agent: lane.agent, channel: lane.channel, text });

test("a relay that is killed again and again, and stopped processes, lose nothing", async () => {
	const home = makeHome();
	let relay = await startRelay();
	const { port, url } = relay;
	const observer = await startObserver(url, home);
	const agent = await startAgent(url, home);
	const lane = await laneOf(observer);
	assert.equal((await prompt(observer, lane, "markers 300 20")).status, 202);
	await untilExport(home, (found) => markersOf(found.events).length > 0);
	for (const victim of [null, observer, null, agent, null]) {
		if (victim) {
			victim.child.kill("SIGSTOP");
			await pause(500);
			victim.child.kill("SIGCONT");
		} else {
			await relay.stop("SIGKILL");
			relay = await startRelay(["--listen", `127.0.0.1:${port}`]);
		}
		await pause(500);
	}
	relay.child.kill("SIGSTOP");
	await pause(500);
	relay.child.kill("SIGCONT");
	const found = await untilExport(home, (all) =>
		markersOf(all.events).length === 300 && kindCount(all, "turn_completed") === 1);
	assert.deepEqual(markersOf(found.events), count(300));
	assert.equal(kindCount(found, "turn_completed"), 1);
	assert.equal(prompts(found), 1, "the prompt ran once");
	assert.deepEqual(found.gone, []);
	assertOnce(found);
	await agent.stop();
	await observer.end();
	await relay.stop();
	home.remove();
});

test("a harness that is killed in mid-turn: its next start serves what it had kept", async () => {
	const home = makeHome(), relay = await startRelay();
	let observer = await startObserver(relay.url, home);
	let agent = await startAgent(relay.url, home);
	const lane = await laneOf(observer);
	await prompt(observer, lane, "markers 500 10");
	await untilExport(home, ({ events }) => markersOf(events).length > 0);
	await observer.end(); // sees nothing of what comes now
	await pause(1500);
	agent.child.kill("SIGKILL");
	await agent.exited;
	agent = await startAgent(relay.url, home);
	observer = await startObserver(relay.url, home);
	const found = await untilExport(home, ({ events, gone }) =>
		new Set(events.map(({ epoch }) => epoch)).size === 2 &&
		(gone.length || markersOf(events).length > 60));
	const markers = markersOf(found.events);
	if (!found.gone.length) // what had been kept, and nothing between is missing
		assert.deepEqual(markers, count(markers.length));
	assert.ok(markers.length < 500);
	assert.equal(prompts(found), 1, "no prompt is run again by the next start");
	assertOnce(found);
	await agent.stop();
	await observer.end();
	await relay.stop();
	home.remove();
});

/** Drops, repeats, reorders, replays, forges, and brings what is another owner's. */
class LyingRelay extends SmallRelay {
	#seed = 20261130;
	#held;
	#old = [];
	counts = { dropped: 0, repeated: 0, held: 0, replayed: 0, forged: 0, others: 0 };

	#chance(part) {
		this.#seed = (this.#seed * 1103515245 + 12345) % 2147483648;
		return (this.#seed >> 8) % 100 < part;
	}

	deliver(event) {
		const out = [];
		if (this.#chance(20))
			this.counts.dropped++;
		else
			out.push(event);
		if (this.#chance(15))
			this.counts.repeated++, out.push(event);
		if (this.#old.length && this.#chance(15))
			this.counts.replayed++, out.push(this.#old[event.created_at % this.#old.length]);
		if (this.#chance(15))
			this.counts.forged++, out.unshift({ ...event, content: event.content.replace(/^.{8}/, "AgAAAAAA"), id: event.id });
		if (this.#chance(10) && this.stranger)
			this.counts.others++, out.push(this.stranger());
		this.#old = [...this.#old.slice(-50), event];
		if (this.#held) {
			out.push(this.#held);
			this.#held = undefined;
		} else if (out.length && this.#chance(20)) {
			this.counts.held++;
			this.#held = out.shift();
		}
		for (const each of out)
			super.deliver(each);
	}
}

test("a relay that lies: in the end all is there, once, and nothing that was not said", async () => {
	const home = makeHome(), relay = await LyingRelay.start();
	const other = makeAgent(makeKey());
	relay.stranger = () => telemetry(other, home.owner.pub, JSON.stringify({
		seq: 1, monotonicMs: 1, timestamp: new Date().toISOString(), kind: "note", agentIndex: 0, channelId: null,
		sessionId: null, turnId: null, payload: { text: "not ours" }, epoch: freshEpoch(), frame: 1,
	}), { tags: [other.auth], created_at: now() });
	const observer = await startObserver(relay.url, home);
	const agent = await startAgent(relay.url, home);
	const lane = await laneOf(observer);
	assert.equal((await prompt(observer, lane, "markers 200 20")).status, 202);
	assert.equal((await prompt(observer, lane, "say last")).status, 202);
	const found = await untilExport(home, (all) =>
		markersOf(all.events).length === 200 && kindCount(all, "turn_completed") === 2);
	assert.deepEqual(markersOf(found.events), count(200));
	assert.equal(kindCount(found, "turn_completed"), 2);
	assert.equal(prompts(found), 2, "each prompt ran once");
	assert.deepEqual(found.gone, []);
	assertOnce(found);
	for (const [what, times] of Object.entries(relay.counts))
		assert.ok(times > 0, `${what}: ${JSON.stringify(relay.counts)}`);
	await agent.stop();
	await observer.end();
	await relay.stop();
	home.remove();
});
