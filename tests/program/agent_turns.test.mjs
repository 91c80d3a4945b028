// Turns of `perch agent`: an agent on the official SDK, events opened by nostr-tools.
import assert from "node:assert/strict";
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { Harness, withHarness } from "./support/harness.mjs";

const updatesOf = (harness) => harness.ofKind("acp_read").map(({ payload }) => payload.params?.update).filter(Boolean);

test("a turn is told from its start to its end, in its channel", () => withHarness(async (harness) => {
	const done = await harness.turn("think hm\nsay hello\nplan\ndiff\nusage 1234");
	assert.equal(done.stopReason, "end_turn");
	assert.deepEqual(done.usage, { inputTokens: 12, outputTokens: 34, totalTokens: 46 });
	const turn = harness.ofKind("turn_started")[0];
	assert.equal(turn.payload.source, "owner");
	assert.equal(turn.payload.text.split("\n")[1], "say hello");
	const inTurn = harness.events.all.filter((event) => event.turnId === turn.turnId);
	const kinds = inTurn.map(({ kind }) => kind);
	for (const kind of ["session_resolved", "prompt_dispatched", "turn_first_output", "turn_completed"])
		assert.ok(kinds.includes(kind), kind);
	assert.equal(kinds.at(-1), "turn_completed");
	assert.ok(inTurn.every(({ channelId }) => channelId === harness.channel));
	assert.ok(inTurn.every(({ startedAt }) => startedAt === turn.startedAt));
	assert.deepEqual(updatesOf(harness).map(({ sessionUpdate }) => sessionUpdate),
		["agent_thought_chunk", "agent_message_chunk", "plan", "tool_call", "tool_call_update", "tool_call_update", "usage_update"]);
}));

test("lines travel byte for byte, whatever they hold", () => withHarness(async (harness) => {
	await harness.turn("unknown\nu2028\nsplit\ncrlf");
	assert.equal(harness.said(), "one\u2028two\u0085three" + "split é✓🙂 end" + "crlf");
	assert.ok(updatesOf(harness).some(({ sessionUpdate, x }) => sessionUpdate === "future_thing" && x.length === 2));
}));

test("an update by another tag is shown as it came, and harms nothing", () => withHarness(async (harness) => {
	assert.equal((await harness.turn("mistagged\nsay after")).stopReason, "end_turn");
	assert.ok(harness.ofKind("acp_read").some(({ payload }) => payload.params?.update?.type === "agent_message_chunk"));
	assert.ok(harness.said().endsWith("after"));
}));

test("no marker of a flood is lost or doubled", () => withHarness(async (harness) => {
	await harness.turn("markers 500");
	assert.deepEqual([...harness.said().matchAll(/\[marker (\d+)\]/g)].map(([, n]) => Number(n)), Array.from({ length: 500 }, (_, i) => i));
}));

test("noise on stdout is shown, counted as no answer, and costs no frame", () => withHarness(async (harness) => {
	const done = await harness.turn("garbage\nbadutf8\nblank\nscalar\nbatch\nstray\nsurrogate\nsay still here");
	assert.equal(done.stopReason, "end_turn");
	assert.ok(harness.said().endsWith("still here"));
	await harness.event("acp_parse_error", ({ direction, line }) => direction === "read" && line.startsWith("INFO no JSON"));
	await harness.event("acp_write", ({ error }) => error?.code === -32600);
	assert.ok(harness.ofKind("acp_read").some(({ repaired, payload }) => repaired && payload.params?.update?.content.text === "lone \ufffd end"));
	const answers = harness.ofKind("acp_write").filter(({ payload }) => payload.error);
	assert.deepEqual(answers.map(({ payload }) => payload.error.code), [-32600]);
}));

test("a line of 20 MiB reaches the client and is told by its head", () => withHarness(async (harness) => {
	const done = await harness.turn("hugeline 20\nsay after it");
	assert.equal(done.stopReason, "end_turn");
	assert.ok(harness.said().includes("after it"));
	const { payload } = await harness.event("acp_parse_error");
	assert.ok(payload.bytes > 20 << 20);
}));

test("requests that are not known are refused, with their ids as they were", () => withHarness(async (harness) => {
	await harness.turn("ext\nstrid\nsay on");
	assert.ok(harness.said().includes("refused -32601"));
	await harness.event("acp_write", ({ error, id }) => error?.code === -32601 && id === "a\"b");
	await harness.event("acp_write", ({ error, id }) => error?.code === -32601 && typeof id === "number");
}));

test("files and terminals are not ours to give", () => withHarness(async (harness) => {
	await harness.turn("read /etc/passwd\nwrite /tmp/x\nterm true\ntermkill");
	assert.equal(harness.said(), "refused -32601;".repeat(4));
	const { payload } = harness.ofKind("acp_write").find(({ payload: { method } }) => method === "initialize");
	assert.deepEqual(payload.params.clientCapabilities, { fs: { readTextFile: false, writeTextFile: false }, terminal: false });
}));

