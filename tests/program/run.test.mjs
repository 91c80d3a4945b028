// `perch run`: the command's output as it always was, its end passed on, and what its owner sees.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { test } from "node:test";
import { Front } from "./support/front.mjs";
import { perchBin } from "./support/perch.mjs";

async function withRun(args, command, run, options) {
	const front = await Front.start("run", args, command, options);
	try {
		await run(front);
	} finally {
		await front.stop("SIGKILL");
	}
}
const shell = (script) => ["sh", "-c", script];

test("output and exit status are the command's, and its owner sees both streams", () => withRun([], shell("echo out; echo err >&2; exit 7"), async (front) => {
	assert.deepEqual(await front.exited, { code: 7, signal: null });
	assert.equal(String(front.stdout), "out\n");
	assert.equal(String(front.stderr), "err\n");
	assert.deepEqual((await front.event("agent_exited")).payload, { slot: 0, code: 7, command: true, reason: "crash", stderrTail: "err\n" });
	assert.equal(front.output("stdout"), "out\n");
	assert.equal(front.output("stderr"), "err\n");
	const { payload } = front.ofKind("harness_started")[0];
	assert.deepEqual([payload.mode, payload.control, payload.channels[0].name, payload.command[0]], ["run", "none", "work", "sh"]);
	assert.equal((await front.event("harness_stopping")).payload.left.events, 0);
}, { ready: false }));

test("a command that a signal ends exits with 128 and its number", () => withRun([], shell("kill -TERM $$"), async (front) => {
	assert.deepEqual(await front.exited, { code: 143, signal: null });
	assert.equal((await front.event("agent_exited")).payload.signal, 15);
}, { ready: false }));

test("a signal reaches the command, once", () => withRun([], shell("trap 'echo caught; exit 5' USR1; echo armed; while :; do sleep 0.05; done"), async (front) => {
	await front.untilWritten("armed");
	front.child.kill("SIGUSR1");
	assert.deepEqual(await front.exited, { code: 5, signal: null });
	assert.equal(String(front.stdout), "armed\ncaught\n");
}));

test("a command that is not there is 127, one that cannot be run 126", async () => {
	await withRun([], ["/no/such/command"], async (front) => {
		assert.equal((await front.exited).code, 127);
		assert.match(String(front.stderr), /^perch run: cannot run \/no\/such\/command: No such file or directory\n$/);
	}, { ready: false });
	await withRun([], ["/etc/passwd"], async (front) => assert.equal((await front.exited).code, 126), { ready: false });
});

test("standard input is the command's own", () => withRun([], ["cat"], async (front) => {
	const bytes = randomBytes(300000);
	front.child.stdin.end(bytes);
	assert.equal((await front.exited).code, 0);
	assert.ok(front.stdout.equals(bytes));
	assert.equal(front.events.some(({ kind }) => kind === "acp_write"), false);
}, { ready: false }));

test("binary output passes as it is, and is made safe for the feed", () => withRun([], shell("printf 'a\\377\\000b\\n'"), async (front) => {
	assert.equal((await front.exited).code, 0);
	assert.ok(front.stdout.equals(Buffer.from([0x61, 0xff, 0x00, 0x62, 0x0a])));
	const { payload } = await front.event("output");
	assert.equal(payload.text, "a\uFFFD\0b\n");
	assert.equal(payload.binary, true);
}, { ready: false }));

test("an unfinished line is shown, and marked", () => withRun([], shell("printf 'Continue? '; read x; echo done"), async (front) => {
	const { payload } = await front.event("output");
	assert.deepEqual([payload.text, payload.partial], ["Continue? ", true]);
	front.child.stdin.end("y\n");
	await front.untilOutput("done\n");
}));

test("a flood passes whole, and reaches the feed in part, with a count", () => withRun([], shell("i=0; while [ $i -lt 40000 ]; do echo line $i; i=$((i+1)); done"), async (front) => {
	assert.equal((await front.exited).code, 0);
	const lines = String(front.stdout).split("\n");
	assert.equal(lines.length, 40001);
	await front.event("harness_stopping");
	const shown = () => front.output().split("\n").length - 1;
	const suppressed = () => front.ofKind("output").reduce((sum, { payload }) => sum + (payload.suppressed ?? 0), 0);
	const lost = () => front.ofKind("observer_telemetry_gap").reduce((sum, { payload }) => sum + payload.droppedEvents, 0);
	// What was put off comes later than what overtook it.
	await front.when(() => shown() + suppressed() + lost() >= 40000, "a count of 40,000 lines");
	assert.ok(suppressed() > 0);
	assert.equal(shown() + suppressed() + lost(), 40000);
}, { ready: false }));

