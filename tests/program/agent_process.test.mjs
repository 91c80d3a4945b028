// The subprocess of `perch agent`: what it sees, how it ends, what is said when it cannot run.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { perchBin } from "./support/perch.mjs";
import { Harness, SmallRelay, withHarness } from "./support/harness.mjs";
import { isAlive, until } from "./support/up.mjs";

test("an agent sees its folder, pipes, and nothing of ours", () => withHarness(async (harness) => {
	await harness.turn("inside");
	const inside = JSON.parse(harness.said().slice("inside ".length));
	assert.equal(inside.cwd, harness.work);
	assert.ok(inside.pipes.length === 3 && inside.pipes.every((entry) => entry.includes("pipe:")), String(inside.pipes));
	assert.deepEqual(inside.env.filter((name) => name.startsWith("PERCH_")), ["PERCH_EMIT"]);
	assert.ok(inside.env.includes("PATH") && inside.env.includes("EXTRA"));
	assert.ok((await harness.event("output")).payload.text.includes("stderr can be opened"));
}, ["--env", "EXTRA=1"]));

test("a crash ends the turn with the reason, and the agent starts again", () => withHarness(async (harness) => {
	await harness.prompt("stderr 2\nsay before\ncrash SIGSEGV");
	const exited = await harness.event("agent_exited");
	assert.deepEqual([exited.payload.signal, exited.payload.reason, exited.payload.failedRequests], ["SIGSEGV", "crash", 1]);
	assert.ok(exited.payload.stderrTail.includes("log line 1"));
	const done = await harness.completed();
	assert.equal(done.cancelledBy, "exit");
	assert.equal(harness.ofKind("turn_error")[0].payload.class, "exit");
	assert.equal((await harness.event("agent_respawning")).payload.delayMs, 1000);
	assert.ok(harness.ofKind("acp_parse_error").some(({ payload }) => payload.line.startsWith('{"jsonrpc":"2.0","method":"session/upd')));
	assert.equal((await harness.turn("say back again")).stopReason, "end_turn");
}));

test("an agent that ends before it answered anything has failed, whatever its status", () => withHarness(async (harness) => {
	const { payload } = await harness.event("agent_exited");
	assert.deepEqual([payload.code, payload.reason], [0, "crash"]);
	assert.match(payload.error, /exited \(status 0\) before it answered initialize \(does it speak ACP\?\)/);
	await harness.event("agent_respawning");
}, [], { ready: false, agentEnv: { AGENT_CRASH: "0" } }));

test("an agent that does not answer initialize in time is started again, and said so", () => withHarness(async (harness) => {
	const { payload } = await harness.event("agent_exited");
	assert.match(payload.error, /did not answer initialize within --start-timeout \(SIGTERM\)/);
	await harness.event("agent_respawning");
}, ["--start-timeout", "1"], { ready: false, command: [process.execPath, "-e", "setInterval(() => {}, 1e6)"] }));

test("asked twice to stop, it waits for no agent, and still has its last word", async () => {
	const harness = await Harness.start([], { agentEnv: { AGENT_STAY: "1" } });
	await harness.turn("ignoreterm");
	harness.child.kill("SIGINT");
	await harness.logged(/^info agent: stopping$/m);
	harness.child.kill("SIGINT");
	assert.deepEqual(await harness.exited, { code: 0, signal: null });
	await harness.leave();
	const again = await Harness.start([], { again: harness });
	// What had not left when its short time was up comes from the journal.
	again.publish({ type: "feed_sync", requestId: "sync-1", observer: "0badcafe", want: [{ epoch: harness.epoch, frames: [[1, 2 ** 53 - 1]] }] });
	const { payload } = await again.event("agent_exited");
	assert.deepEqual([payload.signal, payload.reason], ["SIGKILL", "stopped"]);
	assert.equal((await again.event("harness_stopping")).payload.reason, "interrupted");
	assert.equal(again.ofKind("observer_telemetry_gap").length, 0, "no unclean stop is told");
	await again.stop();
});

test("an agent that never reads its stdin is ended with that reason", () => withHarness(async (harness) => {
	await harness.prompt("deafflood 40 500000"); // over the 16 MiB that may wait for it
	const { payload } = await harness.event("agent_exited");
	assert.match(payload.error, /did not read its stdin/);
	assert.equal((await harness.completed()).cancelledBy, "exit");
}));