test("an elicitation is shown and declined", () => withHarness(async (harness) => {
	await harness.turn("elicit");
	assert.equal(harness.said(), 'elicited {"action":"decline"}');
	assert.ok(harness.ofKind("acp_read").some(({ payload }) => payload.method === "elicitation/create" && payload.params.message === "Which branch?"));
}));

test("ids of any kind are answered as they were, and stray answers are nobody's", () => withHarness(async (harness) => {
	await harness.turn("nullid\nbigid\nnullerror\ncancelrequest\nsay still here");
	assert.ok(harness.said().endsWith("still here"));
	for (const id of [null, Number("9007199254740993"), 905])
		await harness.event("acp_write", ({ error, id: answered }) => error?.code === -32601 && answered === id);
	assert.equal(harness.ofKind("acp_write").filter(({ payload }) => payload.error).length, 3);
}));

test("a terminal's title in front of a message hides it not; a log that quotes one is no message", () => withHarness(async (harness) => {
	await harness.turn("osc\necho\npretty\nsay .");
	assert.equal(harness.said(), "behind a title.");
	for (const start of ["\x1b]0;agent\x07", "DEBUG sent", "}"]) // the last: of a message over several lines
		await harness.event("acp_parse_error", ({ line }) => line.startsWith(start));
}));

test("an agent that reads slowly gets every byte", async () => {
	const text = "é✓x".repeat(15000);
	const harness = await Harness.start(["--prompt", "slowread 1000\nsay read", "--prompt", `length ${text}`, "--prompt", `length ${text}`], { ready: false });
	assert.deepEqual(await harness.exited, { code: 0, signal: null });
	assert.equal(harness.said(), "read" + "length 45000".repeat(2));
	await harness.stop();
});

test("tool calls that were never announced are followed", () => withHarness(async (harness) => {
	await harness.prompt("unannounced");
	const { authorization: { requestNonce } } = await harness.permission();
	await harness.ask("permission_decision", { requestNonce, optionId: "ok" });
	assert.equal((await harness.completed()).stopReason, "end_turn");
}));

test("a second answer to a prompt ends no other turn", () => withHarness(async (harness) => {
	await harness.turn("twostops");
	assert.equal((await harness.turn("sleep 200\nsay whole")).stopReason, "end_turn");
	assert.equal(harness.said(), "whole");
	assert.equal(harness.ofKind("turn_completed").length, 2);
}));

test("a turn's end says how long each part took", () => withHarness(async (harness) => {
	const file = join(harness.work, "go");
	await harness.prompt(`await ${file}`);
	const waiting = await harness.prompt("sleep 50\nsay at last\nsleep 50");
	assert.equal(waiting.status, "queued");
	writeFileSync(file, "");
	await harness.untilSaid("at last");
	const done = (await harness.events.wait(({ kind, payload }) => kind === "turn_completed" && payload.firstOutputMs !== undefined, "a turn with output")).payload;
	assert.ok(done.queueWaitMs > 0, JSON.stringify(done));
	assert.ok(done.sessionMs >= 0 && done.firstOutputMs >= 40 && done.durationMs >= done.firstOutputMs, JSON.stringify(done));
}));

test("a stopped harness goes on where it was: its own sleep is no silence of the agent", () => withHarness(async (harness) => {
	const file = join(harness.work, "awake");
	await harness.prompt(`say going\nsleep 10000\ntouch ${file}\nsleep 500\nsay through`);
	await harness.untilSaid("going");
	harness.child.kill("SIGSTOP");
	while (!existsSync(file))
		await new Promise((resolve) => setTimeout(resolve, 50));
	harness.child.kill("SIGCONT");
	const done = await harness.completed();
	assert.deepEqual([done.stopReason, done.cancelledBy], ["end_turn", undefined]);
	assert.ok(harness.said().endsWith("through"));
}, ["--idle-timeout", "8"]));

test("updates before the answer to session/new and after a turn's end are kept", () => withHarness(async (harness) => {
	const early = harness.ofKind("acp_read").find(({ payload }) => payload.params?.update?.sessionUpdate === "available_commands_update");
	assert.equal(early.channelId, harness.channel);
	await harness.turn("late");
	const late = await harness.events.wait(({ payload }) => payload.params?.update?.content?.text === "too late", "late update");
	assert.equal(late.channelId, harness.channel);
	assert.equal(late.turnId, null);
}, [], { agentEnv: { AGENT_EARLY: "1" } }));

test("an error of the agent ends the turn with its words", () => withHarness(async (harness) => {
	const done = await harness.turn("fail");
	assert.equal(done.stopReason, undefined);
	assert.equal(done.cancelledBy, undefined);
	const [error] = harness.ofKind("turn_error");
	assert.equal(error.payload.message, "the model is on strike");
	assert.equal(error.payload.class, "agent");
	assert.equal(error.payload.code, -32603);
}));