test("a terminal of its own: isatty, size, colours, end of input", () => withRun(["--pty"], shell("test -t 0 && test -t 1 && test -t 2 && printf '\\033[31mred\\033[0m\\n'; cat; printf 'end '"), async (front) => {
	front.child.stdin.end("typed\nno line end");
	assert.equal((await front.exited).code, 0);
	assert.match(String(front.stdout), /\x1b\[31mred\x1b\[0m\r\n[^]*typed\r\n[^]*end /);
	await front.event("harness_stopping");
	assert.ok(front.output().includes("\x1b[31mred\x1b[0m"));
}, { ready: false }));

test("lines of JSON become what they say", () => withRun(["--json-lines"], shell(`cat <<'END'
{"level":"warn","msg":"slow","ms":9}
{"level":50,"message":"broke"}
{"kind":"span_start","payload":{"id":"s1","name":"build"}}
{"kind":"span_end","payload":{"id":"s1","status":"ok"}}
{"kind":"x-step","payload":{"n":1,"source":"forged"}}
{"any":"thing"}
plain text
{"broken":
END`), async (front) => {
	assert.equal((await front.exited).code, 0);
	await front.event("harness_stopping");
	assert.deepEqual(front.ofKind("note").map(({ payload }) => payload), [
		{ text: "slow", level: "warn", source: "emit" }, { text: "broke", level: "error", source: "emit" }]);
	assert.deepEqual(front.ofKind("span_start")[0].payload, { id: "s1", name: "build", source: "emit" });
	assert.deepEqual(front.ofKind("span_end")[0].payload, { name: "build", id: "s1", status: "ok", source: "emit" });
	assert.deepEqual(front.ofKind("x-step")[0].payload, { n: 1, source: "emit" });
	assert.deepEqual(front.ofKind("x-json")[0].payload, { any: "thing" });
	assert.equal(front.output(), "plain text\n{\"broken\":\n");
}, { ready: false }));

test("a relay that is not there costs nothing but a bounded wait at the end", () => withRun([], shell("echo out; exit 3"), async (front) => {
	assert.deepEqual(await front.exited, { code: 3, signal: null });
	assert.equal(String(front.stdout), "out\n");
	assert.equal(String(front.stderr), "");
}, { ready: false, relayUrl: "ws://127.0.0.1:9" }));

test("without an owner the command runs, and one line says why nobody watches", () => withRun([], shell("echo out"), async (front) => {
	assert.equal((await front.exited).code, 0);
	assert.equal(String(front.stdout), "out\n");
	assert.match(String(front.stderr), /^perch run: nobody watches this: agent key fronted .*has no owner: .*\n$/);
}, { ready: false, ownerHere: false }));

test("a data folder that cannot be written costs the feed only", () => withRun([], shell("echo out; exit 4"), async (front) => {
	assert.equal((await front.exited).code, 4);
	assert.equal(String(front.stdout), "out\n");
}, { ready: false, env: { PERCH_HOME: "/proc/nowhere" } }));

for (const [what, options, complaint] of [
	["a broken perch.conf", { conf: "tick-ms = 40\nticks-ms = 3\n" }, /^perch run: nobody watches this: \S*perch\.conf:2: there is no option "ticks-ms": did you mean tick-ms\?\n$/],
	["a wrong number in the environment", { env: { PERCH_NAME: "x", PERCH_TICK_MS: "often" } }, /^perch run: nobody watches this: PERCH_TICK_MS takes 10\.\.60000, got "often"\n$/],
	["a wrong word in the environment", { env: { PERCH_LOG_LEVEL: "shouting" } }, /^perch run: nobody watches this: log level is .*"shouting"\n$/],
]) {
	test(`${what} costs the feed, not the command`, () => withRun([], shell("echo out; exit 3"), async (front) => {
		assert.deepEqual(await front.exited, { code: 3, signal: null });
		assert.equal(String(front.stdout), "out\n");
		assert.match(String(front.stderr), complaint);
		assert.equal(front.events.length, 0);
	}, { ready: false, ...options }));
}

test("the command sees its environment, but nothing of ours", () => withRun([], ["env"], async (front) => {
	assert.equal((await front.exited).code, 0);
	const ours = String(front.stdout).split("\n").filter((line) => line.startsWith("PERCH_"));
	assert.equal(ours.length, 1, String(ours));
	assert.match(ours[0], /^PERCH_EMIT=\/.*\.emit$/);
	assert.ok(String(front.stdout).includes("\nANY=1\n"));
}, { ready: false, env: { ANY: "1" } }));

test("the watcher killed, the command notices nothing", () => withRun([], shell("echo armed; read x; echo after; exit 6"), async (front) => {
	await front.untilWritten("armed");
	process.kill(front.watcher, "SIGKILL");
	front.child.stdin.end("go\n");
	assert.deepEqual(await front.exited, { code: 6, signal: null });
	assert.equal(String(front.stdout), "armed\nafter\n");
}));

test("a helper that outlives the command and holds its output does not hold us", () => withRun([], shell("sleep 5 </dev/null & echo done"), async (front) => {
	assert.equal((await front.exited).code, 0);
	assert.equal(String(front.stdout), "done\n");
}, { ready: false }));

test("a second run of the same name takes the next one", async () => {
	const first = await Front.start("run", [], shell("echo armed; read x"));
	try {
		await first.event("harness_started");
		const child = spawnSync(perchBin, ["run", "--relay", "ws://127.0.0.1:9", "--name", "fronted", "--", "true"], { cwd: first.work, env: { ...process.env, PERCH_HOME: first.home } });
		assert.equal(child.status, 0, String(child.stderr));
		assert.equal(String(child.stderr), "");
	} finally {
		first.child.stdin.end();
		await first.exited;
		await first.stop();
	}
});