test("a line over 64 MiB costs that line and nothing else", () => withHarness(async (harness) => {
	const done = await harness.turn("hugeline 65\nsay after it");
	assert.equal(done.stopReason, "end_turn");
	assert.ok(harness.said().endsWith("after it"));
	const { payload } = await harness.event("acp_parse_error");
	assert.match(payload.error, /too long/);
	assert.ok(payload.bytes > 65 << 20);
}));

test("an agent that closes its stdout is stopped and its turn failed", () => withHarness(async (harness) => {
	await harness.prompt("closestdout");
	assert.equal((await harness.completed()).cancelledBy, "exit");
	assert.equal((await harness.event("agent_exited")).payload.reason, "stdout_closed");
}));

test("three crashes in a minute open the circuit", () => withHarness(async (harness) => {
	const { payload } = await harness.event("circuit_open");
	assert.equal(payload.cooldownMs, 300000);
	assert.equal(harness.ofKind("agent_exited").length, 3);
	assert.deepEqual(harness.ofKind("agent_respawning").map((event) => event.payload.delayMs), [1000, 2000]);
}, [], { ready: false, command: ["/bin/sh", "-c", "exit 9"] })); // Node takes its time to start

test("a stopped agent is shown, and when it goes on", () => withHarness(async (harness) => {
	const { pid } = harness.ofKind("agent_initialized")[0].payload;
	process.kill(pid, "SIGSTOP");
	assert.equal((await harness.event("agent_stalled")).payload.reason, "stopped");
	process.kill(pid, "SIGCONT");
	await harness.event("agent_resumed");
}));

test("no descendant survives its agent, whatever it tries", async () => {
	const harness = await Harness.start([], { agentEnv: { AGENT_STAY: "1" } });
	const pidFile = join(harness.work, "pid");
	await harness.turn(`child ${pidFile}\nignoreterm`);
	const pid = Number(readFileSync(pidFile, "utf8"));
	const agent = harness.ofKind("agent_initialized")[0].payload.pid;
	assert.ok(isAlive(pid));
	assert.deepEqual(await harness.stop(), { code: 0, signal: null });
	await until(() => !isAlive(agent) && !isAlive(pid), "the end of both"); // whoever is killed has to be run to end
});

test("a talkative stderr is drained, capped and counted", () => withHarness(async (harness) => {
	const begin = performance.now();
	const done = await harness.turn("stderr 20000\nsay not blocked");
	assert.equal(done.stopReason, "end_turn");
	await harness.event("output");
	await harness.stop();
	const seconds = (performance.now() - begin) / 1000;
	const outputs = harness.ofKind("output").map(({ payload }) => payload);
	const lines = outputs.flatMap(({ text }) => text.match(/log line/g) ?? []).length;
	const suppressed = outputs.reduce((sum, payload) => sum + (payload.suppressed ?? 0), 0);
	assert.ok(lines * "log line 0 ".length + lines * 81 <= 32768 + 8192 * seconds, `${lines} lines in ${seconds} s`);
	assert.equal(lines + suppressed, 20000);
}));

