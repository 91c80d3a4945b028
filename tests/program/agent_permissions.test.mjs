// Permission requests of `perch agent` (NIP-AO): one answer each, shown only once it was written.
import assert from "node:assert/strict";
import { test } from "node:test";
import { now, withHarness } from "./support/harness.mjs";

/** Prompts and returns the nonce of the request that follows. */
async function askedNonce(harness, script = "permission") {
	await harness.prompt(script);
	const { authorization } = await harness.permission();
	assert.equal(authorization.actionable, true);
	assert.match(authorization.requestNonce, /^[0-9a-f]{32}$/);
	return authorization.requestNonce;
}

const outcome = ({ payload }) => payload.result.outcome;

test("the owner's decision reaches the agent and is shown as applied", () => withHarness(async (harness) => {
	const requestNonce = await askedNonce(harness);
	const result = await harness.ask("permission_decision", { requestNonce, optionId: "ok" });
	assert.deepEqual([result.status, result.requestNonce, result.optionId], ["sent", requestNonce, "ok"]);
	const answer = await harness.answer(requestNonce);
	assert.deepEqual(answer.authorization, { requestNonce, actionable: false, reason: "applied" });
	assert.deepEqual(outcome(answer), { outcome: "selected", optionId: "ok" });
	await harness.untilSaid("chosen ok");
}));

test("the first decision wins, later ones are already decided", () => withHarness(async (harness) => {
	const requestNonce = await askedNonce(harness);
	await harness.ask("permission_decision", { requestNonce, optionId: "no" });
	assert.equal((await harness.ask("permission_decision", { requestNonce, optionId: "ok" })).status, "already_decided");
	await harness.completed();
	assert.equal(harness.said(), "chosen no");
	assert.equal(harness.ofKind("acp_write").filter((event) => event.authorization?.requestNonce === requestNonce).length, 1);
}));

test("a decision as NIP-AO has it, without request id or epoch, is taken", () => withHarness(async (harness) => {
	const requestNonce = await askedNonce(harness);
	harness.publish({ type: "permission_decision", channelId: harness.channel, requestNonce, optionId: "ok" }, { created_at: now() });
	assert.equal((await harness.answer(requestNonce)).authorization.reason, "applied");
	assert.equal((await harness.event("control_result", (payload) => payload.requestNonce === requestNonce)).payload.status, "sent");
}));

test("what was not offered decides nothing", () => withHarness(async (harness) => {
	const requestNonce = await askedNonce(harness);
	assert.equal((await harness.ask("permission_decision", { requestNonce, optionId: "yes please" })).status, "malformed");
	assert.equal((await harness.ask("permission_decision", { requestNonce: "0".repeat(32), optionId: "ok" })).status, "no_active_turn");
	assert.equal((await harness.ask("permission_decision", { requestNonce, optionId: "ok" })).status, "sent");
	await harness.untilSaid("chosen ok");
}));

test("without a decision in time it is denied by the reject option", () => withHarness(async (harness) => {
	const requestNonce = await askedNonce(harness);
	const answer = await harness.answer(requestNonce);
	assert.equal(answer.authorization.reason, "timed_out");
	assert.deepEqual(outcome(answer), { outcome: "selected", optionId: "no" });
	await harness.untilSaid("chosen no");
	assert.equal((await harness.ask("permission_decision", { requestNonce, optionId: "ok" })).status, "no_active_turn");
}, ["--permission-timeout", "1"]));

test("a cancelled turn answers all that waits as cancelled, after the cancel", () => withHarness(async (harness) => {
	await harness.prompt("twoperms");
	const first = await harness.permission();
	await harness.events.wait((event) => event.authorization?.actionable && event.seq > first.seq, "second request");
	await harness.ask("cancel_turn");
	const done = await harness.completed();
	assert.equal(done.cancelledBy, "owner");
	const writes = harness.ofKind("acp_write");
	const cancel = writes.findIndex(({ payload }) => payload.method === "session/cancel");
	const answers = writes.filter(({ authorization }) => authorization);
	assert.equal(answers.length, 2);
	for (const answer of answers) {
		assert.deepEqual(outcome(answer), { outcome: "cancelled" });
		assert.equal(answer.authorization.reason, "cancelled");
		assert.ok(writes.indexOf(answer) > cancel);
	}
}));

