// Faults: whatever breaks on the way, in the end the archive has what the harness said, event for
// event and once, or says which frames it does not have.
import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { isDeepStrictEqual } from "node:util";
import { assertEqualsJournal, assertEqualsSaid, assertOnce, count, kindCount, laneOf, markersOf, pause, prompt, prompts, startAgent, untilExport }
	from "./support/faults.mjs";
import { SmallRelay } from "./support/harness.mjs";
import { ask, channelId, freshEpoch, Harness, makeAgent, makeHome, makeKey, now, run, startObserver, telemetry }
	from "./support/observer.mjs";
import { portToKeep, startRelay } from "./support/perch.mjs";
import { isAlive, until } from "./support/up.mjs";

test("a relay that is killed again and again, and stopped processes, lose nothing", async () => {
	const home = makeHome();
	const listen = ["--listen", `127.0.0.1:${await portToKeep()}`];
	let relay = await startRelay(listen);
	const { url } = relay;
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
			relay = await startRelay(listen);
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
	await assertEqualsJournal(url, home);
	await agent.stop();
	await observer.end();
	await relay.stop();
	home.remove();
});

// By hand, the whole of it: PERCH_TEST_KILLS=12 PERCH_TEST_KILL_EVERY_MS=5000.
const KILLS = Number(process.env.PERCH_TEST_KILLS ?? 3);
const KILL_EVERY_MS = Number(process.env.PERCH_TEST_KILL_EVERY_MS ?? 1500);

test("500 markers under heavy load, through a relay that is killed every few seconds", async () => {
	const home = makeHome();
	const listen = ["--listen", `127.0.0.1:${await portToKeep()}`];
	let relay = await startRelay(listen);
	const { url } = relay;
	const observer = await startObserver(url, home);
	const agent = await startAgent(url, home);
	const lane = await laneOf(observer);
	const ms = Math.ceil(KILLS * KILL_EVERY_MS / 500);
	assert.equal((await prompt(observer, lane, `markers 500 ${ms} 4000`)).status, 202);
	await untilExport(home, (found) => markersOf(found.events).length > 0);
	for (let i = 0; i < KILLS; i++) {
		await pause(KILL_EVERY_MS);
		await relay.stop("SIGKILL");
		relay = await startRelay(listen);
	}
	const found = await untilExport(home, (all) =>
		markersOf(all.events).length === 500 && kindCount(all, "turn_completed") === 1);
	assert.deepEqual(markersOf(found.events), count(500));
	assert.equal(prompts(found), 1, "the prompt ran once");
	assert.deepEqual(found.gone, []);
	assertOnce(found);
	await assertEqualsJournal(url, home);
	await agent.stop();
	await observer.end();
	await relay.stop();
	home.remove();
});

test("a harness that is killed in mid-turn: its next start serves what it had kept", async () => {
	const home = makeHome(), relay = await startRelay();
	let observer = await startObserver(relay.url, home);
	let agent = await startAgent(relay.url, home);
	const lane = await laneOf(observer), go = join(home.dir, "go"), said = join(home.dir, "said");
	const rest = Array.from({ length: 100 }, (_, i) => `say [marker ${i + 5}]\nsleep 10`).join("\n");
	await prompt(observer, lane, `markers 5 10\nawait ${go}\n${rest}\ntouch ${said}\nstall`);
	await untilExport(home, ({ events }) => markersOf(events).length > 0);
	await observer.end(); // sees nothing of what comes now
	writeFileSync(go, "");
	await until(() => existsSync(said), "all markers to be said");
	agent.child.kill("SIGKILL");
	await agent.exited;
	agent = await startAgent(relay.url, home);
	observer = await startObserver(relay.url, home);
	const isWhole = (markers) => isDeepStrictEqual(markers, count(markers.length));
	const found = await untilExport(home, ({ events, gone }) =>
		new Set(events.map(({ epoch }) => epoch)).size === 2 &&
		(gone.length || (markersOf(events).length > 5 && isWhole(markersOf(events)))));
	const markers = markersOf(found.events);
	if (!found.gone.length) // what had been kept, and nothing between is missing
		assert.deepEqual(markers, count(markers.length));
	assert.equal(kindCount(found, "turn_completed"), 0, "it was in mid-turn");
	assert.equal(prompts(found), 1, "no prompt is run again by the next start");
	assertOnce(found);
	await agent.stop();
	await observer.end();
	await relay.stop();
	home.remove();
});

