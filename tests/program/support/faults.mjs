// An owner's whole path under faults: a harness with the scripted agent, and what the archive has.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { scriptedAgent } from "./harness.mjs";
import { open } from "./keys.mjs";
import { envOf, makeHome, run, startObserver } from "./observer.mjs";
import { perchBin } from "./perch.mjs";
import { TIMEOUT_MS } from "./timeout.mjs";

export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** A harness in the owner's home, under the scripted agent; `inside`: the command that runs it. */
export async function startAgent(url, home, { inside = [], env = {}, args = [] } = {}) {
	const work = join(home.dir, "work");
	mkdirSync(work, { recursive: true });
	const [command, ...words] = [...inside, perchBin, "agent"];
	const child = spawn(command, [...words, "--relay", url, "--name", "tested", "--channel", "main",
		"--cwd", work, "--tick-ms", "100", "--control", "full", "--ready-fd", "3", ...args, "--", ...scriptedAgent],
	{ env: { ...process.env, ...envOf(home), ...env }, stdio: ["ignore", "ignore", "pipe", "pipe"] });
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
export async function exported(home) {
	const { code, stdout, stderr } = await run(home, "export");
	assert.equal(code, 0, stderr);
	const lines = stdout.split("\n").filter(Boolean).map((line) => JSON.parse(line));
	return { events: lines.filter(({ event }) => event), gone: lines.filter(({ gone }) => gone) };
}

/** Numbers of the markers that the agent said, in the order of the feed. */
export function markersOf(events) {
	const said = events.filter(({ event }) => event.kind === "acp_read")
		.sort((a, b) => (a.epoch < b.epoch ? -1 : a.epoch > b.epoch ? 1 : a.event.seq - b.event.seq))
		.map(({ event }) => event.payload.params?.update)
		.filter((update) => update?.sessionUpdate === "agent_message_chunk")
		.map((update) => update.content.text).join("");
	return [...said.matchAll(/\[marker (\d+)\]/g)].map(([, number]) => Number(number));
}

export const count = (n) => Array.from({ length: n }, (_, i) => i);
export const kindCount = ({ events }, kind) => events.filter(({ event }) => event.kind === kind).length;
export const prompts = ({ events }) =>
	events.filter(({ event }) => event.kind === "acp_write" && event.payload.method === "session/prompt").length;

/** No event, and no frame's number, twice; none but those of the harness. */
export function assertOnce({ events }) {
	const seen = new Map();
	for (const { agent, epoch, frame, event } of events) {
		const key = `${agent}/${epoch}/${event.seq}`;
		assert.ok(!seen.has(key), `event ${key} (${event.kind}) is there twice, in frames ${seen.get(key)} and ${frame}`);
		seen.set(key, frame);
	}
	assert.equal(new Set(events.map(({ agent }) => agent)).size, 1, "only our agent's");
}

/** Exports until it holds; nothing tells from outside when the last frame was stored. */
export async function untilExport(home, holds) {
	const end = Date.now() + TIMEOUT_MS;
	for (;;) {
		const found = await exported(home);
		if (holds(found) || Date.now() > end)
			return found;
		await pause(300);
	}
}

/** What a harness said, in its order, without what its frame says; answers and states are of no log. */
const logOf = (events) => events
	.filter(({ event }) => !["feed_state", "control_result"].includes(event.kind))
	.map(({ epoch, event: { epoch: own, frame, replayed, ...event } }) => [`${epoch}/${String(event.seq).padStart(9, "0")}`, event])
	.sort(([a], [b]) => (a < b ? -1 : 1));

/**
 * The archive equals another log of the same feed, event for event, as far as both reach, and at
 * least as far as the archive does now. `other` gives that log's events; both may still grow.
 */
async function assertEquals(home, other) {
	const least = logOf((await exported(home)).events).length;
	const end = Date.now() + TIMEOUT_MS;
	for (;;) {
		const both = [logOf((await exported(home)).events), logOf(await other())];
		const last = both.map((log) => log.at(-1)?.[0] ?? "").sort()[0];
		const [mine, theirs] = both.map((log) => log.filter(([at]) => at <= last));
		if ((mine.length >= least && isDeepStrictEqual(mine, theirs)) || Date.now() > end) {
			assert.deepEqual(mine, theirs);
			assert.ok(mine.length >= least, `${mine.length} of ${least} events`);
			return;
		}
		await pause(300);
	}
}

/** The harness's own log is its journal: a second observer with an empty archive is served all of it. */
export async function assertEqualsJournal(url, home) {
	const fresh = makeHome(home.owner), observer = await startObserver(url, fresh);
	await assertEquals(home, async () => (await exported(fresh)).events);
	await observer.end();
	fresh.remove();
}

/** What a relay of ours was given, before it lied. */
export const assertEqualsSaid = (relay, home, agentPub) =>
	assertEquals(home, () => {
		const said = new Map();
		for (const item of relay.log.all) {
			if (item.pubkey !== agentPub || item.tags?.find(([name]) => name === "frame")?.[1] !== "telemetry")
				continue;
			const { epoch, frame, replayed, ...plain } = JSON.parse(open(home.owner, item));
			for (const event of plain.kind === "batch" ? plain.payload.events : [plain])
				said.set(`${epoch}/${event.seq}`, { epoch, event });
		}
		return [...said.values()];
	});

/** The lane of our agent, once it is there. */
export async function laneOf(observer) {
	const page = await observer.page();
	const lane = await page.until((message) => message.lanes?.find(({ channelName }) => channelName === "main"));
	page.close();
	return lane;
}

export const prompt = (observer, lane, text) =>
	observer.post({ type: "prompt", agent: lane.agent, channel: lane.channel, text });
