// An observer under test, and agents and relays that are not ours to talk to it.
import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import http from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { WebSocketServer } from "ws";
import { bytesToHex, control, makeAgent, makeKey, now, open, telemetry } from "./keys.mjs";
import { Peer } from "./peer.mjs";
import { logged, spawnPerch } from "./perch.mjs";
import { TIMEOUT_MS } from "./timeout.mjs";

/** A folder with an owner key in it, kept until `remove()`. */
export function makeHome(owner = makeKey()) {
	const dir = mkdtempSync(join(tmpdir(), "perch-home-"));
	mkdirSync(join(dir, "keys"), { mode: 0o700 });
	writeFileSync(join(dir, "keys", "owner"), `${bytesToHex(owner.secret)}\n`, { mode: 0o600 });
	return { dir, owner, remove: () => rmSync(dir, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 }) };
}

export const envOf = (home) =>
	({ PERCH_HOME: home.dir, XDG_CONFIG_HOME: home.dir, XDG_RUNTIME_DIR: "" });

/** A socket's end, also one by a reset, which once() would throw. */
export const closed = (socket) => socket.closed ? Promise.resolve() : new Promise((resolve) => socket.once("close", resolve));

/** One HTTP request; `options` as of http.request. */
export async function request(options, body) {
	const req = http.request(options);
	req.end(body);
	const [res] = await once(req, "response");
	const pieces = [];
	for await (const piece of res)
		pieces.push(piece);
	const bytes = Buffer.concat(pieces);
	const text = bytes.toString();
	return {
		status: res.statusCode, headers: res.headers, bytes, text, json: () => JSON.parse(text),
	};
}

/** A page: messages of the stream, each as it comes. Of HTTP/2 both arguments are the stream. */
export class Page {
	messages = [];
	#waiting = [];
	#rest = "";

	constructor(req, res) {
		this.req = req;
		this.res = res;
		res.setEncoding("utf8").on("data", (piece) => {
			const lines = (this.#rest + piece).split("\n");
			this.#rest = lines.pop();
			for (const line of lines.filter(Boolean))
				this.#take(JSON.parse(line));
		});
		res.on("error", () => {});
	}

	#take(message) {
		this.messages.push(message);
		this.#waiting = this.#waiting.filter(({ find, resolve }) => {
			const found = find(message);
			if (found)
				resolve(found);
			return !found;
		});
	}

	/** The first truthy find(message), of those that came and those to come. */
	until(find, what = String(find)) {
		for (const message of this.messages) {
			const found = find(message);
			if (found)
				return Promise.resolve(found);
		}
		return new Promise((resolve, reject) => {
			const timer = setTimeout(() => reject(new Error(`never came: ${what}; got ${
				JSON.stringify(this.messages).slice(0, 4000)}`)), TIMEOUT_MS);
			this.#waiting.push({ find, resolve: (value) => { clearTimeout(timer); resolve(value); } });
		});
	}

	row(matches) {
		return this.until((message) => message.rows?.find(matches), `row ${matches}`);
	}

	close() {
		this.req.destroy();
	}
}

export async function startObserver(relayUrl, home, args = [], env = {}) {
	const process = spawnPerch(["observer", "--relay", relayUrl, "--listen", "127.0.0.1:0",
		"--ready-fd", "3", ...args], { env: { ...envOf(home), ...env } });
	const ready = once(process.child.stdio[3], "data").then(([line]) => String(line).trim());
	const line = await Promise.race([ready, process.exited.then(() => undefined)]);
	if (!line)
		throw new Error(`the observer did not start: ${process.stderr()}`);
	if (args.includes("--metrics")) // where they are comes by another pipe
		await logged(process, /metrics on \S+\s/);
	const [port, token, tlsUrl, fingerprint] = line.split(" ");
	const base = { host: "127.0.0.1", port: Number(port) };
	const authorized = () => ({ authorization: `Bearer ${observer.token}` });
	const observer = {
		...process,
		port: Number(port),
		token,
		tlsUrl,
		fingerprint,
		home,
		/** GET with the token; `options` of http.request are merged in. */
		get: (path, options = {}) =>
			request({ ...base, path, ...options, headers: { ...authorized(), ...options.headers } }),
		post: (body, options = {}) =>
			request({
				...base, method: "POST", path: "/api/control", ...options,
				headers: { ...authorized(), "content-type": "application/json", ...options.headers },
			}, typeof body === "string" ? body : JSON.stringify(body)),
		async page(cursor) {
			const query = cursor ? `?cursor=${encodeURIComponent(cursor)}` : "";
			const req = http.request(
				{ ...base, path: `/api/stream${query}`, headers: authorized() });
			req.on("error", () => {});
			req.end();
			const [res] = await once(req, "response");
			assert.equal(res.statusCode, 200);
			return new Page(req, res);
		},
		async rows(lane, query = "") {
			const answer = await observer.get(
				`/api/rows?lane=${encodeURIComponent(lane)}${query}`);
			assert.equal(answer.status, 200, answer.text);
			return answer.json();
		},
		/** Waits for the relay, and for nothing to be left of earlier stops. */
		async connected() {
			const page = await observer.page();
			await page.until((message) => message.health?.relay.state === "ready");
			page.close();
		},
		async end() {
			const { code } = await process.stop();
			assert.equal(code, 0, process.stderr());
			assert.doesNotMatch(process.stderr(), /Sanitizer|runtime error/);
		},
	};
	return observer;
}

