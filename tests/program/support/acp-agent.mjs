// A scripted ACP agent on the official SDK: the text of a prompt is its script, one directive a
// line. What a well-behaved agent cannot do, it does behind the SDK's back, with raw bytes.
//
// Environment: AGENT_AUTH=1 refuses session/new with -32000; AGENT_VERSION=N answers initialize
// with that protocolVersion; AGENT_EARLY=1 sends an update before the answer to session/new;
// AGENT_CRASH=N exits with N before it answers anything; AGENT_STAY=1 ignores the end of stdin.
// AGENT_SESSIONS=load,resume,list,close offers these; AGENT_STORE=FILE keeps sessions for the next
// process, AGENT_KNOWS=ID,… knows these from the start; AGENT_LOAD_CRASHES=1 and AGENT_CLOSE_HANGS=1
// do so; AGENT_STUBBORN=1 agrees to a change of model and changes nothing; AGENT_ONLY=2 refuses other
// protocol versions as agents of version 2 do.
import * as acp from "@agentclientprotocol/sdk";
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { closeSync, existsSync, readFileSync, readdirSync, readlinkSync, writeFileSync, writeSync } from "node:fs";
import { Writable } from "node:stream";

const env = process.env;
if (env.AGENT_CRASH)
	process.exit(Number(env.AGENT_CRASH));

const offers = (env.AGENT_SESSIONS ?? "").split(",");
const sessions = new Map(); // id → {abort}
const known = new Set(env.AGENT_KNOWS?.split(",") ?? []); // sessions that are not open here
if (env.AGENT_STORE && existsSync(env.AGENT_STORE))
	JSON.parse(readFileSync(env.AGENT_STORE, "utf8")).forEach((id) => known.add(id));

function openSession(id) {
	const session = { id, model: "small" };
	sessions.set(id, session);
	known.add(id);
	if (env.AGENT_STORE)
		writeFileSync(env.AGENT_STORE, JSON.stringify([...known]));
	return session;
}
let calls = 0, turns = 0;

/** Writes all, behind the SDK's back; the pipe may be full and does not block. */
function write(fd, data) {
	const bytes = Buffer.from(data);
	for (let at = 0; at < bytes.length;) {
		try {
			at += writeSync(fd, bytes, at);
		} catch (error) {
			if (error.code !== "EAGAIN")
				throw error;
			Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
		}
	}
}

const raw = (text) => write(1, text);
const rawMessage = (message) => raw(JSON.stringify({ jsonrpc: "2.0", ...message }) + "\n");
const rawUpdate = (sessionId, update) => rawMessage({ method: "session/update", params: { sessionId, update } });
const chunk = (text) => ({ sessionUpdate: "agent_message_chunk", content: { type: "text", text } });

class Aborted extends Error {}

function sleep(ms, signal) {
	return new Promise((resolve, reject) => {
		const timer = setTimeout(resolve, ms);
		signal?.addEventListener("abort", () => {
			clearTimeout(timer);
			reject(new Aborted());
		}, { once: true });
	});
}

const permissionOptions = [
	{ optionId: "ok-all", name: "Always allow", kind: "allow_always" },
	{ optionId: "ok", name: "Allow once", kind: "allow_once" },
	{ optionId: "no", name: "Reject", kind: "reject_once" },
	{ optionId: "never", name: "Always reject", kind: "reject_always" },
];

const permissionParams = (sessionId, toolCallId, options = permissionOptions, extra = {}) =>
	({ sessionId, toolCall: { toolCallId, title: "Remove file", kind: "delete", status: "pending", ...extra }, options });

