// What an owner who was away is served: the harness's journal, over starts, kills, full disks and
// relays with limits of their own.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { existsSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { Harness, SmallRelay, now } from "./support/harness.mjs";
import { control, open } from "./support/keys.mjs";
import { startObserver } from "./support/observer.mjs";
import { until } from "./support/up.mjs";

const live = (harness) => harness.frames.all.filter((frame) => !frame.replayed);
const withoutMark = ({ replayed, ...frame }) => frame;

/** Asks as an observer does; the feed_state that answers. */
async function sync(harness, want, observer = "aabbccdd") {
	const requestId = randomUUID();
	harness.publish({ type: "feed_sync", requestId, observer, want, expires: now() + 60 });
	return (await harness.event("feed_state", (payload) => payload.requestId === requestId)).payload;
}

/** Every frame of the epoch that the harness says it has, as served from now on. */
async function fetchAll(harness, epoch) {
	const from = harness.frames.all.length;
	const state = await sync(harness, [{ epoch, frames: [[1, 2 ** 53 - 1]] }]);
	const { first, last } = state.epochs.find((entry) => entry.epoch === epoch);
	const served = () => harness.frames.all.slice(from).filter((frame) => frame.epoch === epoch && frame.replayed);
	await harness.frames.wait(() => new Set(served().map(({ frame }) => frame)).size >= last - first + 1,
		`frames ${first} to ${last} of ${epoch}`, from);
	return { state, first, last, served: new Map(served().map((frame) => [frame.frame, frame])) };
}

test("a harness that is killed in mid-turn: the next start serves all that was written, and says the rest is gone", async () => {
	const first = await Harness.start();
	for (let i = 0; i < 5; i++)
		await first.turn(`say marker-${i} `);
	const written = live(first).at(-1).frame;
	await first.prompt("heavy 100000\nsay in the middle\nstall");
	await first.untilSaid("in the middle");
	// Frames are served from memory, this body from the disk; and all goes there in the order it came in.
	const { seq } = await first.event("acp_read", (payload, { trimmed }) => trimmed);
	await until(async () => (await first.ask("fetch_body", { seq, channelId: undefined })).status === "ok", "the body to be kept");
	await first.leave("SIGKILL");
	const before = live(first);
	const second = await Harness.start([], { again: first });
	assert.ok(second.epoch > first.epoch);
	const gap = await second.event("observer_telemetry_gap");
	assert.equal(gap.payload.reasonCounts.unclean_stop, 1);
	const { state, last, served } = await fetchAll(second, first.epoch);
	assert.ok(last >= written, `${last} of ${written} were written`);
	for (const frame of before.filter(({ frame: number }) => number <= last))
		assert.deepEqual(withoutMark(served.get(frame.frame)), frame);
	assert.deepEqual(state.gone.find(({ epoch }) => epoch === first.epoch).frames, [[last + 1, 2 ** 53 - 1]]);
	await second.stop();
});

test("a stop while the relay is away keeps the rest, and the next start tells of no unclean end", async () => {
	const first = await Harness.start();
	await first.turn("say one");
	first.relay.goAway();
	assert.equal((await first.leave()).code, 0);
	assert.match(first.stderr, /stopped with \d+ events? unsent; \d+ kept for the next start/);
	const second = await Harness.start([], { again: { home: first.home, owner: first.owner } });
	const { served } = await fetchAll(second, first.epoch);
	const kinds = [...served.values()].flatMap((frame) => frame.kind === "batch" ? frame.payload.events : [frame]);
	const stopping = kinds.find(({ kind }) => kind === "harness_stopping");
	assert.ok(stopping.payload.left.events > 0);
	assert.equal(stopping.payload.journalled, stopping.payload.left.events);
	assert.ok(kinds.some(({ kind }) => kind === "agent_exited"));
	assert.equal(second.ofKind("observer_telemetry_gap").length, 0);
	await second.stop();
	await first.relay.stop();
});

test("stopping in a backlog: what cannot leave in time is told by the last word", async () => {
	const first = await Harness.start(["--tick-ms", "1000"]);
	const file = join(first.work, "written");
	await first.prompt(`heavy 60000 40\ntouch ${file}`); // more than leaves meanwhile and in its last seconds
	await until(() => existsSync(file), "all of it to be written");
	assert.deepEqual(await first.leave(), { code: 0, signal: null });
	// A relay that is slow to answer does not get it before the end; the journal has it in any case.
	const second = await Harness.start([], { again: first });
	const { last } = (await sync(second, [])).epochs.find(({ epoch }) => epoch === first.epoch);
	await sync(second, [{ epoch: first.epoch, frames: [[last, last]] }]);
	const { payload } = await second.event("harness_stopping");
	assert.ok(payload.left.events > 0, JSON.stringify(payload));
	await second.stop();
});

