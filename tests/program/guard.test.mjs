// A test file that leaves something behind fails by itself and leaves nothing running.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { isAlive, until } from "./support/up.mjs";

const guard = fileURLToPath(new URL("support/guard.mjs", import.meta.url));

// Runs a file of tests of this text as `./dev test` does.
function runFile(t, text, graceMs = 100) {
	const folder = mkdtempSync(join(tmpdir(), "perch-guard-"));
	t.after(() => rmSync(folder, { recursive: true, force: true }));
	writeFileSync(join(folder, "one.test.mjs"), text);
	const { NODE_TEST_CONTEXT, ...env } = process.env;
	const { status, stdout } = spawnSync(process.execPath,
		["--import", guard, "--test", "--test-reporter=spec", "one.test.mjs"],
		{ cwd: folder, encoding: "utf8", timeout: 60000, env: { ...env, PERCH_TEST_GRACE_MS: String(graceMs) } });
	return { status, stdout, folder };
}

test("one that leaves a process fails, and the process is gone", async (t) => {
	const { status, stdout, folder } = runFile(t, `
import { spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { test } from "node:test";
test("leaves it", () => writeFileSync("pid", String(spawn("sleep", ["1000"]).pid)));
`);
	assert.equal(status, 1);
	const pid = Number(readFileSync(join(folder, "pid"), "utf8"));
	assert.match(stdout, new RegExp(`has not: processes ${pid},`));
	await until(() => !isAlive(pid), "its end"); // whoever is killed has to be run to end
});

test("one that leaves a socket fails", (t) => {
	const { status, stdout } = runFile(t, `
import net from "node:net";
import { test } from "node:test";
test("leaves it", () => net.createServer().listen(0, "127.0.0.1"));
`);
	assert.equal(status, 1);
	assert.match(stdout, /processes none, resources .*TCPServerWrap/);
});

test("one that leaves nothing passes", (t) => {
	const { status, stdout } = runFile(t, `
import { test } from "node:test";
test("leaves nothing", () => {});
`, 60000); // which a machine that is busy may need to end
	assert.equal(status, 0, stdout);
});

test("a command under stutter ends as it does alone, and what it stopped itself stays so", () => {
	const stutter = fileURLToPath(new URL("../stutter.mjs", import.meta.url));
	const { status, stdout, stderr } = spawnSync(process.execPath, [stutter, "7", "sh", "-c", `
		sh -c 'kill -STOP $$; echo went on' & stopped=$!
		i=0; while [ $i -lt 30 ]; do sleep 0.1; i=$((i + 1)); done
		kill -KILL $stopped; echo ended; exit 5`], { encoding: "utf8", timeout: 60000 });
	assert.equal(status, 5);
	assert.equal(stdout, "ended\n");
	assert.match(stderr, /^stutter: seed 7, [1-9]\d* stops\n$/);
});
