// The probes check that their work was done and print figures of one form; what they and
// profiles/compare do not understand is refused with what is allowed.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { perchBin } from "./support/perch.mjs";

const root = fileURLToPath(new URL("../../", import.meta.url));

function run(command, settings = {}, ...args) {
	return spawnSync(command, args, { cwd: root, encoding: "utf8", env: { ...process.env, ...settings } });
}

const probe = (name, settings) => run(join(dirname(perchBin), "probes", name), settings);

// The lines of a probe that has done its work.
function figures(name, settings) {
	const { status, stdout, stderr } = probe(name, settings);
	assert.equal(status, 0, stderr);
	const lines = stdout.trimEnd().split("\n").map((line) => JSON.parse(line));
	for (const line of lines) {
		assert.equal(line.probe, name);
		assert.ok(line.profile && line.commit);
	}
	return lines;
}

function assertTimed(line, runs) {
	assert.equal(line.runs, runs);
	assert.ok(line.median_ns > 0 && line.p99_ns >= line.median_ns);
}

test("drain has a line for each arm and one with the ratios", () => {
	const lines = figures("drain", { PERCH_PROBE_EVENTS: "700", PERCH_PROBE_CHANNELS: "3", PERCH_PROBE_RUNS: "2" });
	assert.deepEqual(lines.map(({ arm }) => arm), ["reserialize", "cached", "copy", "ratios"]);
	for (const line of lines.slice(0, 3)) {
		assertTimed(line, 2);
		assert.deepEqual([line.events, line.channels, line.frames], [700, 3, 3]);
	}
	assert.ok(lines[3].cached_to_copy > 0 && lines[3].reserialize_to_cached > 0);
});

test("ten thousand events make thirty frames", () => {
	const [line] = figures("drain", { PERCH_PROBE_ARMS: "cached", PERCH_PROBE_RUNS: "1" });
	assert.deepEqual([line.arm, line.events, line.frames], ["cached", 10000, 30]);
});

test("seal has building and opening beside their primitives", () => {
	const lines = figures("seal", { PERCH_PROBE_SIZES: "200,65000", PERCH_PROBE_RUNS: "2" });
	assert.deepEqual(lines.map(({ arm, bytes }) => `${arm} ${bytes}`), [200, 65000].flatMap((bytes) =>
		["build", "build_primitives", "open", "open_primitives", "ratios"].map((arm) => `${arm} ${bytes}`)));
});

test("journal has the way out without and with it, and what was written is read back", () => {
	const lines = figures("journal", { PERCH_PROBE_EVENTS: "600", PERCH_PROBE_RUNS: "1" });
	assert.deepEqual(lines.map(({ arm }) => arm), ["pack", "seal", "journal", "ratios"]);
	for (const line of lines.slice(0, 3)) {
		assertTimed(line, 1);
		assert.equal(line.frames, lines[0].frames);
	}
	assert.ok(lines[3].journal_to_seal > 0 && lines[3].write_us_per_frame > 0 && lines[3].read_us_per_frame > 0);
});

test("ingest has lines and reads for each number of agents and size of pieces", () => {
	const lines = figures("ingest", { PERCH_PROBE_BYTES: "200000", PERCH_PROBE_RUNS: "1" });
	assert.equal(lines.length, 2 * 4 * 3);
	for (const line of lines) assertTimed(line, 1);
});

test("a flood that never rests leaves memory flat and no event unaccounted for", () => {
	// What ASan keeps of freed memory is no growth of ours.
	const ASAN_OPTIONS = `${process.env.ASAN_OPTIONS ?? ""}:quarantine_size_mb=1:thread_local_quarantine_size_kb=64`;
	const [line] = figures("ingest", { PERCH_PROBE_SOAK: "200000", ASAN_OPTIONS });
	assert.equal(line.events, line.published + line.dropped + line.waiting);
	assert.ok(line.dropped > 0);
});

test("fanout has a line for each arm, with what the relay used", () => {
	const lines = figures("fanout", { PERCH_PROBE_READERS: "6", PERCH_PROBE_OWNERS: "3", PERCH_PROBE_PUBLISHERS: "3",
		PERCH_PROBE_FRAMES: "20", PERCH_PROBE_EVENTS: "60", PERCH_PROBE_RATE: "100", PERCH_PROBE_SECONDS: "1",
		PERCH_PROBE_STALLED: "2", PERCH_PROBE_IDLE: "3", PERCH_PROBE_BYTES: "400" });
	assert.deepEqual(lines.map(({ arm, runs }) => [arm, runs]),
		[["idle", undefined], ["accept", 60], ["paced", 120], ["rate", 200], ["burst", 120]]);
	for (const line of lines.slice(1)) assert.ok(line.relay_cpu_us_per_event > 0 && line.relay_bytes > 0);
});

test("bad settings are refused with what is allowed", () => {
	for (const [name, setting, value, allowed] of [
		["drain", "PERCH_PROBE_EVENTS", "0", "1..10000000"],
		["drain", "PERCH_PROBE_RUNS", "five", "1..1000"],
		["drain", "PERCH_PROBE_ARMS", "cached,fast", "reserialize, cached, copy"],
		["seal", "PERCH_PROBE_SIZES", "", "200, 2000, 16000, 65000"],
		["fanout", "PERCH_PROBE_SECONDS", "21", "1..20"],
		["ingest", "PERCH_PROBE_AGENTS", "3", "1, 2, 4, 8"],
	]) {
		const { status, stdout, stderr } = probe(name, { [setting]: value });
		assert.deepEqual([status, stdout], [2, ""]);
		assert.ok(stderr.includes(setting) && stderr.includes(allowed), stderr);
	}
});

test("profiles/compare refuses a profile that is not there, with those that are", () => {
	const { status, stdout, stderr } = run("profiles/compare", {}, "release", "fastest");
	assert.deepEqual([status, stdout], [2, ""]);
	assert.match(stderr, /no profile "fastest".*\brelease release-16 release-1 size\b/);
});