test("--permissions reject denies at once", () => withHarness(async (harness) => {
	await harness.turn("permission");
	const { authorization } = await harness.permission();
	assert.equal(authorization.actionable, false);
	const answer = await harness.answer(authorization.requestNonce);
	assert.equal(answer.authorization.reason, "rejected");
	assert.deepEqual(outcome(answer), { outcome: "selected", optionId: "no" });
}, ["--permissions", "reject"]));

test("--permissions allow picks allow_once by kind, not by position", () => withHarness(async (harness) => {
	await harness.turn("permission");
	const { authorization } = await harness.permission();
	const answer = await harness.answer(authorization.requestNonce);
	assert.equal(answer.authorization.reason, "allowed");
	assert.deepEqual(outcome(answer), { outcome: "selected", optionId: "ok" });
}, ["--permissions", "allow"]));

for (const [script, wanted] of [["twoallow", { outcome: "selected", optionId: "no" }], ["oneoption", { outcome: "cancelled" }]]) {
	test(`--permissions allow fails closed where there is a choice or none (${script})`, () => withHarness(async (harness) => {
		await harness.turn(script);
		const { authorization } = await harness.permission();
		const answer = await harness.answer(authorization.requestNonce);
		assert.equal(answer.authorization.reason, "allow_failed_closed");
		assert.deepEqual(outcome(answer), wanted);
	}, ["--permissions", "allow"]));
}

test("the seventeenth request that waits is rejected", () => withHarness(async (harness) => {
	await harness.prompt("manyperms 17");
	const rejected = await harness.events.wait((event) => event.authorization?.reason === "rejected", "rejection");
	assert.deepEqual(outcome(rejected), { outcome: "selected", optionId: "no" });
	const asked = harness.ofKind("acp_read").filter(({ authorization }) => authorization);
	assert.equal(asked.filter(({ authorization }) => authorization.actionable).length, 16);
}));

test("a second request with the same id settles nothing of the first", () => withHarness(async (harness) => {
	const requestNonce = await askedNonce(harness, "dupid");
	await harness.events.wait((event) => event.authorization?.actionable === false && event.kind === "acp_read", "second request");
	await harness.ask("permission_decision", { requestNonce, optionId: "ok" });
	await harness.completed();
	assert.equal(harness.ofKind("acp_write").filter(({ payload }) => payload.id === 900).length, 1);
	assert.ok(harness.said().includes('answer {"outcome":{"outcome":"selected","optionId":"ok"}}'));
}));

test("a request with broken strings is asked nevertheless, and shown repaired", () => withHarness(async (harness) => {
	const requestNonce = await askedNonce(harness, "brokenpermission");
	const request = await harness.permission();
	assert.equal(request.repaired, true);
	assert.equal(request.payload.params.toolCall.title, "\ufffd\ufffd");
	await harness.ask("permission_decision", { requestNonce, optionId: "ok" });
	await harness.completed();
	assert.ok(harness.said().includes('"optionId":"ok"'));
}));

for (const [kind, later, reason] of [
	["read", false, "allowed"], ["read", true, "allowed"], ["search", false, "allowed"], ["execute", false, "rejected"], ["edit", false, undefined],
	["future_kind", false, undefined],
]) {
	test(`rules by kind of tool: ${kind}${later ? ", said before the request" : ""} is ${reason ?? "asked"}`, () => withHarness(async (harness) => {
		await harness.prompt(`kind ${kind}${later ? " later" : ""}`);
		const { authorization } = await harness.permission();
		assert.equal(authorization.actionable, !reason);
		if (!reason)
			await harness.ask("permission_decision", { requestNonce: authorization.requestNonce, optionId: "no" });
		assert.equal((await harness.answer(authorization.requestNonce)).authorization.reason, reason ?? "applied");
	}, ["--permission-rules", "allow read, search; reject execute"]));
}

