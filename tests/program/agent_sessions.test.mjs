// Sessions of `perch agent`: what becomes of them when an agent or the harness starts again.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Harness, withHarness } from "./support/harness.mjs";

/** An agent whose sessions outlive its process, in a file of its working directory. */
const keeping = (offers, extra = {}) => ({ agentEnv: { AGENT_SESSIONS: offers, AGENT_STORE: "sessions.json", ...extra } });

const written = (harness, method) => harness.ofKind("acp_write").filter(({ payload }) => payload.method === method);
const firstSession = (harness) => harness.ofKind("session_resolved")[0].payload.sessionId;

/** Crashes the agent and waits until it has a session again; gives that session_resolved. */
async function crash(harness) {
	const from = harness.mark;
	await harness.turn("say before the crash\ncrash SIGKILL");
	return (await harness.event("session_resolved", ({ isNew, resumed }) => isNew || resumed, from)).payload;
}

test("after a crash the session is resumed where the agent can", () => withHarness(async (harness) => {
	const id = firstSession(harness);
	const again = await crash(harness);
	assert.deepEqual([again.sessionId, again.isNew, again.resumed, again.replayed], [id, false, true, 0]);
	assert.equal(written(harness, "session/resume").length, 1);
	assert.equal(written(harness, "session/load").length, 0, "resume comes before load");
	assert.equal((await harness.turn("say on it goes")).stopReason, "end_turn");
	assert.equal(written(harness, "session/prompt").at(-1).payload.params.sessionId, id);
}, [], keeping("resume,load")));

test("history that a load repeats is counted and not shown twice", () => withHarness(async (harness) => {
	const again = await crash(harness);
	assert.deepEqual([again.sessionId, again.resumed, again.replayed], [firstSession(harness), true, 3]);
	assert.ok(!harness.said().includes("earlier answer"));
	await harness.turn("say fresh");
	assert.ok(harness.said().endsWith("fresh"));
	assert.equal(harness.ofKind("turn_first_output").length, 2);
}, [], keeping("load")));

test("where nothing can be resumed a new session begins", () => withHarness(async (harness) => {
	const again = await crash(harness);
	assert.equal(again.isNew, true);
	assert.notEqual(again.sessionId, firstSession(harness));
}));

test("a session that the agent does not know any more is replaced, and said so", () => withHarness(async (harness) => {
	const again = await crash(harness);
	assert.equal(again.isNew, true);
	assert.match((await harness.event("note", ({ level }) => level === "warn")).payload.text, /could not be resumed \(no such session\): a new one begins/);
}, [], { agentEnv: { AGENT_SESSIONS: "load" } }));

test("a session that kills the agent is not tried twice", () => withHarness(async (harness) => {
	const again = await crash(harness);
	assert.equal(again.isNew, true);
	assert.equal(written(harness, "session/load").length, 1);
	assert.equal(harness.ofKind("agent_exited").length, 2);
}, [], keeping("load", { AGENT_LOAD_CRASHES: "1" })));

/** Stops the harness, keeping its folders, and starts it again. */
async function startAgain(harness, args, options) {
	harness.child.kill("SIGTERM");
	await harness.exited;
	return Harness.start(args, { ...options, again: harness });
}

test("--resume last goes on with the session of the start before", async () => {
	const options = keeping("resume,close");
	const first = await Harness.start([], options);
	const id = firstSession(first);
	await first.turn("say one");
	const second = await startAgain(first, ["--resume", "last"], options);
	assert.deepEqual(written(first, "session/close").map(({ payload }) => payload.params.sessionId), [id], "it was closed");
	const { payload } = second.ofKind("session_resolved")[0];
	assert.deepEqual([payload.sessionId, payload.resumed], [id, true]);
	const third = await startAgain(second, [], options);
	assert.notEqual(firstSession(third), id, "without it a new one begins");
	await third.stop();
});

test("--resume SESSION shows the history of a session that this feed has not seen", () => withHarness(async (harness) => {
	const { payload } = harness.ofKind("session_resolved")[0];
	assert.deepEqual([payload.sessionId, payload.resumed, payload.replayed], ["from-a-terminal", true, 3]);
	assert.equal(harness.said(), "earlier answer");
}, ["--resume", "from-a-terminal"], keeping("load", { AGENT_KNOWS: "from-a-terminal" })));

test("--resume last without one of our own takes the newest that the agent lists for the folder", () => withHarness(async (harness) => {
	const { payload } = harness.ofKind("session_resolved")[0];
	assert.deepEqual([payload.sessionId, payload.resumed], ["newer", true]);
	assert.equal(written(harness, "session/list")[0].payload.params.cwd, harness.work);
}, ["--resume", "last"], keeping("load,list", { AGENT_KNOWS: "older,newer,stranger" })));

test("an agent that does not answer session/close does not hold the stop", async () => {
	const harness = await Harness.start([], keeping("close", { AGENT_CLOSE_HANGS: "1" }));
	assert.deepEqual(await harness.stop(), { code: 0, signal: null });
	assert.equal(written(harness, "session/close").length, 1);
});