test("an agent that wants a login is shown with its words and what to run", () => withHarness(async (harness) => {
	const error = await harness.event("turn_error");
	assert.deepEqual([error.payload.code, error.payload.message], [-32000, "please log in to the scripted cloud"]);
	assert.equal(error.payload.data.authMethods[0].name, "Log in with a browser");
	assert.match(error.payload.data.hint, /please log in to the scripted cloud.*Log in with a browser.*Run "/s);
	const done = await harness.turn("say hello");
	assert.equal(done.stopReason, undefined);
}, [], { ready: false, agentEnv: { AGENT_AUTH: "1" } }));

test("an agent of another protocol version is stopped, and said so", async () => {
	const harness = await Harness.start([], { ready: false, agentEnv: { AGENT_VERSION: "2" } });
	assert.equal((await harness.exited).code, 1);
	assert.match(harness.stderr, /speaks ACP version 2, perch speaks 1/);
	assert.match(harness.ofKind("note")[0].payload.text, /speaks ACP version 2/);
	await harness.stop();
});

test("an agent that knows only protocol 2 is stopped with its versions", async () => {
	const harness = await Harness.start([], { ready: false, agentEnv: { AGENT_ONLY: "2" } });
	assert.equal((await harness.exited).code, 1);
	assert.match(harness.ofKind("note")[0].payload.text, /speaks ACP .*2.* only, perch speaks version 1/);
	await harness.stop();
});

/** Runs perch agent to its end without an agent to talk to. */
async function run(args, env) {
	const child = spawn(perchBin, ["agent", ...args], { env: { ...process.env, ...env }, stdio: ["ignore", "ignore", "pipe"] });
	let stderr = "";
	child.stderr.setEncoding("utf8").on("data", (piece) => (stderr += piece));
	const [code] = await once(child, "close");
	return { code, stderr };
}

test("a command that is not there is one clear line", async () => {
	const harness = await Harness.start([], { ready: false, command: ["no-such-agent"] });
	assert.equal((await harness.exited).code, 1);
	assert.match(harness.stderr, /^perch agent: cannot run no-such-agent: not found in PATH; install it or give its path$/m);
	await harness.stop();
});

test("a second start with the same key names the first", () => withHarness(async (harness) => {
	const second = await run(harness.args.slice(1).filter((arg, i, all) => arg !== "--ready-fd" && all[i - 1] !== "--ready-fd"), harness.env);
	assert.equal(second.code, 1);
	assert.ok(second.stderr.includes(`is running already (pid ${harness.child.pid})`), second.stderr);
}));

test("without an owner it says what to do", async () => {
	const harness = await Harness.start([], { ready: false, ownerHere: false });
	assert.equal((await harness.exited).code, 1);
	assert.match(harness.stderr, /\(npub1[a-z0-9]+\) has no owner: run "perch up" here, or get one by "perch invite" on the owner's machine/);
	await harness.stop();
});

for (const [args, wanted] of [
	[["--slots", "33", "--", "x"], /--slots/],
	[["--permission-rules", "allow reed", "--", "x"], /no tool kind "reed"/],
	[["--permission-rules", "read", "--", "x"], /want ask, allow or reject/],
	[["--env", "PERCH_HOME", "--", "x"], /--env PERCH_HOME/],
	[["--control", "some", "--", "x"], /want none, approve or full/],
	[["--permissions", "maybe", "--", "x"], /want ask, allow or reject/],
	[["--channel", "a", "--channel", "a", "--", "x"], /--channel a: given twice/],
	[["--channel", "", "--", "x"], /--channel takes a UUID or a name of 1 to 200 bytes of plain text, got ""/],
	[["--channel", "a\nb", "--", "x"], /--channel takes .* got "a.*b"/],
	[["--prompt", " ", "--", "x"], /--prompt: there is no text/],
	[["--", ""], /the command is "": want a program/],
]) {
	test(`${args.slice(0, 2).join(" ")} is refused with what was wanted`, async () => {
		const harness = await Harness.start([], { ready: false, ownerHere: false });
		await harness.exited;
		const { code, stderr } = await run(args, harness.env);
		assert.notEqual(code, 0);
		assert.match(stderr, wanted);
		await harness.stop();
	});
}

test("a relay that comes back gets what was missed", async () => {
	const relay = await SmallRelay.start();
	const harness = await Harness.start([], { relay });
	for (const socket of relay.sockets.clients)
		socket.terminate();
	const from = relay.log.all.length;
	await relay.log.wait((item) => item.subscribed, "a new subscription", from);
	assert.equal((await harness.turn("say over again")).stopReason, "end_turn");
	await harness.stop();
});

test("a wrong value of an option is a usage error", async () => {
	for (const [name, value] of [["--permissions", "maybe"], ["--control", "root"], ["--name", "../x"], ["--log-level", "loud"], ["--env", "PERCH_X=1"], ["--cwd", "/nowhere"]]) {
		const harness = await Harness.start([name, value], { ready: false });
		assert.equal((await harness.exited).code, 2, name);
		assert.match(harness.stderr, /^perch agent: [^\n]*\n$/);
		await harness.stop();
	}
});

test("a broken attestation is one line that says what to do", () => withHarness(async (harness) => {
	const args = harness.args.slice(1).filter((arg, i, all) => arg !== "--ready-fd" && all[i - 1] !== "--ready-fd");
	harness.child.kill();
	await harness.exited;
	for (const broken of ["junk", "", '["auth","zz","",""]']) {
		writeFileSync(join(harness.home, "keys/tested.auth"), broken, { mode: 0o600 });
		const again = await run(args, harness.env);
		assert.equal(again.code, 1);
		assert.match(again.stderr, /^perch agent: the attestation of agent key tested is broken \(.+\): run "perch attest tested" on the owner's machine\n$/);
	}
}));