test("a request that the agent takes back is over, and answered once", () => withHarness(async (harness) => {
	await harness.turn("withdraw");
	const { authorization: { requestNonce } } = await harness.permission();
	const answer = await harness.answer(requestNonce);
	assert.deepEqual([answer.authorization.reason, outcome(answer)], ["cancelled", { outcome: "cancelled" }]);
	assert.equal(harness.ofKind("acp_write").filter(({ payload }) => payload.id === 903).length, 1);
	assert.equal((await harness.ask("permission_decision", { requestNonce, optionId: "ok" })).status, "no_active_turn");
}));

test("two tabs that answer at once: one is applied, the other hears that it was decided", () => withHarness(async (harness) => {
	const requestNonce = await askedNonce(harness);
	const results = await Promise.all(["ok", "no"].map((optionId) => harness.ask("permission_decision", { requestNonce, optionId })));
	assert.deepEqual(results.map(({ status }) => status).sort(), ["already_decided", "sent"]);
	const chosen = results.find(({ status }) => status === "sent").optionId;
	await harness.completed();
	assert.equal(harness.said(), `chosen ${chosen}`);
	assert.equal(harness.ofKind("acp_write").filter((event) => event.authorization?.requestNonce === requestNonce).length, 1);
}));

test("several requests wait at once and are answered in any order", () => withHarness(async (harness) => {
	await harness.prompt("manyperms 3");
	await harness.events.wait(() => harness.ofKind("acp_read").filter(({ authorization }) => authorization?.actionable).length === 3, "three requests");
	const asked = harness.ofKind("acp_read").filter(({ authorization }) => authorization);
	for (const [i, optionId] of [[2, "no"], [0, "ok"], [1, "never"]])
		assert.equal((await harness.ask("permission_decision", { requestNonce: asked[i].authorization.requestNonce, optionId })).status, "sent");
	assert.equal((await harness.completed()).stopReason, "end_turn");
	for (const [i, optionId] of [[2, "no"], [0, "ok"], [1, "never"]]) {
		const answer = await harness.answer(asked[i].authorization.requestNonce);
		assert.deepEqual([answer.payload.id, outcome(answer).optionId], [asked[i].payload.id, optionId]);
	}
}));

test("a request waits 300 seconds", () => withHarness(async (harness) => {
	await askedNonce(harness);
	const request = await harness.permission();
	harness.publish({ type: "feed_sync", requestId: "sync", observer: "0badcafe", want: [] });
	const { payload } = await harness.event("feed_state");
	assert.ok(Math.abs(payload.pending[0].deadlineMs - Date.parse(request.timestamp) - 300000) < 5000, JSON.stringify(payload.pending));
}));

test("a request without options is refused as invalid", () => withHarness(async (harness) => {
	await harness.turn("badpermission");
	assert.match(harness.said(), /-32602/);
}));

test("a request too large for a frame is kept whole and fetched by part", () => withHarness(async (harness) => {
	const requestNonce = await askedNonce(harness, "permission 200000");
	const request = await harness.permission();
	assert.ok(request.trimmed > 0);
	const requestId = "fetch-1";
	harness.publish({ type: "fetch_body", requestId, epoch: harness.epoch, seq: request.seq });
	const last = await harness.event("body_part", ({ part, parts }) => part === parts);
	assert.equal(last.payload.seq, request.seq);
	const text = harness.ofKind("body_part").sort((a, b) => a.payload.part - b.payload.part).map(({ payload }) => payload.text).join("");
	const whole = JSON.parse(text);
	assert.equal(whole.payload.params.toolCall.rawInput.text.length, 200000);
	assert.equal(whole.authorization.requestNonce, requestNonce);
	await harness.ask("permission_decision", { requestNonce, optionId: "ok" });
	await harness.untilSaid("chosen ok");
}));