/** Runs a command of ours to its end in the same home. */
export async function run(home, ...args) {
	const process = spawnPerch(args, { env: envOf(home) });
	process.child.stdin.end();
	const { code } = await process.exited;
	assert.doesNotMatch(process.stderr(), /Sanitizer|runtime error/);
	return { code, stdout: process.stdout(), stderr: process.stderr() };
}

let serial = 0;
export const channelId = () =>
	`00000000-0000-4000-8000-${String(++serial).padStart(12, "0")}`;

/** A harness made of nostr-tools: seals what it is told to, opens the owner's controls. */
export class Harness {
	frame = 0;
	seq = 0;
	started = Date.now();

	static async open(relayUrl, owner, { epoch = freshEpoch(), key = makeAgent(owner) } = {}) {
		const harness = new Harness();
		Object.assign(harness, { owner, key, epoch });
		harness.peer = await Peer.as(relayUrl, key);
		await harness.peer.subscribe("controls", { kinds: [24200], "#p": [key.pub] });
		return harness;
	}

	get id() {
		return this.key.pub;
	}

	event(kind, payload, { channel = null, turn = null, ...rest } = {}) {
		return {
			seq: ++this.seq, monotonicMs: Date.now() - this.started,
			timestamp: new Date().toISOString(), kind, agentIndex: 0, channelId: channel,
			sessionId: channel && "s1", turnId: turn, ...rest, payload,
		};
	}

	batch(events) {
		const { payload, authorization, ...header } = events.at(-1);
		return { ...header, kind: "batch", payload: { events } };
	}

	/** The frame's event, not sent. `plain` is without our extra members. */
	seal(plaintext, { plain = false, replayed = false, number, ...options } = {}) {
		const extra = plain ? {} : {
			epoch: this.epoch, frame: number ?? ++this.frame, ...(replayed && { replayed }),
		};
		return telemetry(this.key, this.owner.pub, JSON.stringify({ ...plaintext, ...extra }),
			{ tags: this.key.auth ? [this.key.auth] : [], ...options });
	}

	async send(plaintext, options) {
		const ok = await this.peer.publish(this.seal(plaintext, options));
		assert.equal(ok[2], true, ok[3]);
	}

	started_event(channel, name = "claude") {
		return this.event("harness_started", {
			name, host: "atlas", version: "0.1.0", command: ["x"], mode: "agent",
			control: "full", permissions: "ask", startedAtMs: this.started,
			channels: [{ id: channel, name: "api-server" }],
		});
	}

	/** The next control of that type, opened. */
	async control(type) {
		for (;;) {
			const [, , event] = await this.peer.next("EVENT", "controls");
			const body = JSON.parse(open(this.key, event));
			if (body.type === type)
				return { ...body, id: event.id };
		}
	}

	async answer(body, status, more = {}) {
		await this.send(this.event("control_result", {
			type: body.type, status, requestId: body.requestId, ...more,
		}, { channel: body.channelId ?? null }));
	}

	close() {
		return this.peer.close();
	}
}

export const freshEpoch = (offset = 0) =>
	(now() + offset).toString(16).padStart(8, "0") +
	Math.floor(Math.random() * 0xffffffff).toString(16).padStart(8, "0");

export const chunk = (text) => ({
	jsonrpc: "2.0", method: "session/update",
	params: {
		sessionId: "s1",
		update: { sessionUpdate: "agent_message_chunk", content: { type: "text", text } },
	},
});

export const ask = (command) => ({
	jsonrpc: "2.0", id: 7, method: "session/request_permission",
	params: {
		sessionId: "s1",
		toolCall: { toolCallId: "c1", title: "Build", kind: "execute", rawInput: { command } },
		options: [
			{ optionId: "ok", name: "Allow once", kind: "allow_once" },
			{ optionId: "no", name: "Reject", kind: "reject_once" },
		],
	},
});

/** A relay that sends its one reader whatever a test gives it. */
export async function startHostileRelay() {
	const server = new WebSocketServer({ host: "127.0.0.1", port: 0 });
	await once(server, "listening");
	let reader;
	const subscribed = new Promise((resolve) => {
		server.on("connection", (socket) => {
			socket.on("message", (data) => {
				const message = JSON.parse(String(data));
				if (message[0] === "REQ") {
					socket.send(JSON.stringify(["EOSE", message[1]]));
					reader = (event) =>
						socket.send(JSON.stringify(["EVENT", message[1], event]));
					resolve();
				} else if (message[0] === "EVENT") {
					socket.send(JSON.stringify(["OK", message[1].id, true, ""]));
				}
			});
		});
	});
	return {
		url: `ws://127.0.0.1:${server.address().port}`,
		subscribed,
		deliver: (event) => reader(event),
		close: () => { server.clients.forEach((client) => client.terminate()); server.close(); },
	};
}

export { control, makeAgent, makeKey, now, telemetry };
