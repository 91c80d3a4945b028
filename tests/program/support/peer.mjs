// A bare Nostr client that hides nothing: every message is there to be looked at.
import assert from "node:assert/strict";
import WebSocket from "ws";
import { authEvent } from "./keys.mjs";
import { assertMessage } from "./schemas.mjs";
import { TIMEOUT_MS } from "./timeout.mjs";

export class Peer {
	inbox = [];
	#waiting = [];

	/** Connects; `options` are those of the ws library. */
	static async open(url, options) {
		const peer = new Peer();
		peer.url = url;
		peer.socket = new WebSocket(url, options);
		peer.closed = new Promise((resolve) =>
			peer.socket.on("close", (code, reason) => resolve({ code, reason: String(reason) })));
		peer.socket.on("message", (data) => peer.#receive(JSON.parse(String(data))));
		await new Promise((resolve, reject) => {
			peer.socket.on("open", resolve);
			peer.socket.on("error", reject);
		});
		return peer;
	}

	/** Connects and authenticates every key. */
	static async as(url, ...keys) {
		const peer = await Peer.open(url);
		for (const key of keys)
			await peer.auth(key);
		return peer;
	}

	#receive(message) {
		assertMessage(message);
		const i = this.#waiting.findIndex(({ matches }) => matches(message));
		if (i >= 0)
			this.#waiting.splice(i, 1)[0].resolve(message);
		else
			this.inbox.push(message);
	}

	/** The next message that begins with these elements; earlier others stay in the inbox. */
	next(...start) {
		return this.#next(start, (message) => start.every((part, i) => message[i] === part));
	}

	/** The next refusal that is no OK. */
	nextRefusal() {
		return this.#next(["NOTICE or CLOSED"], ([verb]) => verb === "NOTICE" || verb === "CLOSED");
	}

	/** The next answer to a REQ or COUNT. */
	nextAnswer() {
		return this.#next(["EOSE, COUNT or CLOSED"], ([verb]) => verb === "EOSE" || verb === "COUNT" || verb === "CLOSED");
	}

	/** `take` is called with it before anything that came behind it. */
	#next(wanted, matches, take = (message) => message) {
		const i = this.inbox.findIndex(matches);
		if (i >= 0)
			return Promise.resolve(take(this.inbox.splice(i, 1)[0]));
		return new Promise((resolve, reject) => {
			const timer = setTimeout(() => reject(new Error(
				`no ${JSON.stringify(wanted)}; inbox: ${JSON.stringify(this.inbox).slice(0, 2000)}`)),
			TIMEOUT_MS);
			this.#waiting.push({
				matches,
				resolve: (message) => { clearTimeout(timer); resolve(take(message)); },
			});
		});
	}

	send(...message) {
		this.socket.send(JSON.stringify(message));
	}

	/** Sends text as it is. */
	raw(text) {
		this.socket.send(text);
	}

	async challenge() {
		this.#challenge ??= (await this.next("AUTH"))[1];
		return this.#challenge;
	}
	#challenge;

	/** Authenticates and returns the OK. */
	async auth(key, options) {
		const event = authEvent(key, this.url, await this.challenge(), options);
		this.send("AUTH", event);
		const ok = await this.next("OK", event.id);
		assert.equal(ok[2], true, ok[3]);
		return ok;
	}

	/** Publishes and returns the OK, whatever it says. */
	publish(event) {
		this.send("EVENT", event);
		return this.next("OK", event.id);
	}

	/** Subscribes and returns the events that came before EOSE; one that came with it, right behind it, is live. */
	async subscribe(id, ...filters) {
		this.send("REQ", id, ...filters);
		return this.#next(["EOSE", id], ([verb, name]) => verb === "EOSE" && name === id, () => {
			const isOurs = (message) => message[0] === "EVENT" && message[1] === id;
			const events = this.inbox.filter(isOurs).map((message) => message[2]);
			this.inbox = this.inbox.filter((message) => !isOurs(message));
			return events;
		});
	}

	/** Everything sent so far has been answered when this returns. */
	async settle() {
		this.send("REQ", "settle", { limit: 0, kinds: [1] });
		await this.next("EOSE", "settle");
		this.send("CLOSE", "settle");
	}

	async close() {
		this.socket.close();
		return this.closed;
	}
}

/** What an upgrade was answered with: {status, text}; status 101 comes with the socket, and its end as `closed`. */
export function upgrade(url, options) {
	return new Promise((resolve, reject) => {
		const socket = new WebSocket(url, options);
		const closed = new Promise((resolve) => socket.on("close", resolve));
		socket.on("open", () => resolve({ status: 101, socket, closed }));
		socket.on("unexpected-response", (request, response) => {
			let text = "";
			response.setEncoding("utf8").on("data", (piece) => (text += piece)).on("end", () => {
				request.destroy();
				resolve({ status: response.statusCode, text });
			});
		});
		socket.on("error", reject);
	});
}
