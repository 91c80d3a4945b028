// probes/broker does its work and prints figures of the form that all probes have; how large they are is not a test's
// business.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const probe = fileURLToPath(new URL("../../probes/broker.mjs", import.meta.url));

test("a small load has a line for each arm by both ways, and their ratios", { timeout: 300_000 }, () => {
	const { status, stdout, stderr } = spawnSync(process.execPath, [probe], {
		encoding: "utf8",
		env: { ...process.env, PERCH_PROBE_REQUESTS: "10", PERCH_PROBE_MESSAGES: "1", PERCH_PROBE_RUNS: "2" },
	});
	assert.equal(status, 0, stderr);
	const lines = stdout.trimEnd().split("\n").map((line) => JSON.parse(line)), ratios = lines.splice(-4);
	assert.deepEqual(lines.map(({ arm }) => arm).sort(),
		["large_h1", "large_h2", "narrow_h1", "narrow_h2", "small_h1", "small_h2", "stream_base", "stream_h1", "stream_h2"]);
	for (const line of lines)
		assert.ok(line.probe === "broker" && line.runs === 2 && line.median_ns > 0 && line.p99_ns >= line.median_ns, stdout);
	assert.deepEqual(ratios.map(({ arm }) => arm), ["small", "large", "narrow", "stream"]);
	for (const { two_to_one } of ratios.slice(0, 3)) assert.ok(two_to_one > 0, stdout);
	// A message or two cost six pages less than the noise of the clock, now and then.
	const { two_to_one } = ratios[3];
	assert.ok(two_to_one === null || two_to_one > 0, stdout);
});