/** What each directive does: (turn, words) → nothing, or the stop reason. */
const directives = {
	say: (t, words) => t.say(words.join(" ")),
	think: (t, words) => t.update({ sessionUpdate: "agent_thought_chunk", content: { type: "text", text: words.join(" ") } }),
	async markers(t, [count, ms, bytes = 0]) { // each with so much noise behind it
		for (let i = 0; i < Number(count); i++) {
			await t.say(`[marker ${i}]${randomBytes(Number(bytes) / 2).toString("hex")}`);
			if (ms)
				await sleep(Number(ms), t.signal);
		}
	},
	async noise(t, [count, bytes]) { // that does not compress
		for (let i = 0; i < Number(count); i++)
			await t.say(`noise ${i} ${randomBytes(Number(bytes)).toString("hex").slice(0, Number(bytes))} `);
	},
	async heavy(t, [bytes, count = 1]) {
		for (let i = 0; i < Number(count); i++)
			await t.say(`heavy ${i} ` + "é✓x".repeat(Math.ceil(Number(bytes) / 6)));
	},
	plan: (t) => t.update({
		sessionUpdate: "plan",
		entries: [
			{ content: "step one", priority: "high", status: "completed" },
			{ content: "step two", priority: "low", status: "in_progress" },
		],
	}),
	async diff(t) {
		const toolCallId = t.callId();
		await t.update({ sessionUpdate: "tool_call", toolCallId, title: "Edit file", kind: "edit", status: "pending", locations: [{ path: "/project/a.c", line: 3 }] });
		await t.update({ sessionUpdate: "tool_call_update", toolCallId, status: "in_progress" });
		await t.update({
			sessionUpdate: "tool_call_update", toolCallId, status: "completed",
			content: [{ type: "diff", path: "/project/a.c", oldText: "int a;\n", newText: "int a;\nint b;\n" }],
		});
	},
	tool: (t) => t.update({ sessionUpdate: "tool_call", toolCallId: t.callId(), title: "Runs on", kind: "execute", status: "in_progress" }),
	permission: (t, [size]) => t.permission(undefined, size ? { rawInput: { text: "x".repeat(Number(size)) } } : {}),
	oneoption: (t) => t.permission([{ optionId: "go", name: "Go", kind: "allow_always" }]),
	twoallow: (t) => t.permission([
		{ optionId: "a", name: "This way", kind: "allow_once" }, { optionId: "b", name: "That way", kind: "allow_once" },
		{ optionId: "no", name: "Reject", kind: "reject_once" }]),
	twoperms: (t) => Promise.all([t.permission(), t.permission()]),
	manyperms: (t, [count]) => Promise.all(Array.from({ length: Number(count) }, () => t.permission())),
	usage: (t, [used]) => t.update({ sessionUpdate: "usage_update", used: Number(used), size: 200000 }),
	title: (t, words) => t.update({ sessionUpdate: "session_info_update", title: words.join(" ") }),
	mode: (t, [id]) => t.update({ sessionUpdate: "current_mode_update", currentModeId: id }),
	async ext(t) {
		await t.client.notify("_example.com/status", { ok: true });
		try {
			await t.client.request("_example.com/ask", { q: 1 });
		} catch (error) {
			await t.say(`refused ${error.code}`);
		}
	},
	model: (t) => t.say(`model ${t.session.model}`),
	sleep: (t, [ms]) => sleep(Number(ms), t.signal),
	stall: (t) => sleep(1e9, t.signal), // until it is cancelled
	deaf: () => new Promise(() => setInterval(() => {}, 1e6)), // not even then
	errcancel: (t, [code = -32603]) => sleep(1e9, t.signal).catch(() => {
		throw new acp.RequestError(Number(code), "interrupted");
	}),
	endcancel: (t) => sleep(1e9, t.signal).catch(() => "end_turn"),
	fail: () => {
		throw new acp.RequestError(-32603, "the model is on strike", { retry: false });
	},
	stderr(t, [count]) {
		for (let i = 0; i < Number(count); i++)
			write(2, `log line ${i} ${".".repeat(80)}\n`);
	},
	commands: (t) => t.update({ sessionUpdate: "available_commands_update", availableCommands: [{ name: "test", description: "Run tests", input: { hint: "which" } }] }),
	read: (t, [path]) => t.refused("fs/read_text_file", { path, line: 1, limit: 2 }),
	write: (t, [path]) => t.refused("fs/write_text_file", { path, content: "x" }),
	term: (t, words) => t.refused("terminal/create", { command: "/bin/sh", args: ["-c", words.join(" ")] }),
	termkill: (t) => t.refused("terminal/kill", { terminalId: "t" }),
	async elicit(t) {
		const answer = await t.client.request("elicitation/create", {
			sessionId: t.id, mode: "form", message: "Which branch?", requestedSchema: { type: "object", properties: { branch: { type: "string" } } },
		});
		await t.say(`elicited ${JSON.stringify(answer)}`);
	},
	async withdraw(t) { // asks, and takes it back at once; twice, as real agents let it cross the answer
		rawMessage({ id: 903, method: "session/request_permission", params: permissionParams(t.id, "withdrawn") });
		for (let i = 0; i < 2; i++)
			rawMessage({ method: "$/cancel_request", params: { requestId: 903 } });
		return t.rawAnswer(903);
	},
	kind(t, [kind, later]) { // a permission for a call of that kind; "later": said by the tool_call only
		return t.permission(undefined, { kind: later ? undefined : kind }, kind);
	},
	async unannounced(t) { // an update, and then a permission request, for a call that was never announced
		await t.update({ sessionUpdate: "tool_call_update", toolCallId: "never-seen", status: "in_progress", title: "From nowhere" });
		rawMessage({ id: 904, method: "session/request_permission", params: permissionParams(t.id, "never-seen-either") });
		return t.rawAnswer(904);
	},
	osc(t) { // a terminal's title in front of a message, as some launchers write it
		raw("\x1b]0;agent\x07\x1b[2K" + JSON.stringify({ jsonrpc: "2.0", method: "session/update", params: { sessionId: t.id, update: chunk("behind a title") } }) + "\n");
	},
	echo: (t) => raw(`DEBUG sent {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"${t.id}","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"from a log"}}}}\n`),
	pretty: () => raw(JSON.stringify({ jsonrpc: "2.0", id: 0, result: { a: [1, 2] } }, null, 2) + "\n"),
	nullid: () => rawMessage({ id: null, method: "_example.com/null", params: {} }),
	bigid: () => raw('{"jsonrpc":"2.0","id":9007199254740993,"method":"_example.com/big","params":{}}\n'),
	nullerror: () => rawMessage({ id: null, error: { code: -32700, message: "parse error" } }),
	cancelrequest: () => rawMessage({ method: "session/cancel", id: 905, params: {} }),
	twostops: (t) => { // a second answer to the same prompt, later
		setTimeout(() => rawMessage({ id: t.promptId, result: { stopReason: "cancelled" } }), 50);
	},
	slowread(t, [ms]) { // from now on it does not read its stdin for a while
		process.stdin.pause();
		setTimeout(() => process.stdin.resume(), Number(ms));
	},
	async flood(t, [count, bytes]) { // a tool call and a text of so many bytes, in turn: none joins another
		for (let i = 0; i < Number(count); i++) {
			await t.update({ sessionUpdate: "tool_call", toolCallId: t.callId(), title: `Step ${i}`, kind: "read", status: "completed" });
			await t.say(`marker-${i} ${"z".repeat(Number(bytes))}`);
		}
	},
	length: (t, words) => t.say(`length ${words.join(" ").length}`),
	deafflood(t, [count, bytes]) { // asks that often, by ids of so many bytes, and never reads an answer
		process.stdin.pause();
		for (let i = 0; i < Number(count); i++)
			rawMessage({ id: String(i).padStart(Number(bytes), "0"), method: "_example.com/flood", params: {} });
		return new Promise(() => {});
	},
	async await(t, [path]) { // silent until that file is there
		while (!existsSync(path))
			await sleep(20, t.signal);
	},
	touch: (t, [path]) => writeFileSync(path, ""),
	garbage: () => raw("INFO no JSON at all\n"),
	badutf8: () => write(1, Buffer.from([0x7b, 0xff, 0xfe, 0x7d, 0x0a])),
	crlf: (t) => raw(JSON.stringify({ jsonrpc: "2.0", method: "session/update", params: { sessionId: t.id, update: chunk("crlf") } }) + "\r\n"),
	blank: () => raw("\n  \n"),
	mistagged: (t) => rawUpdate(t.id, { type: "agent_message_chunk", content: { type: "text", text: "by another tag" } }),
	unknown: (t) => rawUpdate(t.id, { sessionUpdate: "future_thing", x: [1, { y: null }] }),
	u2028: (t) => rawUpdate(t.id, chunk("one\u2028two\u0085three")),
	surrogate: (t) => raw(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"${t.id}","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"lone \\ud800 end"}}}}\n`),
	async split(t) {
		const bytes = Buffer.from(JSON.stringify({ jsonrpc: "2.0", method: "session/update", params: { sessionId: t.id, update: chunk("split é✓🙂 end") } }) + "\n");
		for (const byte of bytes) {
			write(1, Buffer.from([byte]));
			await sleep(1);
		}
	},
	hugeline(t, [megabytes]) {
		const text = "y".repeat(1 << 20);
		raw(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"${t.id}","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"`);
		for (let i = 0; i < Number(megabytes); i++)
			raw(text);
		raw('"}}}}\n');
	},
	batch: () => raw('[{"jsonrpc":"2.0","id":7,"method":"_x"},{"jsonrpc":"2.0","id":8,"method":"_y"}]\n'),
	scalar: () => raw("42\n"),
	stray: () => rawMessage({ id: 4711, result: {} }),
	strid: (t) => rawMessage({ id: "a\"b", method: "_example.com/what", params: {} }),
	dupid(t) {
		rawMessage({ id: 900, method: "session/request_permission", params: permissionParams(t.id, "dup-1") });
		rawMessage({ id: 900, method: "session/request_permission", params: permissionParams(t.id, "dup-2") });
		return t.rawAnswer(900);
	},
	brokenpermission(t) { // a lone surrogate, and bytes that are no UTF-8, in its title
		const params = permissionParams(t.id, "broken", undefined, { title: "TITLE" });
		const [before, after] = JSON.stringify({ jsonrpc: "2.0", id: 902, method: "session/request_permission", params }).split("TITLE");
		write(1, Buffer.concat([Buffer.from(before), Buffer.from([0xff]), Buffer.from("\\ud800" + after + "\n")]));
		return t.rawAnswer(902);
	},
	badpermission(t) {
		rawMessage({ id: 901, method: "session/request_permission", params: { sessionId: t.id, toolCall: { toolCallId: "x" }, options: [] } });
		return t.rawAnswer(901);
	},
	update: (t, [sessionId, text]) => rawUpdate(sessionId, chunk(text)),
	late(t) { // an update after the turn's end
		setTimeout(() => rawUpdate(t.id, chunk("too late")), 100);
	},
	async child(t, [pidFile]) { // a helper in a session of its own, which ignores SIGTERM and outlives its parent
		const helper = spawn("/bin/sh", ["-c", "trap '' TERM HUP; echo $$ > \"$0\".new && mv \"$0\".new \"$0\"; while :; do sleep 1; done", pidFile], { detached: true, stdio: ["ignore", "inherit", "inherit"] });
		await new Promise((resolve) => helper.once("spawn", resolve));
		while (!existsSync(pidFile))
			await sleep(10);
		helper.unref();
	},
	async orphan(t, [pidFile]) { // a helper that nobody is the parent of, as a daemon
		spawn("/bin/sh", ["-c", "setsid sh -c 'echo $$ > \"$0\".new && mv \"$0\".new \"$0\"; while :; do sleep 1; done' \"$0\" </dev/null >/dev/null 2>&1 &", pidFile], { stdio: "ignore" });
		while (!existsSync(pidFile))
			await sleep(10);
	},
	ignoreterm: () => {
		process.on("SIGTERM", () => {});
	},
	async inside(t) { // what it sees of its own situation
		const fds = readdirSync("/proc/self/fd").map((fd) => {
			try {
				return `${fd}:${readlinkSync(`/proc/self/fd/${fd}`)}`;
			} catch {
				return `${fd}:gone`;
			}
		}).filter((entry) => /^\d+:(pipe|socket)/.test(entry));
		writeFileSync("/dev/stderr", "stderr can be opened\n");
		await t.say("inside " + JSON.stringify({ env: Object.keys(env), cwd: process.cwd(), pipes: fds.filter((fd) => Number(fd.split(":")[0]) < 3), sockets: fds.filter((fd) => fd.includes("socket")) }));
	},
	crash(t, [signal = "SIGKILL"]) {
		raw('{"jsonrpc":"2.0","method":"session/upd');
		process.kill(process.pid, signal);
		return new Promise(() => {});
	},
	exit: (t, [code = 0]) => process.exit(Number(code)),
	closestdout() {
		closeSync(1);
		return new Promise(() => setInterval(() => {}, 1e6));
	},
	stop: (t, [reason]) => reason,
};

/** One turn: its session, its ways to speak. */
class Turn {
	constructor(ctx, session, signal) {
		Object.assign(this, { client: ctx.client, session, signal, id: session.id, number: ++turns, promptId: promptIds.get(session.id) });
	}

	update(update) {
		return this.client.notify("session/update", { sessionId: this.id, update });
	}

	say(text) {
		return this.update({ sessionUpdate: "agent_message_chunk", messageId: `m${this.number}`, content: { type: "text", text } });
	}

	callId() {
		return `call_${++calls}`;
	}

	/** A request that no client without that capability may be sent. */
	async refused(method, params) {
		try {
			await this.client.request(method, { sessionId: this.id, ...params });
		} catch (error) {
			await this.say(`refused ${error.code};`);
		}
	}

	async permission(options, extra, kind = "delete") {
		const toolCallId = this.callId();
		await this.update({ sessionUpdate: "tool_call", toolCallId, title: "Remove file", kind, status: "pending" });
		const { outcome } = await this.client.request("session/request_permission", permissionParams(this.id, toolCallId, options, extra));
		if (outcome.outcome === "cancelled")
			throw new Aborted();
		await this.update({
			sessionUpdate: "tool_call_update", toolCallId, rawOutput: { option: outcome.optionId },
			status: /^(ok|go|a$|b$)/.test(outcome.optionId) ? "completed" : "failed",
		});
		await this.say(`chosen ${outcome.optionId}`);
	}

	/** The answer to a request that the SDK knows nothing of. */
	async rawAnswer(id) {
		const answer = await new Promise((resolve) => rawAnswers.set(id, resolve));
		await this.say(`answer ${JSON.stringify(answer)}`);
	}

	async run(script) {
		for (const line of script.split("\n")) {
			const [name, ...words] = line.trim().split(/\s+/);
			if (!name)
				continue;
			if (this.signal.aborted)
				throw new Aborted();
			const stop = await (directives[name] ?? (() => this.say(`no directive ${name}`)))(this, words);
			if (typeof stop === "string")
				return stop;
		}
		return "end_turn";
	}
}

// Answers to raw requests are taken off stdin before the SDK sees them.
const rawAnswers = new Map(), promptIds = new Map();
const input = new ReadableStream({
	start(controller) {
		let rest = Buffer.alloc(0);
		process.stdin.on("data", (data) => {
			rest = Buffer.concat([rest, data]);
			for (let end; (end = rest.indexOf(10)) >= 0; rest = rest.subarray(end + 1)) {
				const line = rest.subarray(0, end + 1);
				const message = JSON.parse(line);
				if (message.method === "session/prompt")
					promptIds.set(message.params.sessionId, message.id);
				const resolve = !message.method && rawAnswers.get(message.id);
				if (resolve)
					resolve(message.result ?? message.error);
				else
					controller.enqueue(line);
			}
		});
		process.stdin.on("end", () => {
			if (env.AGENT_STAY)
				setInterval(() => {}, 1e6);
			else
				process.exit(0);
		});
	},
});

const config = (session) => [{
	id: "the-model", name: "Model", category: "model", type: "select", currentValue: session.model,
	options: [{ value: "small", name: "Small" }, { value: "large", name: "Large" }],
}];

acp.agent({ name: "scripted" })
	.onRequest("initialize", async () => (env.AGENT_ONLY ? Promise.reject(new acp.RequestError(-32022, "unsupported protocol version", { requested: 1, supported: [Number(env.AGENT_ONLY)] })) : {
		protocolVersion: Number(env.AGENT_VERSION ?? 1),
		agentInfo: { name: "scripted", title: "Scripted agent", version: "1.0.0" },
		agentCapabilities: {
			loadSession: offers.includes("load"), promptCapabilities: { image: true },
			sessionCapabilities: Object.fromEntries(["resume", "list", "close"].filter((name) => offers.includes(name)).map((name) => [name, {}])),
		},
		authMethods: env.AGENT_AUTH ? [{ id: "browser", name: "Log in with a browser" }] : [],
	}))
	.onRequest("session/new", async () => {
		if (env.AGENT_AUTH)
			throw new acp.RequestError(-32000, "please log in to the scripted cloud");
		const session = openSession(randomBytes(8).toString("hex"));
		if (env.AGENT_EARLY)
			rawUpdate(session.id, { sessionUpdate: "available_commands_update", availableCommands: [{ name: "early", description: "sent too early" }] });
		return {
			sessionId: session.id,
			modes: { currentModeId: "ask", availableModes: [{ id: "ask", name: "Ask" }, { id: "code", name: "Code" }] },
			configOptions: config(session),
		};
	})
	.onRequest("session/load", async ({ params: { sessionId } }) => {
		if (env.AGENT_LOAD_CRASHES)
			process.exit(5);
		if (!known.has(sessionId))
			throw new acp.RequestError(-32002, "no such session");
		openSession(sessionId);
		for (const update of [
			{ sessionUpdate: "user_message_chunk", content: { type: "text", text: "earlier question" } },
			chunk("earlier answer"),
			{ sessionUpdate: "session_info_update", title: "An earlier session" },
		])
			rawUpdate(sessionId, update);
		return { configOptions: config(sessions.get(sessionId)) };
	})
	.onRequest("session/resume", async ({ params: { sessionId } }) => {
		if (!known.has(sessionId))
			throw new acp.RequestError(-32002, "no such session");
		openSession(sessionId);
		return {};
	})
	.onRequest("session/list", async () => ({
		sessions: [...known].map((sessionId) => ({
			sessionId, cwd: sessionId === "stranger" ? "/elsewhere" : process.cwd(),
			updatedAt: { older: "2026-01-01T00:00:00Z", newer: "2026-02-01T00:00:00Z", stranger: "2026-03-01T00:00:00Z" }[sessionId],
		})),
	}))
	.onRequest("session/close", async () => (env.AGENT_CLOSE_HANGS ? new Promise(() => {}) : {}))
	.onRequest("session/set_mode", async ({ params }) => {
		if (params.modeId === "code")
			return {};
		throw new acp.RequestError(-32602, "not now");
	})
	.onRequest("session/set_config_option", async ({ params }) => {
		const session = sessions.get(params.sessionId);
		if (!env.AGENT_STUBBORN)
			session.model = params.value;
		return { configOptions: config(session) };
	})
	.onRequest("session/prompt", async (ctx) => {
		const session = sessions.get(ctx.params.sessionId);
		if (!session)
			throw new acp.RequestError(-32002, "no such session");
		const { signal } = session.abort = new AbortController();
		const turn = new Turn(ctx, session, signal);
		try {
			return { stopReason: await turn.run(ctx.params.prompt.map((block) => block.text ?? "").join("\n")), usage: { inputTokens: 12, outputTokens: 34, totalTokens: 46 } };
		} catch (error) {
			if (error instanceof Aborted)
				return { stopReason: "cancelled" };
			throw error;
		}
	})
	.onNotification("session/cancel", async ({ params }) => sessions.get(params.sessionId)?.abort?.abort())
	.connect(acp.ndJsonStream(Writable.toWeb(process.stdout), input));
