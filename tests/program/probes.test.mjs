// The probes check that their work was done and print figures of one form; what they and
// profiles/compare do not understand is refused with what is allowed.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { perchBin } from "./support/perch.mjs";
import { isAlive, until } from "./support/up.mjs";

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
	const lines = figures("drain", {
		PERCH_PROBE_EVENTS: "700", PERCH_PROBE_CHANNELS: "3", PERCH_PROBE_RUNS: "2", PERCH_PROBE_WAITING: "10000",
	});
	assert.deepEqual(lines.map(({ arm }) => arm), ["reserialize", "cached", "copy", "ratios", "pick", "pick"]);
	for (const line of lines.slice(0, 3)) {
		assertTimed(line, 2);
		assert.deepEqual([line.events, line.channels, line.frames], [700, 3, 3]);
	}
	assert.ok(lines[3].cached_to_copy > 0 && lines[3].reserialize_to_cached > 0);
	for (const line of lines.slice(4)) {
		assertTimed(line, 2);
		assert.equal(line.picked, lines[4].picked);
	}
	assert.deepEqual(lines.slice(4).map(({ waiting }) => waiting), [100, 10000]);
});

test("ten thousand events make thirty frames", () => {
	const [line] = figures("drain", { PERCH_PROBE_ARMS: "cached", PERCH_PROBE_RUNS: "1" });
	assert.deepEqual([line.arm, line.events, line.frames], ["cached", 10000, 30]);
});

test("tls has sending beside the same through TLS, and sealing alone", () => {
	const lines = figures("tls", { PERCH_PROBE_BYTES: "100000", PERCH_PROBE_RUNS: "2" });
	assert.deepEqual(lines.map(({ arm }) => arm), ["plain", "tls_128", "tls_256", "seal_128", "seal_256"]);
	for (const line of lines) {
		assertTimed(line, 2);
		assert.equal(line.bytes, 100_000);
	}
});

test("seal has building and opening beside their primitives", () => {
	const lines = figures("seal", { PERCH_PROBE_SIZES: "200,65000", PERCH_PROBE_RUNS: "2" });
	assert.deepEqual(lines.map(({ arm, bytes }) => `${arm} ${bytes}`), [200, 65000].flatMap((bytes) =>
		["build", "build_primitives", "open", "open_primitives", "ratios"].map((arm) => `${arm} ${bytes}`)));
});

test("archive opens and shows its newest page at each of three ages", () => {
	const lines = figures("archive", { PERCH_PROBE_EVENTS: "50000", PERCH_PROBE_RUNS: "1" });
	assert.deepEqual(lines.map(({ arm, events }) => [arm, events]),
		[500, 5000, 50000].flatMap((events) => [["open", events], ["page", events]]));
});

test("journal has the way out without and with it, and what was written is read back", () => {
	const lines = figures("journal", { PERCH_PROBE_EVENTS: "600", PERCH_PROBE_RUNS: "1" });
	assert.deepEqual(lines.map(({ arm }) => arm), ["pack", "drain", "drain_journal", "seal", "seal_journal", "ratios"]);
	for (const line of lines.slice(0, 5)) {
		assertTimed(line, 1);
		assert.equal(line.frames, lines[0].frames);
	}
	for (const name of ["drain_with_journal_to_without", "pack_with_journal_to_without", "seal_with_journal_to_without",
		"write_us_per_frame", "read_us_per_frame"])
		assert.ok(Number.isFinite(lines[5][name]), name);
});

test("backfill fills a fresh archive, the newest first, faster than it was said", () => {
	const [line] = figures("backfill", { PERCH_PROBE_FRAMES: "600", PERCH_PROBE_BYTES: "400", PERCH_BIN: perchBin });
	assert.deepEqual([line.arm, line.frames, line.offered], ["backfill", 600, 80]);
	assert.ok(line.bytes > 600 * 400 && line.seconds > 0 && line.to_one_a_second > 0);
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
	assert.ok(lines[0].value > 0);
	assert.deepEqual(lines.slice(2).map(({ expected, delivered }) => [expected, delivered]), [[120, 120], [200, 200], [120, 120]]);
});

test("bad settings are refused with what is allowed", () => {
	for (const [name, setting, value, allowed] of [
		["drain", "PERCH_PROBE_EVENTS", "0", "1..10000000"],
		["drain", "PERCH_PROBE_RUNS", "five", "1..1000"],
		["drain", "PERCH_PROBE_ARMS", "cached,fast", "reserialize, cached, copy, pick"],
		["seal", "PERCH_PROBE_SIZES", "", "200, 2000, 16000, 65000"],
		["fanout", "PERCH_PROBE_SECONDS", "21", "1..20"],
		["ingest", "PERCH_PROBE_AGENTS", "3", "1, 2, 4, 8"],
		["page", "PERCH_PROBE_AGENTS", "0", "1..200"],
		["page", "PERCH_PROBE_ARMS", "idle,busy", "frame,fleet,layout,prepare,hours,idle"],
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

test("the profile that compiles sources in groups builds: no group has a name twice", (t) => {
	const tree = mkdtempSync(join(tmpdir(), "perch-groups-"));
	t.after(() => rmSync(tree, { recursive: true, force: true }));
	const configured = run("cmake", {}, "--preset", "release-16", "-B", tree, "-DCMAKE_C_FLAGS_RELEASE=-O0");
	assert.equal(configured.status, 0, configured.stderr);
	const libraries = ["wire", "relay", "agent", "observer"].map((name) => `perch_${name}`);
	const built = run("cmake", {}, "--build", tree, "--target", ...libraries);
	assert.equal(built.status, 0, built.stdout.slice(-4000));
});

test("profiles/compare that is interrupted leaves nothing running", async (t) => {
	const tree = mkdtempSync(join(tmpdir(), "perch-compare-"));
	t.after(() => rmSync(tree, { recursive: true, force: true }));
	cpSync(join(root, "profiles"), join(tree, "profiles"), { recursive: true });
	mkdirSync(join(tree, "bin"));
	// Knows two profiles; its builds are two processes that never end.
	writeFileSync(join(tree, "bin/cmake"), `#!/bin/sh
case $1 in
--list-presets) printf '  "a"\n  "b"\n' ;;
--build)
	sleep 1000 &
	echo $$ $! >${tree}/new
	mv ${tree}/new ${tree}/pids
	wait
	;;
esac
`, { mode: 0o755 });
	const compare = spawn(join(tree, "profiles/compare"), ["a", "b"],
		{ stdio: "ignore", env: { ...process.env, PATH: `${join(tree, "bin")}:${process.env.PATH}` } });
	const exited = once(compare, "exit");
	await until(() => existsSync(join(tree, "pids")), "a build");
	const pids = readFileSync(join(tree, "pids"), "utf8").trim().split(" ").map(Number);
	t.after(() => pids.filter(isAlive).forEach((pid) => process.kill(pid, "SIGKILL")));
	assert.deepEqual(pids.map(isAlive), [true, true]);
	compare.kill("SIGTERM");
	assert.deepEqual(await exited, [143, null]);
	for (const pid of pids) await until(() => !isAlive(pid), `the end of ${pid}`);
});
