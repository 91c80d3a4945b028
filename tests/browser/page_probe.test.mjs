// probes/page does its work and prints figures of the form that all probes have; how large they are
// is not a test's business.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const probe = fileURLToPath(new URL("../../probes/page.mjs", import.meta.url));

test("a small load has a line for each arm, all of software rendering", { timeout: 300_000 }, () => {
	const { status, stdout, stderr } = spawnSync(process.execPath, [probe], {
		encoding: "utf8",
		env: {
			...process.env,
			PERCH_PROBE_EVENTS: "1200", PERCH_PROBE_AGENTS: "3", PERCH_PROBE_STREAMING: "2",
			PERCH_PROBE_SECONDS: "2", PERCH_PROBE_RUNS: "2", PERCH_PROBE_ARMS: "layout,idle,frame,fleet",
		},
	});
	assert.equal(status, 0, stderr);
	const lines = stdout.trimEnd().split("\n").map((line) => JSON.parse(line));
	assert.deepEqual(lines.map(({ arm }) => arm), ["layout", "idle", "idle_trace", "idle_floor", "frame", "fleet"]);
	for (const line of lines) assert.deepEqual([line.probe, line.rendering], ["page", "software"]);
	const [layout, idle, traced, floor, frame, fleet] = lines;
	assert.deepEqual([layout.lanes, layout.runs, idle.working], [4200, 2, 2]);
	for (const { runs, sent, median_us, p95_us } of [frame, fleet])
		assert.ok(runs > 5 && sent > 0 && median_us > 0 && p95_us >= median_us, stdout);
	assert.ok(traced.main_ms_s > 0 && traced.frames_s > 0 && traced.layout_ms_s <= traced.main_ms_s);
	assert.ok(frame.lanes_in_sight > 0);
	for (const { value, page, observer } of [idle, floor])
		assert.ok(observer >= 0 && Math.abs(value - page - observer) < 0.02, stdout);
	assert.ok(idle.messages_min > 0 && floor.messages_min >= 0);
});
