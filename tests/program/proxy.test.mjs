// `perch proxy`: an editor and its agent, with the proxy between them, byte for byte; and what the
// owner sees of it. The editor is this test, or acpx (editor.test.mjs).
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { test } from "node:test";
import { Front } from "./support/front.mjs";
import { scriptedAgent } from "./support/harness.mjs";

async function withProxy(command, run, options) {
	const front = await Front.start("proxy", [], command, options);
	try {
		await run(front);
	} finally {
		await front.stop("SIGKILL");
	}
}
const node = (script) => [process.execPath, "-e", script];
const sha = (bytes) => createHash("sha256").update(bytes).digest("hex");

/** An editor that speaks raw JSON-RPC to the agent behind the proxy. */
class Editor {
	#next = 0;

	constructor(front) {
		this.front = front;
	}

	#read = 0;
	#messages = [];

	get messages() {
		const { stdout } = this.front;
		for (let end; (end = stdout.indexOf(10, this.#read)) >= 0; this.#read = end + 1) {
			try {
				this.#messages.push(JSON.parse(stdout.subarray(this.#read, end)));
			} catch {
				// a line that is no JSON
			}
		}
		return this.#messages;
	}

	write(message) {
		this.front.child.stdin.write(JSON.stringify({ jsonrpc: "2.0", ...message }) + "\n");
	}

	async wait(matches) {
		for (let from = 0; ;) {
			const found = this.messages.find(matches);
			if (found)
				return found;
			const length = this.front.stdout.length;
			if (length === from)
				await new Promise((resolve) => this.front.child.stdout.once("data", resolve));
			from = length;
		}
	}

	async request(method, params) {
		const id = this.#next++;
		this.write({ id, method, params });
		const answer = await this.wait((message) => message.id === id && !message.method);
		if (answer.error)
			throw Object.assign(new Error(answer.error.message), answer.error);
		return answer.result;
	}

	async open() {
		await this.request("initialize", { protocolVersion: 1, clientCapabilities: {} });
		this.session = (await this.request("session/new", { cwd: "/somewhere/api-server", mcpServers: [] })).sessionId;
	}

	prompt(text) {
		return this.request("session/prompt", { sessionId: this.session, prompt: [{ type: "text", text }] });
	}
}

async function withEditor(run, options) {
	await withProxy(scriptedAgent, async (front) => {
		const editor = new Editor(front);
		await editor.open();
		await run(front, editor);
	}, options);
}

test("any bytes pass, both ways at once", () => withProxy(node("process.stdin.pipe(process.stdout)"), async (front) => {
	const bytes = randomBytes(3 << 20);
	front.child.stdin.end(bytes);
	assert.deepEqual(await front.exited, { code: 0, signal: null });
	assert.equal(sha(front.stdout), sha(bytes));
	assert.equal(front.stderr.length, 0);
}));

test("stderr and the exit status are the agent's", () => withProxy(node("process.stderr.write('log one\\n', () => process.exit(9))"), async (front) => {
	assert.deepEqual(await front.exited, { code: 9, signal: null });
	assert.equal(String(front.stderr), "log one\n");
	assert.equal((await front.event("agent_exited")).payload.code, 9);
	assert.equal(front.output("stderr"), "log one\n");
}, { ready: false }));

test("an agent that a signal ends is 128 and its number", () => withProxy(node("process.kill(process.pid, 'SIGSEGV')"), async (front) => {
	assert.deepEqual(await front.exited, { code: 139, signal: null });
}, { ready: false }));

test("a signal to the proxy reaches the agent", () => withProxy(node("process.on('SIGTERM', () => { console.log('caught'); process.exit(4); }); console.log('armed'); setInterval(() => {}, 1e6)"), async (front) => {
	await front.untilWritten("armed");
	front.child.kill("SIGTERM");
	assert.deepEqual(await front.exited, { code: 4, signal: null });
	assert.equal(String(front.stdout), "armed\ncaught\n");
}));

test("the end of the editor's writing is the end of the agent's input, and it may go on", () => withProxy(node("process.stdin.resume().on('end', () => setTimeout(() => console.log('after the end'), 50))"), async (front) => {
	front.child.stdin.end();
	assert.equal((await front.exited).code, 0);
	assert.equal(String(front.stdout), "after the end\n");
}));

test("an agent that closes its output while it lives: the editor sees that end", () => withProxy(node("require('fs').closeSync(1); process.stdin.resume().on('end', () => process.exit(2))"), async (front) => {
	await front.stdoutEnded;
	assert.equal(front.status, undefined);
	front.child.stdin.end();
	assert.equal((await front.exited).code, 2);
}));

test("an editor that stops reading ends the agent as without us", () => withProxy(node("process.stdout.on('error', () => process.exit(3)); setInterval(() => console.log('x'), 5)"), async (front) => {
	await front.untilWritten("x");
	front.child.stdout.destroy();
	assert.equal((await front.ended).code, 3);
}));

test("an agent that stops reading: the editor's writes fail as without us", () => withProxy(node("require('fs').closeSync(0); console.log('closed'); setTimeout(() => process.exit(0), 5000)"), async (front) => {
	await front.untilWritten("closed");
	const failed = new Promise((resolve) => front.child.stdin.once("error", resolve));
	const timer = setInterval(() => front.child.stdin.write("x"), 5);
	assert.match((await failed).code, /EPIPE|ECONNRESET/);
	clearInterval(timer);
}));

test("an agent that reads nothing holds up its own direction only", () => withProxy(node("let n = 0; setInterval(() => console.log('tick ' + n++), 5)"), async (front) => {
	front.child.stdin.write(Buffer.alloc(8 << 20, "y"));
	await front.untilWritten("tick 40");
}));

test("a huge line passes, and the feed says how long it was", () => withEditor(async (front, editor) => {
	await editor.prompt("hugeline 9\nsay after");
	const { payload } = await front.event("acp_parse_error");
	assert.ok(payload.bytes > 9 << 20);
	await front.event("turn_completed");
	assert.ok(editor.messages.some((message) => message.params?.update?.content?.text?.length === 9 << 20));
}));

test("sessions have channels with their folder's name, turns an order and an end", () => withEditor(async (front, editor) => {
	assert.equal((await editor.prompt("say one\nsay two")).stopReason, "end_turn");
	const done = await front.event("turn_completed");
	assert.equal(done.payload.stopReason, "end_turn");
	const { payload: resolved, channelId } = await front.event("session_resolved");
	assert.deepEqual([resolved.sessionId, resolved.isNew, resolved.channelName], [editor.session, true, "api-server"]);
	assert.equal(done.channelId, channelId);
	const kinds = front.events.filter((event) => event.turnId === done.turnId).map((event) => event.kind);
	assert.deepEqual([kinds[0], kinds[1], kinds.at(-1)], ["turn_started", "acp_write", "turn_completed"]);
	const { payload: started } = front.ofKind("turn_started")[0];
	assert.deepEqual([started.source, started.text, started.promptId], ["editor", "say one\nsay two", done.payload.promptId]);
	assert.equal(front.ofKind("harness_started")[0].payload.mode, "proxy");
	const { payload: agent } = await front.event("agent_initialized");
	assert.equal(agent.agentInfo.name, "scripted");
	assert.ok(agent.pid > 0);
	assert.ok(front.events.every((event) => event.channelId === channelId || event.sessionId === null));
}));

const history = (front) => front.ofKind("acp_read").map(({ payload }) => payload.params?.update?.content?.text).filter((text) => text?.startsWith("earlier"));
const load = (editor, sessionId) => editor.request("session/load", { sessionId, cwd: "/somewhere/api-server", mcpServers: [] });

test("history that a load repeats is counted and not shown twice", () => withEditor(async (front, editor) => {
	await editor.prompt("say one");
	const { sessionId } = (await front.event("session_resolved")).payload;
	await load(editor, sessionId);
	const { payload } = await front.event("session_resolved", ({ resumed }) => resumed);
	assert.deepEqual([payload.sessionId, payload.isNew, payload.replayed, payload.title], [sessionId, false, 3, "An earlier session"]);
	await editor.prompt("say two");
	await front.event("acp_read", (line) => line.params?.update?.content?.text === "two");
	assert.deepEqual(history(front), []);
	assert.ok(String(front.stdout).includes("earlier answer"), "the editor has it");
}, { env: { AGENT_SESSIONS: "load" } }));

test("a session's history is shown to an owner once, over two starts", async () => {
	const options = { env: { AGENT_SESSIONS: "load", AGENT_KNOWS: "from-a-terminal" } };
	const first = await Front.start("proxy", [], scriptedAgent, options);
	const editor = new Editor(first);
	await editor.open();
	await load(editor, "from-a-terminal");
	const resolved = await first.event("session_resolved", ({ sessionId }) => sessionId === "from-a-terminal");
	assert.deepEqual([resolved.payload.isNew, resolved.payload.replayed], [false, 3]);
	assert.deepEqual(history(first), ["earlier question", "earlier answer"]);
	assert.ok(first.events.every(({ channelId, turnId }) => channelId !== resolved.channelId || turnId === null), "no turn of it");
	first.child.stdin.end();
	await first.leave();
	const second = await Front.start("proxy", [], scriptedAgent, { ...options, again: first });
	const later = new Editor(second);
	await later.open();
	await load(later, "from-a-terminal");
	const again = await second.event("session_resolved", ({ sessionId }) => sessionId === "from-a-terminal");
	assert.deepEqual([again.payload.replayed, again.channelId], [3, resolved.channelId]);
	assert.deepEqual(history(second), []);
	await second.stop("SIGKILL");
});

test("a load that fails ends the telling: what comes then is news", () => withEditor(async (front, editor) => {
	await front.event("session_resolved");
	await assert.rejects(load(editor, "nobody-knows-it"), /no such session/);
	await editor.prompt(`update nobody-knows-it stray`);
	await front.event("acp_read", (line) => line.params?.sessionId === "nobody-knows-it" && line.params.update.content.text === "stray");
	assert.equal(front.ofKind("session_resolved").length, 1);
}, { env: { AGENT_SESSIONS: "load" } }));

/** An agent of protocol version 2: a prompt's answer only takes it, states tell its way. */
const second = node(`
	const send = (message) => console.log(JSON.stringify({ jsonrpc: "2.0", ...message }));
	const update = (update) => send({ method: "session/update", params: { sessionId: "two", update } });
	const answers = {
		initialize: { protocolVersion: 2, info: { name: "second", version: "2" }, capabilities: { session: {} } },
		"session/new": { sessionId: "two" }, "session/prompt": { messageId: "m1" },
	};
	require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
		const { id, method } = JSON.parse(line);
		send({ id, result: answers[method] });
		if (method !== "session/prompt")
			return;
		update({ sessionUpdate: "state_update", state: "running" });
		update({ sessionUpdate: "agent_message_chunk", messageId: "a1", content: { type: "text", text: "from version 2" } });
		update({ sessionUpdate: "state_update", state: "idle", stopReason: "end_turn" });
	})`);

test("an editor and an agent that speak version 2 have turns too", () => withProxy(second, async (front) => {
	const editor = new Editor(front);
	await editor.request("initialize", { protocolVersion: 2, info: { name: "editor", version: "1" }, capabilities: {} });
	editor.session = (await editor.request("session/new", { cwd: "/x" })).sessionId;
	assert.deepEqual(await editor.prompt("go"), { messageId: "m1" });
	const done = await front.event("turn_completed");
	assert.equal(done.payload.stopReason, "end_turn");
	const said = await front.event("acp_read", (line) => line.params?.update?.content?.text === "from version 2");
	assert.equal(said.turnId, done.turnId);
	assert.equal(front.ofKind("turn_started").length, 1);
}));

test("a prompt that fails is an error and the end of its turn", () => withEditor(async (front, editor) => {
	await assert.rejects(editor.prompt("fail"), /on strike/);
	const { payload } = await front.event("turn_error");
	assert.deepEqual([payload.code, payload.message, payload.class], [-32603, "the model is on strike", "agent"]);
	await front.event("turn_completed");
}));

test("an agent that dies in its turn ends it", () => withEditor(async (front, editor) => {
	editor.write({ id: 99, method: "session/prompt", params: { sessionId: editor.session, prompt: [{ type: "text", text: "say x\ncrash SIGKILL" }] } });
	assert.equal((await front.exited).code, 137);
	assert.equal((await front.event("turn_completed")).payload.cancelledBy, "exit");
	const { payload } = await front.event("agent_exited");
	assert.deepEqual([payload.signal, payload.reason, payload.failedRequests], [9, "crash", 1]);
}));

test("a permission request is shown, not to be answered, until the editor answers it", () => withEditor(async (front, editor) => {
	const turn = editor.prompt("permission 70000");
	const asked = await editor.wait((message) => message.method === "session/request_permission");
	const shown = await front.event("acp_read", (payload, event) => event.authorization);
	assert.equal(shown.authorization.actionable, false);
	assert.equal(shown.payload.method, "session/request_permission");
	const body = { epoch: front.epoch, seq: shown.seq };
	assert.ok(shown.trimmed > 0);
	assert.equal((await front.ask("fetch_body", body)).status, "ok");
	await front.event("body_part", (payload) => payload.part === payload.parts);
	const whole = JSON.parse(front.ofKind("body_part").map(({ payload }) => payload.text).join(""));
	assert.deepEqual(whole.payload, asked);
	for (const [type, members] of [["permission_decision", { requestNonce: shown.authorization.requestNonce, optionId: "ok" }], ["prompt", { content: [{ type: "text", text: "x" }] }], ["cancel_turn", {}], ["set_mode", { modeId: "code" }]])
		assert.equal((await front.ask(type, { channelId: shown.channelId, ...members })).status, "unsupported", type);
	assert.equal((await front.ask("feed_sync", { observer: "00c0ffee", want: [] })).status, "ok");
	const { payload: state } = await front.event("feed_state");
	assert.equal(state.pending[0].requestNonce, shown.authorization.requestNonce);
	assert.deepEqual([state.turns.length, state.slots[0].state, state.control], [1, "ready", "none"]);
	assert.ok(state.channels.some(({ id, name }) => id === shown.channelId && name === "api-server"));
	editor.write({ id: asked.id, result: { outcome: { outcome: "selected", optionId: "no" } } });
	await turn;
	const answer = await front.event("acp_write", (payload, event) => event.authorization);
	assert.deepEqual(answer.authorization, { requestNonce: shown.authorization.requestNonce, actionable: false, reason: "editor" });
	assert.equal(answer.payload.result.outcome.optionId, "no");
}));

test("a cancelled turn's permission ends as cancelled", () => withEditor(async (front, editor) => {
	const turn = editor.prompt("permission");
	const asked = await editor.wait((message) => message.method === "session/request_permission");
	editor.write({ method: "session/cancel", params: { sessionId: editor.session } });
	editor.write({ id: asked.id, result: { outcome: { outcome: "cancelled" } } });
	assert.equal((await turn).stopReason, "cancelled");
	assert.equal((await front.event("acp_write", (payload, event) => event.authorization)).authorization.reason, "cancelled");
	assert.equal((await front.event("turn_completed")).payload.stopReason, "cancelled");
}));

test("the watcher killed: the editor notices nothing", () => withEditor(async (front, editor) => {
	process.kill(front.watcher, "SIGKILL");
	assert.equal((await editor.prompt("markers 200")).stopReason, "end_turn");
	assert.ok(String(front.stdout).includes("[marker 199]"));
	front.child.stdin.end();
	assert.deepEqual(await front.exited, { code: 0, signal: null });
}));

test("the watcher stopped: nothing waits for it, and the feed says what it missed", () => withEditor(async (front, editor) => {
	await front.event("session_resolved");
	const { watcher } = front;
	process.kill(watcher, "SIGSTOP");
	assert.equal((await editor.prompt("heavy 10000 900")).stopReason, "end_turn");
	process.kill(watcher, "SIGCONT");
	const { payload } = await front.event("observer_telemetry_gap", (gap) => gap.reasonCounts.mirror_full > 0);
	assert.ok(payload.droppedEvents > 100, String(payload.droppedEvents));
	const lost = () => front.ofKind("observer_telemetry_gap").reduce((sum, gap) => sum + gap.payload.droppedEvents, 0);
	const seen = () => front.ofKind("acp_read").reduce((sum, { merged, payload: line }) => sum + (line.params?.update ? merged ?? 1 : 0), 0);
	await front.when(() => lost() + seen() === 901, "count of 900 updates and the answer, seen or told as lost");
	// The turn whose answer was lost is over when the next one begins.
	await editor.prompt("say again");
	const first = front.ofKind("turn_started")[0];
	const second = await front.event("turn_started", ({ text }) => text === "say again");
	await front.event("turn_completed", (done) => done.promptId === second.payload.promptId && done.stopReason === "end_turn");
	assert.equal(front.ofKind("turn_completed")[0].payload.promptId, first.payload.promptId);
}));

test("an agent that is gone does not wait for the watcher", () => withEditor(async (front, editor) => {
	const { watcher } = front;
	await editor.prompt("say x");
	process.kill(watcher, "SIGSTOP");
	front.child.stdin.end();
	assert.deepEqual(await front.exited, { code: 0, signal: null });
	process.kill(watcher, "SIGCONT");
}));

test("secrets of an editor's servers stay out of the feed", () => withEditor(async (front, editor) => {
	await editor.request("session/new", { cwd: "/x", mcpServers: [{ name: "s", command: "c", args: [], env: [{ name: "TOKEN", value: "hunter2" }] }] });
	const event = await front.event("acp_write", (payload) => payload.params?.mcpServers?.length);
	assert.equal(event.redacted, true);
	assert.equal(JSON.stringify(front.events).includes("hunter2"), false);
}));