test("two observers get what each asks, newest epoch first, each frame once", async () => {
	const first = await Harness.start();
	await first.turn("say one");
	await first.leave();
	const second = await Harness.start([], { again: first });
	await second.turn("say two");
	const from = second.frames.all.length;
	// Sealed before they are sent, which takes a while: what one asks when the other has been served comes again.
	const asked = Object.entries({
		aaaaaaaa: [{ epoch: first.epoch, frames: [[1, 3]] }, { epoch: second.epoch, frames: [[1, 2]] }],
		bbbbbbbb: [{ epoch: first.epoch, frames: [[2, 4]] }],
	}).map(([observer, want]) => control(second.owner, second.agentPub,
		JSON.stringify({ type: "feed_sync", requestId: observer, observer, want, expires: now() + 60 })));
	for (const each of asked)
		second.relay.deliver(each);
	const served = () => second.frames.all.slice(from).filter(({ replayed }) => replayed);
	await second.frames.wait(() => served().length >= 6, "six frames", from);
	assert.deepEqual(served().map(({ epoch, frame }) => [epoch === second.epoch ? 2 : 1, frame]).sort(),
		[[1, 1], [1, 2], [1, 3], [1, 4], [2, 1], [2, 2]]);
	await second.stop();
});

test("the body of a trimmed event comes from the journal, also of an earlier start", async () => {
	const first = await Harness.start();
	await first.turn("hugeline 1");
	const event = first.ofKind("acp_read").find(({ trimmed }) => trimmed > 900000);
	assert.ok(event);
	await first.leave();
	const second = await Harness.start([], { again: first });
	const result = await second.ask("fetch_body", { epoch: first.epoch, seq: event.seq, channelId: undefined });
	assert.equal(result.status, "ok");
	const part = await second.event("body_part", ({ part: number, parts }) => number === parts);
	assert.equal(part.channelId, event.channelId);
	const whole = JSON.parse(second.ofKind("body_part").map(({ payload }) => payload.text).join(""));
	assert.equal(whole.seq, event.seq);
	assert.equal(whole.payload.params.update.content.text.length, 1 << 20);
	const never = await second.ask("fetch_body", { epoch: first.epoch, seq: 1, channelId: undefined });
	assert.deepEqual([never.status, /not kept/.test(never.detail)], ["refused", true]);
	await second.stop();
});

test("the journal is a private file of this key, and without one nothing is kept", async () => {
	const first = await Harness.start(["--journal-mb", "0"]);
	await first.turn("say one");
	assert.deepEqual(readdirSync(join(first.home, "journal")), []);
	await first.leave();
	const second = await Harness.start([], { again: first });
	const [file] = readdirSync(join(second.home, "journal"));
	assert.match(file, /^npub1[a-z0-9]{58}\.db/);
	assert.equal(statSync(join(second.home, "journal", file)).mode & 0o777, 0o600);
	const state = await sync(second, []);
	assert.deepEqual(state.epochs.map(({ epoch }) => epoch), [second.epoch]);
	await second.stop();
});

test("what a flood has too much of comes later, and nothing is lost", async () => {
	const harness = await Harness.start();
	const go = join(harness.work, "go"), written = join(harness.work, "written");
	// Some 5 MiB in events that do not merge: over the queue's budget of 4 MiB, while the relay reads nothing.
	const seen = new Set();
	let at = 0;
	await harness.prompt(`await ${go}\nflood 100 50000\ntouch ${written}`);
	for (const socket of harness.relay.sockets.clients)
		socket.pause();
	writeFileSync(go, "");
	await until(() => existsSync(written), "all of it to be written");
	for (const socket of harness.relay.sockets.clients)
		socket.resume();
	await harness.events.wait(() => {
		for (; at < harness.events.all.length; at++)
			seen.add(harness.events.all[at].payload?.params?.update?.content?.text?.match(/marker-\d+ /)?.[0]);
		return Array.from({ length: 100 }, (_, i) => `marker-${i} `).every((marker) => seen.has(marker));
	}, "all 100 markers");
	assert.ok(harness.frames.all.some(({ replayed }) => replayed), "some were deferred");
	assert.equal(harness.ofKind("observer_telemetry_gap").length, 0);
	await harness.stop();
});

test("a relay with a limit of 64 KiB gets smaller frames, and all of them", async () => {
	const relay = await SmallRelay.start();
	let refused = 0;
	relay.verdict = (event) => {
		const bytes = Buffer.byteLength(JSON.stringify(event));
		refused += bytes > 65536;
		return bytes > 65536 ? [false, `invalid: event too large: ${bytes}`] : [true, ""];
	};
	const harness = await Harness.start([], { relay });
	await harness.turn("flood 20 12000");
	for (let i = 0; i < 20; i++)
		await harness.untilSaid(`marker-${i} `);
	const learned = refused;
	assert.ok(learned > 0);
	await harness.turn("hugeline 1\nflood 20 12000\nsay that was all");
	await harness.untilSaid("that was all");
	assert.equal(refused, learned, "nothing too large is sent once it knows");
	assert.equal(harness.ofKind("observer_telemetry_gap").length, 0);
	const numbers = () => new Set(harness.frames.all.map(({ frame }) => frame));
	await harness.frames.wait(() => numbers().size === Math.max(...numbers()), "every number up to the last");
	await harness.stop();
});

