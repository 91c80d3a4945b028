// A harness under test with an independent other end: a small relay that knows NIP-01 and NIP-42
// and nothing of frames, and the owner, who opens and seals with nostr-tools.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { matchFilter } from "nostr-tools/filter";
import { verifyEvent } from "nostr-tools/pure";
import { WebSocketServer } from "ws";
import { bytesToHex, control, makeKey, now, open, seal, sign } from "./keys.mjs";
import { logged, perchBin } from "./perch.mjs";
import { TIMEOUT_MS } from "./timeout.mjs";

export const scriptedAgent = [process.execPath, fileURLToPath(new URL("acp-agent.mjs", import.meta.url))];

/** Things that arrive one by one and are waited for by what they are. */
class Log {
	all = [];
	#waiting = new Set();

	push(item) {
		this.all.push(item);
		for (const wait of [...this.#waiting])
			wait();
	}

	/** The first item from index `from` on that `matches`. */
	async wait(matches, what, from = 0) {
		let next = from; // what was looked at is not looked at again: there may be 40,000
		const find = () => {
			while (next < this.all.length) {
				const item = this.all[next++];
				if (matches(item))
					return item;
			}
			return undefined;
		};
		return find() ?? new Promise((resolve, reject) => {
			const timer = setTimeout(() => {
				this.#waiting.delete(look);
				reject(new Error(`no ${what}; came: ${JSON.stringify(this.all.slice(-40)).slice(0, 6000)}`));
			}, TIMEOUT_MS);
			const look = () => {
				const found = find();
				if (!found)
					return;
				clearTimeout(timer);
				this.#waiting.delete(look);
				resolve(found);
			};
			this.#waiting.add(look);
		});
	}
}

/** A relay for one test; `log` holds every event that was published. */
export class SmallRelay {
	log = new Log();
	/** What NIP-11 says, and whether an event is taken: both are a test's to replace. */
	document = { name: "small", supported_nips: [1, 11, 42], limitation: { auth_required: true } };
	verdict = () => [true, ""];
	#subscriptions = new Map(); // socket → Map(id → filters)

	static async start() {
		const relay = new this();
		relay.http = createServer((request, response) => {
			response.setHeader("Content-Type", "application/nostr+json");
			response.end(JSON.stringify(relay.document));
		});
		relay.sockets = new WebSocketServer({ server: relay.http });
		relay.sockets.on("connection", (socket) => relay.#serve(socket));
		relay.http.listen(0, "127.0.0.1");
		await once(relay.http, "listening");
		relay.url = `ws://127.0.0.1:${relay.http.address().port}`;
		return relay;
	}

	#serve(socket) {
		const challenge = randomUUID(), filters = new Map();
		const send = (...message) => socket.send(JSON.stringify(message));
		this.#subscriptions.set(socket, filters);
		socket.on("close", () => this.#subscriptions.delete(socket));
		send("AUTH", challenge);
		socket.on("message", (data) => {
			const [verb, first, ...rest] = JSON.parse(String(data));
			if (verb === "AUTH") {
				const said = Object.fromEntries(first.tags.map(([name, value]) => [name, value]));
				assert.ok(verifyEvent(first) && first.kind === 22242 && said.challenge === challenge);
				socket.authenticated = first.pubkey;
				send("OK", first.id, true, "");
			} else if (verb === "EVENT") {
				assert.ok(verifyEvent(first), "a valid signature");
				assert.equal(first.pubkey, socket.authenticated);
				const [taken, words] = this.verdict(first, String(data));
				send("OK", first.id, taken, words);
				if (!taken)
					return;
				this.deliver(first);
				this.log.push(first);
			} else if (verb === "REQ") {
				filters.set(first, rest);
				send("EOSE", first);
				this.log.push({ subscribed: rest });
			} else if (verb === "CLOSE") {
				filters.delete(first);
			}
		});
	}

	deliver(event) {
		for (const [socket, filters] of this.#subscriptions) {
			for (const [id, list] of filters) {
				if (list.some((filter) => matchFilter(filter, event)))
					socket.send(JSON.stringify(["EVENT", id, event]));
			}
		}
	}

	/** Whatever they asked for, under the first name that each gave. */
	deliverToAll(event) {
		for (const [socket, filters] of this.#subscriptions)
			for (const id of [...filters.keys()].slice(0, 1))
				socket.send(JSON.stringify(["EVENT", id, event]));
	}

	/** Until all is read that a client which has ended had sent: its end may be seen before its last words. */
	async heardOut(pub) {
		await Promise.all([...this.sockets.clients].filter(({ authenticated }) => pub && authenticated === pub)
			.map((socket) => new Promise((resolve) => socket.once("close", resolve))));
	}

	/** Serves nobody any more. Its port stays its own, else it might be that of another test's relay next. */
	goAway() {
		this.http.on("connection", (socket) => socket.destroy());
		for (const socket of this.sockets.clients)
			socket.terminate();
	}

	async stop() {
		for (const socket of this.sockets.clients)
			socket.terminate();
		this.http.close();
		await once(this.http, "close");
	}
}

/**
 * A running `perch agent` and its owner. `events` are what the owner decrypted, flattened; every
 * wait looks at all that came so far unless `after` says from where on.
 */
export class Harness {
	events = new Log();
	frames = new Log(); // the plaintexts
	stderr = "";
	owner = makeKey();
	#seen = new Set(); // frames

	static async start(args = [], options = {}) {
		const harness = new Harness();
		await harness.#start(args, options);
		return harness;
	}

	async #start(args, { command = scriptedAgent, agentEnv = {}, env = {}, ownerHere = true, ready = true, relay, again, inside = [] } = {}) {
		this.relay = relay ?? again?.relay ?? await SmallRelay.start();
		this.home = again?.home ?? mkdtempSync(join(tmpdir(), "perch-agent-"));
		this.work = join(this.home, "work");
		if (again) // the same agent and owner, another start
			this.owner = again.owner;
		mkdirSync(this.work, { recursive: true });
		mkdirSync(join(this.home, "keys"), { mode: 0o700, recursive: true });
		if (ownerHere)
			writeFileSync(join(this.home, "keys/owner"), bytesToHex(this.owner.secret) + "\n", { mode: 0o600 });
		this.#collect();
		this.args = ["agent", "--relay", this.relay.url, "--name", "tested", "--channel", "main", "--cwd", this.work,
			"--tick-ms", "40", "--ready-fd", "3", "--control", "full",
			...Object.entries(agentEnv).flatMap(([name, value]) => ["--env", `${name}=${value}`]),
			...args, "--", ...command];
		this.env = { ...process.env, PERCH_HOME: this.home, XDG_CONFIG_HOME: this.home, PERCH_SECRET: "never shown", ...env };
		const [program, ...first] = [...inside, perchBin]; // a command that runs another, or nothing
		this.child = spawn(program, [...first, ...this.args], { env: this.env, stdio: ["pipe", "pipe", "pipe", "pipe"] });
		this.child.stderr.setEncoding("utf8").on("data", (piece) => (this.stderr += piece));
		this.exited = once(this.child, "close").then(async ([code, signal]) => {
			this.status = { code, signal };
			await this.relay.heardOut(this.agentPub);
			return this.status;
		});
		if (ready && !await Promise.race([once(this.child.stdio[3], "data"), this.exited.then(() => false)]))
			throw new Error(`the harness ended: ${this.stderr}`);
		if (ready)
			await this.event("session_resolved");
	}

	/** Opens every frame as it is published. */
	#collect() {
		const push = this.relay.log.push.bind(this.relay.log);
		this.relay.log.push = (item) => {
			if (!this.hasLeft && item.kind === 24200 && item.tags.some(([name, value]) => name === "frame" && value === "telemetry")) {
				const plain = JSON.parse(open(this.owner, item));
				this.agentPub = item.pubkey;
				if (!plain.replayed) // else perhaps of an earlier start
					this.epoch = plain.epoch;
				this.frames.push(plain);
				const key = `${plain.epoch}/${plain.frame}`;
				const isNew = !this.#seen.has(key); // a silent harness sends its newest frame again
				this.#seen.add(key);
				for (const event of !isNew ? [] : plain.kind === "batch" ? plain.payload.events : [plain])
					this.events.push(event);
			}
			push(item);
		};
	}

	get mark() {
		return this.events.all.length;
	}

	/** The first event of a kind for which `matches(payload, event)` holds. */
	event(kind, matches = () => true, after = 0) {
		return this.events.wait((event) => event.kind === kind && matches(event.payload, event), kind, after);
	}

	ofKind(kind) {
		return this.events.all.filter((event) => event.kind === kind);
	}

	/** All text that the agent said, joined. */
	said(type = "agent_message_chunk") {
		return this.ofKind("acp_read").map(({ payload }) => payload.params?.update)
			.filter((update) => update?.sessionUpdate === type).map((update) => update.content.text).join("");
	}

	async untilSaid(text) {
		await this.events.wait(() => this.said().includes(text), `"${text}" said`);
	}

	get channel() {
		return this.ofKind("harness_started")[0].payload.channels[0].id;
	}

	/** Publishes a control as the owner; `raw` members replace what is sent. */
	publish(members, { key = this.owner, created_at } = {}) {
		this.relay.deliver(control(key, this.agentPub, typeof members === "string" ? members : JSON.stringify(members), created_at ? { created_at } : {}));
	}

	/** Sends a control of ours and returns its control_result. */
	async ask(type, members = {}) {
		const requestId = randomUUID();
		this.publish({ type, requestId, epoch: this.epoch, expires: now() + 60, channelId: this.channel, ...members });
		return (await this.event("control_result", (payload) => payload.requestId === requestId)).payload;
	}

	prompt(text, members = {}) {
		return this.ask("prompt", { content: [{ type: "text", text }], ...members });
	}

	/** Prompts and returns the payload of that turn's turn_completed. */
	async turn(text) {
		const from = this.mark;
		await this.prompt(text);
		return this.completed(from);
	}

	async completed(from = 0) {
		return (await this.event("turn_completed", () => true, from)).payload;
	}

	/** The permission request that waits, as an event. */
	permission(from = 0) {
		return this.events.wait((event) => event.kind === "acp_read" && event.authorization, "permission request", from);
	}

	/** The answer to it: an acp_write with its nonce. */
	answer(nonce) {
		return this.events.wait((event) => event.kind === "acp_write" && event.authorization?.requestNonce === nonce, "permission answer");
	}

	/** A line like this on its stderr, which comes by another way than its events. */
	logged(words) {
		return logged({ child: this.child, stderr: () => this.stderr }, words);
	}

	/** Ends it, but neither its relay nor its home: for another start (`again`). */
	async leave(signal = "SIGTERM") {
		if (!this.status)
			this.child.kill(signal);
		const status = await this.exited;
		this.hasLeft = true;
		assert.doesNotMatch(this.stderr, /Sanitizer|runtime error/, "no sanitizer report");
		return status;
	}

	async stop(signal = "SIGTERM") {
		if (!this.status)
			this.child.kill(signal);
		const status = await this.exited;
		await this.relay.stop();
		rmSync(this.home, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
		assert.doesNotMatch(this.stderr, /Sanitizer|runtime error/, "no sanitizer report");
		return status;
	}
}

/** Runs one test with a harness of its own; `start` is what Harness.start() takes. */
export async function withHarness(run, ...start) {
	const harness = await Harness.start(...start);
	try {
		await run(harness);
	} finally {
		await harness.stop();
	}
}

export { now, seal, sign };