test("prompts of a channel wait for each other", () => withHarness(async (harness) => {
	const file = join(harness.work, "go");
	assert.equal((await harness.prompt(`await ${file}\nsay first,`)).status, "started");
	const second = await harness.prompt("say second,");
	assert.deepEqual([second.status, second.position], ["queued", 1]);
	assert.deepEqual((await harness.prompt("say third")).position, 2);
	writeFileSync(file, "");
	await harness.untilSaid("third");
	assert.equal(harness.said(), "first,second,third");
}));

test("channels have sessions of their own and work at the same time", () => withHarness(async (harness) => {
	const other = harness.ofKind("harness_started")[0].payload.channels[1];
	assert.equal(other.name, "other");
	await harness.prompt("stall");
	await harness.prompt("say from the other", { channelId: other.id });
	const done = await harness.event("turn_completed", (payload, event) => event.channelId === other.id);
	assert.equal(done.payload.stopReason, "end_turn");
	assert.equal(new Set(harness.ofKind("session_resolved").map(({ payload }) => payload.sessionId)).size, 2);
}, ["--channel", "other"]));

for (const [script, how] of [["stall", "cancelled"], ["errcancel", undefined], ["errcancel -32800", undefined], ["endcancel", "end_turn"]]) {
	test(`a cancelled turn is cancelled by the owner, though the agent says ${how ?? "an error"} (${script})`, () => withHarness(async (harness) => {
		await harness.prompt(`say go\n${script}`);
		await harness.untilSaid("go");
		assert.equal((await harness.ask("cancel_turn")).status, "sent");
		const done = await harness.completed();
		assert.equal(done.cancelledBy, "owner");
		assert.equal(done.stopReason, how);
		assert.equal(harness.ofKind("turn_error").length, 0);
		assert.equal((await harness.turn("say again")).stopReason, "end_turn");
	}));
}

test("an agent that is deaf to a cancel is replaced", () => withHarness(async (harness) => {
	await harness.prompt("say go\ndeaf");
	await harness.untilSaid("go");
	await harness.ask("cancel_turn");
	assert.equal((await harness.completed()).cancelledBy, "owner");
	assert.equal((await harness.event("agent_exited")).payload.reason, "stopped");
	assert.equal((await harness.turn("say fresh")).stopReason, "end_turn");
	const { pid } = harness.ofKind("agent_initialized")[0].payload;
	await harness.event("agent_initialized", (payload) => payload.pid !== pid);
}));

test("a silent turn ends by the idle deadline, and says so", () => withHarness(async (harness) => {
	await harness.prompt("stall");
	const done = await harness.completed();
	assert.equal(done.cancelledBy, "timeout");
	assert.match(harness.ofKind("turn_error")[0].payload.message, /--idle-timeout/);
}, ["--idle-timeout", "1"]));

test("an agent without a word for long is silent, and goes on with the next one", () => withHarness(async (harness) => {
	const file = join(harness.work, "go-on");
	await harness.prompt(`say going\nawait ${file}\nsay back`);
	const isSilent = ({ reason }) => reason === "silent";
	const { payload, channelId } = await harness.event("agent_stalled", isSilent);
	assert.deepEqual([payload.slot, channelId], [0, harness.channel]);
	assert.ok(payload.sinceMs >= 10000, String(payload.sinceMs));
	writeFileSync(file, "");
	const resumed = await harness.event("agent_resumed", isSilent);
	assert.ok(resumed.payload.sinceMs >= payload.sinceMs);
	assert.deepEqual([(await harness.completed()).stopReason, harness.said()], ["end_turn", "goingback"]);
	assert.equal(harness.ofKind("agent_stalled").filter((event) => isSilent(event.payload)).length, 1);
}, ["--idle-timeout", "20"]));

test("no chatter keeps a turn alive beyond its hard cap", () => withHarness(async (harness) => {
	await harness.prompt("markers 1000 20");
	assert.equal((await harness.completed()).cancelledBy, "timeout");
	assert.match(harness.ofKind("turn_error")[0].payload.message, /--turn-timeout/);
}, ["--turn-timeout", "1"]));

test("--prompt runs and exits 0 when the turn ended by itself", async () => {
	const harness = await Harness.start(["--prompt", "say done"], { ready: false });
	assert.deepEqual(await harness.exited, { code: 0, signal: null });
	assert.equal(harness.said(), "done");
	assert.equal(harness.ofKind("harness_stopping")[0].payload.reason, "finished");
	await harness.stop();
});

test("--prompt exits 1 when a turn did not end by itself", async () => {
	const harness = await Harness.start(["--prompt", "stop refusal"], { ready: false });
	assert.equal((await harness.exited).code, 1);
	assert.equal(harness.ofKind("turn_completed")[0].payload.stopReason, "refusal");
	await harness.stop();
});