test("a relay that wants less often is asked less often, and gets all", async () => {
	const harness = await Harness.start();
	let left = 2;
	harness.relay.verdict = () => left-- > 0 ? [false, "rate-limited: slow down"] : [true, ""];
	await harness.turn("say patient");
	await harness.untilSaid("patient");
	assert.equal(harness.ofKind("observer_telemetry_gap").length, 0);
	await harness.stop();
});

test("a frame that the relay never takes is told as gone, with why, and not sent for ever", async () => {
	const first = await Harness.start();
	await first.turn("say one");
	await first.leave();
	const second = await Harness.start([], { again: first });
	let refused = 0;
	second.relay.verdict = (event) => {
		const { epoch, frame } = JSON.parse(open(second.owner, event));
		const bad = epoch === first.epoch && frame === 2;
		refused += bad;
		return bad ? [false, "invalid: not this one"] : [true, ""];
	};
	await sync(second, [{ epoch: first.epoch, frames: [[1, 3]] }]);
	await second.frames.wait((frame) => frame.epoch === first.epoch && frame.frame === 3, "frame 3");
	const state = await sync(second, [{ epoch: first.epoch, frames: [[1, 3]] }]);
	assert.ok(state.gone.some(({ epoch, frames, why }) =>
		epoch === first.epoch && why === "refused" && JSON.stringify(frames) === "[[2,2]]"), JSON.stringify(state.gone));
	await second.stop();
	assert.equal(refused, 1);
});

const namespaces = spawnSync("unshare", ["-m", "true"]).status === 0 ? false : "no mount namespaces here";
/** Runs what follows with the journal's folder on a disk of its own. */
const onDisk = (script) => ["unshare", "-m", "sh", "-c", `mkdir -p "$PERCH_HOME/journal" && ${script} && exec "$@"`, "sh"];
const inNamespace = (harness, ...command) => execFileSync("nsenter", ["-t", String(harness.child.pid), "-m", ...command]);

test("with a full disk the feed goes on, the loss is told, and keeping begins again", { skip: namespaces }, async () => {
	const harness = await Harness.start([], { inside: onDisk('mount -t tmpfs -o size=400k none "$PERCH_HOME/journal"') });
	for (let i = 0; i < 8; i++)
		await harness.turn("flood 4 30000");
	const note = await harness.event("note", ({ source }) => source === "journal");
	assert.match(note.payload.text, /^What happens is not kept for later: .*full/);
	assert.equal(note.payload.level, "warn");
	await harness.logged(/^warn journal: what leaves is not kept for later/m);
	await harness.turn("say still here");
	await harness.untilSaid("still here");
	const from = harness.mark;
	inNamespace(harness, "mount", "-o", "remount,size=64m", join(harness.home, "journal"));
	await harness.event("note", ({ source, level }) => source === "journal" && level === "info", from);
	await harness.turn("say kept again");
	await harness.stop();
});

test("a journal that cannot be written costs the feed nothing", { skip: namespaces }, async () => {
	const ro = 'mount --bind "$PERCH_HOME/journal" "$PERCH_HOME/journal" && mount -o remount,ro,bind "$PERCH_HOME/journal"';
	const harness = await Harness.start([], { inside: onDisk(ro) });
	await harness.turn("say read-only");
	const note = await harness.event("note", ({ source }) => source === "journal");
	assert.match(note.payload.text, /not kept for later/);
	const state = await sync(harness, []);
	assert.equal(state.epochs.length, 1);
	assert.equal(state.figures.journalBytes, 0);
	const from = harness.mark;
	inNamespace(harness, "mount", "-o", "remount,rw,bind", join(harness.home, "journal"));
	await harness.event("note", ({ source, level }) => source === "journal" && level === "info", from);
	await harness.stop();
});

test("an observer that was off for the whole run shows all of it", async () => {
	const first = await Harness.start();
	// Few prompts: an owner may send ten controls a second.
	for (let i = 0; i < 12; i += 4)
		await first.turn(`say marker-${i} \nsay marker-${i + 1} \nsay marker-${i + 2} \nsay marker-${i + 3} `);
	await first.leave();
	// The relay keeps nothing: what comes now comes from the journal of the next start.
	const second = await Harness.start([], { again: first });
	const observer = await startObserver(first.relay.url, { dir: first.home, owner: first.owner });
	const lane = `${first.agentPub}/${first.channel}`;
	const all = Array.from({ length: 12 }, (_, i) => `marker-${i} `);
	let text;
	await until(async () => {
		text = (await observer.get(`/api/rows?lane=${encodeURIComponent(lane)}&limit=1000`)).text;
		return all.every((marker) => text.includes(marker)) && !text.includes('"type":"gap"');
	}, "all rows, and no gap");
	await observer.end();
	await second.stop();
});
