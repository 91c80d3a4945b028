// SIGHUP: without a terminal, or while it is there, a program goes on; when the terminal has gone it stops as if asked to.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { startAgent } from "./support/faults.mjs";
import { scriptedAgent } from "./support/harness.mjs";
import { envOf, makeHome, startObserver } from "./support/observer.mjs";
import { logged, perchBin, startRelay } from "./support/perch.mjs";
import { childrenOf, isAlive, until } from "./support/up.mjs";

const GOES_ON = /^info signal: SIGHUP: there is nothing to read again, going on$/m;

test("SIGHUP does not end an observer, nor a harness, that has nothing to read again: a line says so", async () => {
	const home = makeHome(), relay = await startRelay();
	const observer = await startObserver(relay.url, home);
	const agent = await startAgent(relay.url, home);
	for (let i = 1; i <= 2; i++) {
		observer.child.kill("SIGHUP");
		agent.child.kill("SIGHUP");
		await until(() => observer.stderr().split("SIGHUP").length > i && agent.stderr.split("SIGHUP").length > i, "the lines");
	}
	assert.match(observer.stderr(), GOES_ON);
	assert.match(agent.stderr, GOES_ON);
	assert.equal((await observer.get("/api/fleet")).status, 200);
	await agent.stop();
	assert.equal(agent.child.exitCode, 0);
	await observer.end();
	await relay.stop();
	home.remove();
});

test("SIGHUP of a relay reads its files again", async () => {
	const relay = await startRelay();
	relay.child.kill("SIGHUP");
	await logged(relay, /owners read again/);
	assert.equal((await relay.stop()).code, 0);
});

const hasScript = (() => {
	try { return Boolean(execFileSync("script", ["--version"])); } catch { return false; }
})();

/** A program of ours as the only one in a terminal: `close()` takes the terminal away. */
async function inTerminal(home, first, args) {
	const log = join(home.dir, "log"), file = join(home.dir, "pid");
	const words = [...first, perchBin, ...args].map((word) => `'${word}'`).join(" ");
	const terminal = spawn("script", ["-qec", `echo $$ > '${file}'; exec ${words} > /dev/null 2> '${log}'`, "/dev/null"],
		{ env: { ...process.env, ...envOf(home) }, stdio: ["pipe", "ignore", "ignore"] });
	const said = () => existsSync(log) ? readFileSync(log, "utf8") : "";
	return {
		said,
		ready: (line) => until(() => line.test(said()), `${line}`),
		pid: () => Number(readFileSync(file, "utf8")),
		close: () => terminal.kill("SIGKILL"),
	};
}

const programs = {
	relay: [() => ["relay", "--listen", "127.0.0.1:0"], /listening on/, /./],
	observer: [(url) => ["observer", "--relay", url, "--listen", "127.0.0.1:0"], /serving the page/, /stopping on signal 1$/m],
	harness: [(url) => ["agent", "--relay", url, "--name", "tested", "--channel", "main", "--", ...scriptedAgent], /^info agent: ready/m, /^info agent: stopping$/m],
};

for (const [name, [args, ready, stops]] of Object.entries(programs)) {
	const skip = !hasScript && "there is no script";

	test(`a terminal that goes takes the ${name} in it along, in good order`, { skip, timeout: 120000 }, async () => {
		const home = makeHome(), relay = await startRelay(), one = await inTerminal(home, [], args(relay.url));
		try {
			await one.ready(ready);
			/* While the terminal is there the signal is somebody's who wants something else. */
			process.kill(one.pid(), "SIGHUP");
			await one.ready(/SIGHUP: there is nothing|owners read again/);
		} finally {
			one.close();
		}
		await until(() => !isAlive(one.pid()), "its end");
		assert.match(one.said(), stops);
		assert.doesNotMatch(one.said(), /Sanitizer|runtime error/);
		await relay.stop();
		home.remove();
	});
}

const noScript = !hasScript && "there is no script";

test("a command that is watched goes with its terminal", { skip: noScript, timeout: 120000 }, async () => {
	const home = makeHome(), relay = await startRelay(), file = join(home.dir, "child");
	const one = await inTerminal(home, [], ["run", "--relay", relay.url, "--", "sh", "-c", `echo $$ > ${file}; exec sleep 1000`]);
	const child = () => existsSync(file) && Number(readFileSync(file, "utf8"));
	await until(child, "the command").finally(one.close);
	await until(() => !isAlive(child()) && !isAlive(one.pid()), "its end");
	await relay.stop();
	home.remove();
});

test("nohup is heeded by perch up, and by what it starts", { skip: noScript, timeout: 120000 }, async () => {
	const home = makeHome(), log = ["--log-level", "info"];
	const one = await inTerminal(home, ["nohup"], ["up", "--listen", "127.0.0.1:0", "--relay-listen", "127.0.0.1:0", ...log]);
	await one.ready(/serving the page/).finally(one.close);
	const pid = one.pid(), parts = childrenOf(pid);
	assert.equal(parts.length, 2);
	/* The same moment takes the terminal from it and tells it so. */
	await until(() => readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1].split(" ")[4] === "0", "the terminal to be gone");
	process.kill(pid, "SIGHUP");
	const told = (what) => BigInt(`0x${new RegExp(`^${what}:\\s+(\\w+)$`, "m").exec(readFileSync(`/proc/${pid}/status`, "utf8"))[1]}`) & 1n;
	assert.deepEqual([told("SigIgn"), told("SigBlk"), told("ShdPnd")], [1n, 0n, 0n]);
	assert.ok([pid, ...parts].every(isAlive));
	process.kill(pid, "SIGTERM");
	await until(() => ![pid, ...parts].some(isAlive), "its end");
	home.remove();
});

test("nohup is heeded", { skip: !hasScript && "there is no script", timeout: 120000 }, async () => {
	const home = makeHome(), [args, ready] = programs.observer, one = await inTerminal(home, ["nohup"], args("ws://127.0.0.1:1"));
	await one.ready(ready).finally(one.close);
	const pid = one.pid();
	await one.ready(GOES_ON);
	assert.ok(isAlive(pid));
	process.kill(pid, "SIGTERM");
	await until(() => !isAlive(pid), "its end");
	assert.match(one.said(), /stopping on signal 15$/m);
	home.remove();
});
