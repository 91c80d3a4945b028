// Controls of `perch agent`: executed at most once, answered always (the wire's rules for controls).
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { control, makeKey } from "./support/keys.mjs";
import { now, withHarness } from "./support/harness.mjs";

const status = async (asked) => (await asked).status;

test("a repeat, signed anew, gets the first answer and does not run again", () => withHarness(async (harness) => {
	const control = {
		type: "prompt", requestId: randomUUID(), epoch: harness.epoch, expires: now() + 60, channelId: harness.channel,
		content: [{ type: "text", text: "say once" }],
	};
	harness.publish(control);
	const first = await harness.event("control_result", ({ requestId }) => requestId === control.requestId);
	await harness.completed();
	const from = harness.mark;
	harness.publish(control);
	const again = await harness.event("control_result", ({ requestId }) => requestId === control.requestId, from);
	assert.deepEqual(again.payload, first.payload);
	assert.equal(harness.ofKind("turn_started").length, 1);
}));

test("what is of another epoch or expired does not run", () => withHarness(async (harness) => {
	assert.equal(await status(harness.prompt("say no", { epoch: "0123456789abcdef" })), "wrong_epoch");
	// The harness takes the relay's clock, which it knows to a second or two; 30 are forgiven.
	assert.equal(await status(harness.prompt("say no", { expires: now() - 40 })), "expired");
	assert.equal(harness.ofKind("turn_started").length, 0);
}));

test("what is malformed is answered as such, with a reason", () => withHarness(async (harness) => {
	assert.equal(await status(harness.ask("prompt", {})), "malformed");
	assert.equal(await status(harness.ask("prompt", { content: [] })), "malformed");
	assert.equal(await status(harness.ask("prompt", { content: ["text"] })), "malformed");
	const result = await harness.ask("set_mode", { modeId: 7 });
	assert.equal(result.status, "malformed");
	assert.ok(result.detail);
}));

test("a channel that is not ours is told", () => withHarness(async (harness) => {
	assert.equal(await status(harness.prompt("say no", { channelId: randomUUID() })), "no_channel");
}));

test("an unknown type is unsupported", () => withHarness(async (harness) => {
	assert.equal(await status(harness.ask("make_coffee")), "unsupported");
}));

test("nobody but the owner is heard", () => withHarness(async (harness) => {
	harness.publish({
		type: "prompt", requestId: "stranger", epoch: harness.epoch, expires: now() + 60, channelId: harness.channel,
		content: [{ type: "text", text: "say no" }],
	}, { key: makeKey() });
	await harness.turn("say yes");
	assert.equal(harness.ofKind("turn_started").length, 1);
	assert.ok(!harness.ofKind("control_result").some(({ payload }) => payload.requestId === "stranger"));
}));

test("more than ten controls a second are rate limited", () => withHarness(async (harness) => {
	// Sealed before: a slow machine would not seal ten a second.
	const controls = Array.from({ length: 60 }, (_, i) => control(harness.owner, harness.agentPub,
		JSON.stringify({ type: "cancel_turn", requestId: `r${i}`, epoch: harness.epoch, expires: now() + 60, channelId: harness.channel })));
	const begin = performance.now();
	for (const each of controls)
		harness.relay.deliver(each);
	await harness.event("control_result", ({ status }) => status === "rate_limited");
	const ran = harness.ofKind("control_result").filter(({ payload }) => payload.status === "no_active_turn");
	const seconds = Math.ceil((performance.now() - begin) / 1000) + 1; // that these results can be of
	assert.ok(ran.length >= 10 && ran.length <= 10 * seconds, `${ran.length} ran`);
}));

test("--control approve lets the owner stop and decide, not prompt", () => withHarness(async (harness) => {
	assert.equal(await status(harness.prompt("say no")), "refused");
	assert.equal(await status(harness.ask("set_mode", { modeId: "code" })), "refused");
	assert.equal(await status(harness.ask("cancel_turn")), "no_active_turn");
}, ["--control", "approve"]));

test("--control none answers reads only", () => withHarness(async (harness) => {
	assert.equal(await status(harness.ask("cancel_turn")), "refused");
	harness.publish({ type: "feed_sync", requestId: "sync-1", observer: "0badcafe", want: [] });
	assert.equal((await harness.event("feed_state")).payload.requestId, "sync-1");
}, ["--control", "none"]));

test("a stop holds what waits until it is released or a new prompt comes", () => withHarness(async (harness) => {
	await harness.prompt("say one \nstall");
	await harness.prompt("say two ");
	await harness.untilSaid("one");
	assert.equal(await status(harness.ask("cancel_turn")), "sent");
	await harness.completed();
	assert.equal(await status(harness.ask("set_mode", { modeId: "code" })), "applied"); // time passes
	assert.equal(harness.ofKind("turn_started").length, 1);
	assert.equal(await status(harness.ask("release_queue")), "ok");
	await harness.untilSaid("two");
}));

test("modes are set where the agent offers and takes them", () => withHarness(async (harness) => {
	assert.equal(await status(harness.ask("set_mode", { modeId: "code" })), "applied");
	const refused = await harness.ask("set_mode", { modeId: "ask" });
	assert.deepEqual([refused.status, refused.detail], ["unsupported", "not now"]);
	assert.equal(await status(harness.ask("set_mode", { modeId: "yolo" })), "unsupported");
}));

test("an agent that agrees to a model and lists the old one has not switched", () => withHarness(async (harness) => {
	const result = await harness.ask("switch_model", { modelId: "large" });
	assert.deepEqual([result.status, result.detail], ["unsupported_model", "the agent agreed, and lists the old one still"]);
}, [], { agentEnv: { AGENT_STUBBORN: "1" } }));

test("a model is switched between turns, and a busy turn runs again with the new one", () => withHarness(async (harness) => {
	assert.equal(await status(harness.ask("switch_model", { modelId: "huge" })), "unsupported_model");
	assert.equal(await status(harness.ask("switch_model", { modelId: "large" })), "switched");
	await harness.turn("model");
	assert.ok(harness.said().includes("model large"));
	const from = harness.mark;
	await harness.prompt("model\nstall");
	await harness.event("turn_first_output", () => true, from);
	assert.equal(await status(harness.ask("switch_model", { modelId: "small" })), "sent");
	await harness.untilSaid("model small");
}));

test("feed_state tells channels, sessions, turns and what waits", () => withHarness(async (harness) => {
	await harness.prompt("permission");
	const request = await harness.permission();
	harness.publish({ type: "feed_sync", requestId: "sync-2", observer: "0badcafe", want: [] });
	const { payload } = await harness.event("feed_state");
	assert.equal(payload.control, "full");
	assert.equal(payload.permissions, "ask");
	assert.equal(payload.channels[0].id, harness.channel);
	assert.equal(payload.sessions[0].modes.currentModeId, "ask");
	assert.equal(payload.turns[0].turnId, request.turnId);
	assert.equal(payload.pending[0].requestNonce, request.authorization.requestNonce);
	assert.equal(payload.pending[0].seq, request.seq);
	assert.ok(payload.pending[0].deadlineMs > Date.now());
	assert.equal(payload.slots[0].pid, harness.ofKind("agent_initialized")[0].payload.pid);
}));