/** Drops, repeats, reorders, delays, replays, forges, and brings what is another owner's. */
class LyingRelay extends SmallRelay {
	#seed = 20261130;
	#held;
	#old = [];
	counts = { dropped: 0, repeated: 0, held: 0, delayed: 0, replayed: 0, forged: 0, others: 0, swapped: 0 };

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
		for (const each of out) {
			if (this.#chance(10))
				this.counts.delayed++, setTimeout(() => super.deliver(each), 700);
			else
				super.deliver(each);
		}
		/* Each gets what is the other's: as if the subscriptions had been mixed up. */
		if (this.#chance(15))
			this.counts.swapped++, this.deliverToAll(event);
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
	let turns = 2, found;
	for (;;) {
		found = await untilExport(home, (all) =>
			markersOf(all.events).length === 200 && kindCount(all, "turn_completed") === turns);
		// On a machine that is busy there are fewer frames, of which chance may have left some alone.
		if (kindCount(found, "turn_completed") !== turns || Object.values(relay.counts).every((times) => times > 0))
			break;
		assert.equal((await prompt(observer, lane, "say more")).status, 202);
		turns++;
	}
	assert.deepEqual(markersOf(found.events), count(200));
	assert.equal(kindCount(found, "turn_completed"), turns);
	assert.equal(prompts(found), turns, "each prompt ran once");
	assert.deepEqual(found.gone, []);
	assertOnce(found);
	await assertEqualsSaid(relay, home, found.events[0].agent);
	await agent.stop();
	await observer.end();
	await relay.stop();
	home.remove();
});

/** Whoever watched under that name has been there, and is gone: the command waits neither for its start nor for its end. */
async function released(lock) {
	const holder = await until(() => existsSync(lock) && Number(readFileSync(lock, "utf8")), lock);
	await until(() => !isAlive(holder), `the end of ${holder}, which holds ${lock}`);
}

test("a command whose owner was away for the whole run is there with the next one", async () => {
	const home = makeHome(), listen = ["--listen", `127.0.0.1:${await portToKeep()}`], relay = await startRelay(listen);
	const runOnce = (script) => run(home, "run", "--relay", relay.url, "--name", "job", "--channel", "ci", "--", "sh", "-c", script);
	const first = await runOnce("for i in 1 2 3; do echo line $i of the first; done; exit 3");
	assert.equal(first.code, 3);
	await released(join(home.dir, "run", "job.lock")); // else the second is job-2, another agent
	await relay.stop("SIGKILL"); // and with it all that a relay remembers
	const again = await startRelay(listen);
	const observer = await startObserver(again.url, home);
	await observer.connected();
	/* The second goes on until what the first wrote down is there. */
	const seen = join(home.dir, "seen");
	const second = runOnce(`echo the second; until [ -e ${seen} ]; do sleep 0.1; done`);
	await untilExport(home, (all) => kindCount(all, "agent_exited") === 1 && kindCount(all, "harness_stopping") === 1);
	writeFileSync(seen, "");
	assert.equal((await second).code, 0);
	const found = await untilExport(home, (all) => kindCount(all, "agent_exited") === 2 && kindCount(all, "harness_stopping") === 2);
	const said = found.events.filter(({ event }) => event.kind === "output").map(({ event }) => event.payload.text).join("");
	for (const line of ["line 1 of the first", "line 2 of the first", "line 3 of the first", "the second"])
		assert.equal(said.split(line).length, 2, `${line}: once in ${said}`);
	assert.deepEqual(found.gone, []);
	assertOnce(found);
	await observer.end();
	await again.stop();
	home.remove();
});

test("two observers with empty archives that are killed while they ask each end with all of it", async () => {
	const home = makeHome(), relay = await startRelay();
	const homes = [makeHome(home.owner), makeHome(home.owner)];
	const agent = await startAgent(relay.url, home);
	const seeing = await startObserver(relay.url, home);
	await prompt(seeing, await laneOf(seeing), "markers 600 10");
	await untilExport(home, (all) => kindCount(all, "turn_completed") === 1);
	let observers = await Promise.all(homes.map((one) => startObserver(relay.url, one)));
	for (let i = 0; i < 4; i++) {
		await pause(400);
		const victim = i % 2;
		await observers[victim].stop("SIGKILL");
		observers[victim] = await startObserver(relay.url, homes[victim]);
	}
	for (const one of homes) {
		const found = await untilExport(one, (all) =>
			markersOf(all.events).length === 600 && kindCount(all, "turn_completed") === 1);
		assert.deepEqual(markersOf(found.events), count(600));
		assert.equal(prompts(found), 1);
		assert.deepEqual(found.gone, []);
		assertOnce(found);
	}
	await agent.stop();
	for (const one of [seeing, ...observers])
		await one.end();
	await relay.stop();
	for (const one of [home, ...homes])
		one.remove();
});

test("what is served again notifies nobody and turns nothing back", async () => {
	const home = makeHome(), relay = await startRelay(), channel = channelId();
	const observer = await startObserver(relay.url, home);
	const harness = await Harness.open(relay.url, home.owner);
	const page = await observer.page();
	const turn = (kind, payload) => harness.event(kind, payload, { channel, turn: "t1" });
	const missed = (plaintext) => ({ plaintext, number: ++harness.frame });
	await harness.send(harness.started_event(channel));
	await harness.send(turn("turn_started", { promptId: "p1", source: "owner", text: "do it" }));
	const late = [
		missed(harness.event("acp_read", ask("rm -rf build"), { channel, turn: "t1", authorization: { requestNonce: "n1", actionable: true } })),
		missed(turn("permission_terminal", { requestNonce: "n1", outcome: "applied" })),
		missed(harness.event("acp_read", ask("make"), { channel, turn: "t1", authorization: { requestNonce: "n2", actionable: true } })),
	];
	await harness.send(turn("turn_completed", { promptId: "p1", stopReason: "end_turn", durationMs: 5 }));
	const settled = await page.until(({ lanes }) => lanes?.find(({ turn: last }) => last?.state === "completed"));
	assert.equal(settled.state, "finished");
	const from = page.messages.length;
	for (const { plaintext, number } of late)
		await harness.send(plaintext, { number, replayed: true });
	await page.row((row) => row.type === "permission" && row.nonce === "n2");
	const { lanes, cards } = JSON.parse((await observer.get("/api/fleet")).text);
	assert.deepEqual(cards, [], "no card");
	assert.equal(lanes.find(({ channel: id }) => id === channel).state, "finished");
	for (const message of page.messages.slice(from)) {
		assert.deepEqual((message.cards ?? []).filter(({ state }) => state === "pending"), [], "no notification");
		for (const lane of message.lanes ?? [])
			assert.equal(lane.state, "finished", "at no moment");
	}
	page.close();
	await harness.close();
	await observer.end();
	await relay.stop();
	home.remove();
});
