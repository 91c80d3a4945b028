// Several agent processes in one harness: which channel is whose, and that one's trouble is its own.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { Harness, withHarness } from "./support/harness.mjs";
import { isAlive, until } from "./support/up.mjs";

const channelsOf = (harness) => harness.ofKind("harness_started")[0].payload.channels.map(({ id }) => id);

async function feedState(harness) {
	const requestId = `sync-${harness.mark}`;
	harness.publish({ type: "feed_sync", requestId, observer: "0badcafe", want: [] });
	return (await harness.event("feed_state", (payload) => payload.requestId === requestId)).payload;
}

/** All slots have answered initialize. */
const allReady = (harness, count) => Promise.all(Array.from({ length: count }, (_, slot) => harness.event("agent_initialized", (payload) => payload.slot === slot)));

test("channels are spread over the slots, and everything says which slot it is of", () => withHarness(async (harness) => {
	const channels = channelsOf(harness);
	await allReady(harness, 3);
	for (const channelId of channels) {
		const from = harness.mark;
		await harness.prompt("say hello", { channelId });
		await harness.completed(from);
	}
	const state = await feedState(harness);
	assert.deepEqual(state.slots.map(({ slot, state: word }) => [slot, word]), [[0, "ready"], [1, "ready"], [2, "ready"]]);
	assert.equal(new Set(state.slots.map(({ pid }) => pid)).size, 3);
	const slotOf = new Map(state.sessions.map(({ channelId, slot }) => [channelId, slot]));
	assert.deepEqual(channels.map((id) => slotOf.get(id)), [0, 1, 2, 0]);
	for (const event of harness.ofKind("turn_completed"))
		assert.equal(event.agentIndex, slotOf.get(event.channelId));
	assert.equal(harness.ofKind("harness_started")[0].payload.slots, 3);
}, ["--slots", "3", "--channel", "b", "--channel", "c", "--channel", "d"]));

test("a crash ends the turns of its slot and of no other", () => withHarness(async (harness) => {
	const [first, second] = channelsOf(harness);
	await allReady(harness, 2);
	await harness.prompt("say working\nstall", { channelId: second });
	await harness.untilSaid("working");
	await harness.prompt("crash SIGKILL", { channelId: first });
	const done = await harness.completed();
	assert.equal(done.cancelledBy, "exit");
	assert.equal((await harness.event("agent_exited")).payload.slot, 0);
	const state = await feedState(harness);
	assert.deepEqual(state.turns.map(({ channelId }) => channelId), [second]);
	assert.equal(state.slots[1].state, "ready");
	assert.equal((await harness.ask("cancel_turn", { channelId: second })).status, "sent");
	await harness.event("turn_completed", (payload, event) => event.channelId === second && payload.cancelledBy === "owner");
	assert.equal(harness.ofKind("agent_exited").length, 1);
}, ["--slots", "2", "--channel", "b"]));

test("what an agent left running survives the crash of another", async () => {
	const harness = await Harness.start(["--slots", "2", "--channel", "b"]);
	const [first, second] = channelsOf(harness);
	const pidFile = join(harness.work, "pid"), ownPidFile = join(harness.work, "own-pid");
	await allReady(harness, 2);
	for (const [channelId, file] of [[second, pidFile], [first, ownPidFile]]) {
		const from = harness.mark;
		await harness.prompt(`orphan ${file}`, { channelId });
		await harness.completed(from);
	}
	const pid = Number(readFileSync(pidFile, "utf8")), own = Number(readFileSync(ownPidFile, "utf8"));
	assert.ok(isAlive(pid) && isAlive(own));
	await harness.prompt("crash SIGKILL", { channelId: first });
	await harness.event("agent_exited");
	await until(() => !isAlive(own), "the end of what the crashed one left"); // whoever is killed has to be run to end
	assert.ok(isAlive(pid), "what the other one left is not");
	await harness.stop();
	await until(() => !isAlive(pid), "the end of all that the harness had");
});

/** An agent that starts at once: Node takes its time, and three crashes count within a minute only. */
const shellAgent = ["/bin/sh", "-c", `while read -r line; do
	id=\${line#*'"id":'}
	id=\${id%%,*}
	case $line in
	*'"method":"initialize"'*) result='{"protocolVersion":1,"agentCapabilities":{},"authMethods":[]}' ;;
	*'"method":"session/new"'*) result='{"sessionId":"s'$$'"}' ;;
	*'"text":"crash'*) kill -9 $$ ;;
	*'"method":"session/prompt"'*) result='{"stopReason":"end_turn"}' ;;
	*) continue ;;
	esac
	printf '{"jsonrpc":"2.0","id":%s,"result":%s}\\n' "$id" "$result"
done`];

test("a channel whose slot crashes again and again moves to one that is better off", () => withHarness(async (harness) => {
	const [first] = channelsOf(harness);
	await allReady(harness, 2);
	for (let i = 1; i <= 3; i++) {
		const from = harness.mark;
		await harness.prompt("crash SIGKILL", { channelId: first });
		await harness.completed(from);
		if (i < 3)
			await harness.event("session_resolved", ({ isNew }, event) => isNew && event.channelId === first, from);
	}
	assert.equal((await harness.event("circuit_open")).payload.slot, 0);
	const from = harness.mark;
	await harness.prompt("say elsewhere", { channelId: first });
	const done = await harness.event("turn_completed", () => true, from);
	assert.equal(done.payload.stopReason, "end_turn");
	assert.equal(done.agentIndex, 1);
	assert.equal((await feedState(harness)).slots[0].state, "circuit_open");
}, ["--slots", "2"], { command: shellAgent }));

test("a run over several slots ends when every channel has had its prompt", async () => {
	const harness = await Harness.start(["--slots", "2", "--channel", "b", "--channel", "c", "--prompt", "say done"], { ready: false });
	assert.deepEqual(await harness.exited, { code: 0, signal: null });
	assert.equal(harness.ofKind("turn_completed").length, 3);
	assert.equal(harness.ofKind("agent_exited").length, 2);
	await harness.stop();
});
