// `perch emit`: events from scripts and hooks, through the socket of a harness.
import assert from "node:assert/strict";
import { chmodSync, lstatSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { Front } from "./support/front.mjs";
import { Harness } from "./support/harness.mjs";
import { perchBin } from "./support/perch.mjs";
import { until } from "./support/up.mjs";
import { spawnSync } from "node:child_process";

async function withRun(run, command = ["sh", "-c", "read x"], args = []) {
	const front = await Front.start("run", args, command);
	try {
		await front.event("harness_started");
		await run(front);
	} finally {
		await front.stop("SIGKILL");
	}
}
const named = ["--name", "fronted"];

test("each kind reaches the owner, marked", () => withRun(async (front) => {
	const start = await front.emit([...named, "span_start", "tests"]);
	assert.match(start.stdout, /^[0-9a-f]{32}\n$/);
	const id = start.stdout.trim();
	for (const args of [["note", "hello \"you\""], ["--level", "warn", "note", "careful"], ["span_end", "--status", "ok", id], ["x-deploy", "{\"to\":\"staging\"}"], ["--stream", "stderr", "output", "text\n"]])
		assert.deepEqual(await front.emit([...named, ...args]), { code: 0, stdout: "", stderr: "" }, String(args));
	await front.untilOutput("text", "stderr");
	const payloads = (kind) => front.ofKind(kind).map(({ payload }) => payload);
	assert.deepEqual(payloads("note"), [{ text: "hello \"you\"", level: "info", source: "emit" }, { text: "careful", level: "warn", source: "emit" }]);
	assert.deepEqual(payloads("span_start"), [{ id, name: "tests", source: "emit" }]);
	assert.deepEqual(payloads("span_end"), [{ name: "tests", id, status: "ok", source: "emit" }]);
	assert.deepEqual(payloads("x-deploy"), [{ to: "staging", source: "emit" }]);
	assert.deepEqual(payloads("output"), [{ stream: "stderr", text: "text\n", source: "emit" }]);
	assert.equal(front.ofKind("note")[0].channelId, front.ofKind("harness_started")[0].payload.channels[0].id);
}));

test("a command finds its harness by itself", () => withRun(async (front) => {
	assert.equal((await front.exited).code, 0);
	await front.event("note", ({ text }) => text === "from inside");
}, ["sh", "-c", `"${perchBin}" emit note "from inside"`]));

test("standard input: text, JSON, and lines of events", () => withRun(async (front) => {
	assert.equal((await front.emit([...named, "note", "-"], { input: "piped" })).code, 0);
	assert.equal((await front.emit([...named, "x-hook", "-"], { input: "{\"tool\": \"Bash\"}\n" })).code, 0);
	assert.equal((await front.emit([...named, "-"], { input: "{\"kind\":\"note\",\"payload\":{\"text\":\"one\"}}\n\n{\"kind\":\"x-two\",\"payload\":{}}\n" })).code, 0);
	await front.event("x-two");
	assert.deepEqual(front.ofKind("note").map(({ payload }) => payload.text), ["piped", "one"]);
	assert.deepEqual(front.ofKind("x-hook")[0].payload, { tool: "Bash", source: "emit" });
}));

test("what is no event is refused with a reason, and nothing comes of it", () => withRun(async (front) => {
	for (const [args, input, reason] of [
		[["-"], "{\"kind\":\"turn_completed\",\"payload\":{}}", /the kind is note, output/],
		[["-"], "{\"kind\":\"x-a\",\"payload\":[]}", /no JSON object/],
		[["-"], "{\"kind\":\"note\",\"payload\":{}}", /wants a "text"/],
		[["-"], "{\"kind\":\"span_start\",\"payload\":{\"id\":\"1\"}}", /wants a "name"/],
		[["-"], "no JSON", /./],
		[["x-a", "-"], "[".repeat(100) + "]".repeat(100), /./],
		[["x-a", "-"], JSON.stringify({ big: "x".repeat(40000) }), /at most 32768 bytes/],
		[["chat", "hi"], "", /no kind "chat"/],
	]) {
		const result = await front.emit([...named, ...args], { input });
		assert.equal(result.code, 1, String(args) + input.slice(0, 50));
		assert.match(result.stderr, reason);
		assert.equal(result.stderr.trim().split("\n").length, 1);
		assert.deepEqual(await front.emit(["--best-effort", ...named, ...args], { input }), { code: 0, stdout: "", stderr: "" });
	}
	await front.emit([...named, "note", "last"]);
	await front.event("note");
	assert.deepEqual(front.events.filter(({ payload }) => payload.source === "emit").length, 1);
}));

test("no harness: one line and 1, or nothing and 0", () => withRun(async (front) => {
	const socket = join(front.home, "run/gone.emit");
	writeFileSync(socket, "");
	for (const [args, env, reason] of [
		[["--name", "gone"], {}, /no harness listens at/],
		[["--name", "nobody"], {}, /no harness listens at/],
		[[], { PERCH_EMIT: "" }, /PERCH_EMIT is not set/],
		[[], { PERCH_EMIT: "/" + "x".repeat(200) }, /too long/],
	]) {
		const result = await front.emit([...args, "note", "x"], { env });
		assert.equal(result.code, 1);
		assert.match(result.stderr, reason);
		assert.deepEqual(await front.emit(["--best-effort", ...args, "note", "x"], { env }), { code: 0, stdout: "", stderr: "" });
	}
}));

test("a broken perch.conf is no hook's business", () => withRun(async (front) => {
	writeFileSync(join(front.home, "perch.conf"), "ticks-ms = 3\n", { mode: 0o600 });
	assert.deepEqual(await front.emit(["--name", "fronted", "note", "still heard"]), { code: 0, stdout: "", stderr: "" });
	await front.event("note", ({ text }) => text === "still heard");
}));

test("too many are refused, and the harness lives on", () => withRun(async (front) => {
	// By several at a time: one alone, which waits for each answer, sends no more than it may on a machine that is busy.
	const lines = Array.from({ length: 200 }, (x, i) => JSON.stringify({ kind: "note", payload: { text: `n${i}` } })).join("\n");
	const results = await Promise.all(Array.from({ length: 8 }, () => front.emit([...named, "-"], { input: lines })));
	const refused = results.filter(({ code }) => code);
	assert.ok(refused.length > 0);
	for (const { code, stderr } of refused) {
		assert.equal(code, 1);
		assert.match(stderr, /too many events/);
	}
	await until(async () => (await front.emit([...named, "note", "later"])).code === 0, "room for more");
	await front.event("note", ({ text }) => text === "later");
}));

test("a harness that is stopped is not waited for", () => withRun(async (front) => {
	process.kill(front.watcher, "SIGSTOP");
	const result = await front.emit(["--best-effort", ...named, "note", "x"]);
	process.kill(front.watcher, "SIGCONT");
	assert.deepEqual(result, { code: 0, stdout: "", stderr: "" });
}));

test("the socket is our user's alone, and goes with its harness", async () => {
	const front = await Front.start("run", [], ["sh", "-c", "read x"]);
	await front.event("harness_started");
	const link = join(front.home, "run/fronted.emit");
	assert.ok(lstatSync(link).isSymbolicLink());
	assert.equal(statSync(link).mode & 0o777, 0o600);
	if (process.getuid() === 0) { // another user, even one who may open it
		for (const path of [front.home, join(front.home, "run"), link])
			chmodSync(path, 0o777);
		const other = spawnSync("setpriv", ["--reuid=65534", "--clear-groups", perchBin, "emit", "note", "x"], { env: { ...process.env, PERCH_EMIT: link, HOME: "/tmp" } });
		assert.equal(other.status, 1, String(other.stderr));
		assert.match(String(other.stderr), /takes no events|did not answer/);
	}
	front.child.stdin.end();
	await front.exited;
	await front.watcherGone();
	assert.equal(front.ofKind("note").length, 0);
	assert.throws(() => lstatSync(link));
	await front.stop();
});

test("an agent's hooks reach the turn that runs", async () => {
	const harness = await Harness.start([], {});
	try {
		await harness.prompt("stall");
		await harness.event("turn_started");
		const result = spawnSync(perchBin, ["emit", "--name", "tested", "note", "from a hook"], { env: harness.env });
		assert.equal(result.status, 0, String(result.stderr));
		const note = await harness.event("note", ({ text }) => text === "from a hook");
		assert.equal(note.turnId, harness.ofKind("turn_started")[0].turnId);
		await harness.ask("cancel_turn");
		await harness.completed();
		await harness.turn("inside");
		const inside = JSON.parse(/inside (\{.*\})/.exec(harness.said())[1]);
		assert.deepEqual(inside.env.filter((name) => name.startsWith("PERCH_")), ["PERCH_EMIT"]);
	} finally {
		await harness.stop();
	}
});
