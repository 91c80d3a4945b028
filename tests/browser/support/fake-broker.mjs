/* A broker of a script: serves the built page with its headers, and an API whose data the test
 * sets and changes. What the page asked for is kept for the test to look at. */

import { spawnSync } from "node:child_process";
import { createServer } from "node:http";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { encodeTimeline, reportOf, timesScene } from "./times.mjs";

const web = fileURLToPath(new URL("../../../observer/web/", import.meta.url));

export const CSP =
	"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; " +
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'";
const TYPES = {
	html: "text/html; charset=utf-8",
	js: "text/javascript; charset=utf-8",
	css: "text/css; charset=utf-8",
	svg: "image/svg+xml",
};

let built;

/* The page as the binary would hold it: path to bytes and type. Built once a process. */
export function pageAssets() {
	if (built) return built;
	const folder = mkdtempSync(join(tmpdir(), "perch-page-"));
	try {
		const { status, stderr } = spawnSync(
			process.execPath,
			[join(web, "build.mjs"), folder],
			{ encoding: "utf8" },
		);
		if (status !== 0) throw new Error(`the page does not build: ${stderr}`);
		built = new Map(
			readdirSync(folder).map((name) => [
				name === "index.html" ? "/" : `/${name}`,
				{
					bytes: readFileSync(join(folder, name)),
					type: TYPES[name.split(".").pop()],
				},
			]),
		);
	} finally {
		rmSync(folder, { recursive: true, force: true });
	}
	return built;
}

/* PROTOCOL.md, of /api/stream: an empty line this often. A test is no quicker than its machine, and
 * two of them missed the page asks again. */
const ALIVE_MS = 15_000;

const LISTS = { agents: "id", lanes: "id", cards: "id", controls: "requestId" };

export class FakeBroker {
	token = "test-token";
	agents = new Map();
	lanes = new Map();
	cards = new Map();
	controls = new Map();
	health = {
		relay: { state: "ready", url: "ws://127.0.0.1:7447", rttMs: 12 },
		frameAtMs: Date.now(),
		completeMs: Date.now(),
		missing: [],
	};
	owner = { npub: "npub1owner", words: null };
	rows = new Map();
	events = new Map();
	/* Raw lines of a lane, by pos. */
	raw = new Map();
	/* What /api/part says, of its query. */
	part = () => null;
	posts = [];
	requests = [];
	/* The open streams; the cursor each began with. */
	streams = new Map();
	/* A connection that is dead says nothing: not even that it lives. */
	silent = false;
	refuse = null;
	/* Why the demo agent is not played. */
	demo = null;
	/* How it does. */
	self = {
		now: Date.now(),
		broker: { pages: 1, messages: 1234, messageBytes: 567_890, ringBytes: 90_000, snapshots: 2, spanLanes: 10, spanNames: 40, spanBytes: 123_456 },
		rowBytes: 7_000_000,
		harnesses: [],
	};
	/* What the times are of, what a report says, and what an answer about either waits for. */
	times = timesScene();
	report = (query) => reportOf(this.times, query);
	hold = null;
	/* What a search finds, the newest first. */
	hits = [];
	indexing = false;
	#ring = [];
	#sequence = 0;
	#server;
	#beat;
	#watchers = new Set();
	#requestId = 0;
	#killed = false;

	async start() {
		this.#server = createServer((request, response) =>
			this.#serve(request, response),
		).on("connection", (socket) => {
			if (this.#killed) socket.destroy();
		});
		await new Promise((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
		this.port = this.#server.address().port;
		this.origin = `http://127.0.0.1:${this.port}`;
		this.url = `${this.origin}/#${this.token}`;
		this.#beat = setInterval(() => {
			if (!this.silent) for (const stream of this.streams.keys()) stream.write("\n");
		}, ALIVE_MS);
		return this;
	}
	/* Every connection breaks, and no other lasts, until it is there again. Its port stays taken:
	 * given back, it could be anybody's by then. */
	kill() {
		this.#killed = true;
		this.#server.closeAllConnections();
		this.streams.clear();
	}
	revive() {
		this.#killed = false;
	}
	async stop() {
		const { promise, resolve } = Promise.withResolvers?.() ?? deferred();
		clearInterval(this.#beat);
		this.#server.close(resolve);
		this.#server.closeAllConnections();
		await promise;
		this.streams.clear();
	}
	/* A new ring: a cursor from before is not known any more. */
	forget() {
		this.#ring = [];
		this.#sequence += 1000;
	}
	#snapshot() {
		return {
			cursor: `ring-${this.#sequence}`,
			snapshot: true,
			now: Date.now(),
			health: this.health,
			owner: this.owner,
			...Object.fromEntries(
				Object.keys(LISTS).map((list) => [list, [...this[list].values()]]),
			),
		};
	}
	/* Upserts into what the broker knows, and a message to every stream; of several messages none
	 * comes without the others. */
	publish(...messages) {
		const lines = messages.map((message) => this.#line(message));
		for (const stream of this.streams.keys()) stream.write(lines.join(""));
	}
	#line(message) {
		for (const [list, key] of Object.entries(LISTS))
			for (const thing of message[list] ?? []) this[list].set(thing[key], thing);
		for (const id of message.removedCards ?? []) this.cards.delete(id);
		if (message.health) this.health = message.health;
		for (const row of message.rows ?? []) this.putRow(row);
		for (const { lane, id } of message.removedRows ?? [])
			this.rows.set(
				lane,
				(this.rows.get(lane) ?? []).filter((row) => row.id !== id),
			);
		const line = { cursor: `ring-${++this.#sequence}`, now: Date.now(), ...message };
		this.#ring.push(line);
		return `${JSON.stringify(line)}\n`;
	}
	putRow(row) {
		const rows = (this.rows.get(row.lane) ?? []).filter(({ id }) => id !== row.id);
		rows.push(row);
		rows.sort((a, b) => (a.pos < b.pos ? -1 : 1));
		this.rows.set(row.lane, rows);
	}
	/* Resolves when the condition holds; asked again at every request. */
	async until(condition) {
		while (!condition()) {
			const { promise, resolve } = Promise.withResolvers?.() ?? deferred();
			this.#watchers.add(resolve);
			await promise;
			this.#watchers.delete(resolve);
		}
	}
	#happened() {
		for (const wake of this.#watchers) wake();
	}
	#serve(request, response) {
		const url = new URL(request.url, this.origin);
		this.requests.push(`${request.method} ${url.pathname}${url.search}`);
		const json = (status, body) => {
			response.writeHead(status, {
				"Content-Type": "application/json",
				"Cache-Control": "no-store",
			});
			response.end(JSON.stringify(body));
			this.#happened();
		};
		if (!url.pathname.startsWith("/api/")) {
			const asset = pageAssets().get(url.pathname);
			if (!asset) return json(404, { error: "no such page" });
			response.writeHead(200, {
				"Content-Type": asset.type,
				"Content-Security-Policy": CSP,
				"X-Content-Type-Options": "nosniff",
				"Referrer-Policy": "no-referrer",
				"Cross-Origin-Opener-Policy": "same-origin",
			});
			response.end(asset.bytes);
			return this.#happened();
		}
		if (request.headers.authorization !== `Bearer ${this.token}`)
			return json(401, { error: "this token is not valid" });
		if (this.refuse) return json(this.refuse.status, { error: this.refuse.error });
		if (url.pathname === "/api/stream")
			return this.#stream(request, response, url.searchParams.get("cursor"));
		if (url.pathname === "/api/rows") {
			const before = url.searchParams.get("before");
			const limit = Number(url.searchParams.get("limit") ?? 200);
			const all = (this.rows.get(url.searchParams.get("lane")) ?? []).filter(
				({ pos }) => !before || pos < before,
			);
			return json(200, { rows: all.slice(-limit), more: all.length > limit });
		}
		if (url.pathname === "/api/search") {
			void this.#search(url, json);
			return undefined;
		}
		if (url.pathname === "/api/self") return json(200, this.self);
		if (url.pathname === "/api/timeline" || url.pathname === "/api/report") {
			void this.#times(url, response, json);
			return undefined;
		}
		if (url.pathname === "/api/raw") {
			const get = (name) => url.searchParams.get(name);
			const limit = Number(get("limit") ?? 100);
			const cut = Number(get("cut") ?? 2048);
			const all = (this.raw.get(get("lane")) ?? []).filter(
				({ pos }) => pos >= (get("from") ?? "") && (!get("to") || pos < get("to")),
			);
			return json(200, {
				lines: all.slice(0, limit).map((line) => ({
					bytes: Buffer.byteLength(line.text),
					...line,
					text: line.text.slice(0, cut),
				})),
				next: all[limit]?.pos ?? null,
			});
		}
		if (url.pathname === "/api/part") {
			const answer = this.part(Object.fromEntries(url.searchParams));
			return answer
				? json(200, answer)
				: json(404, { error: "there is no diff at this place" });
		}
		if (url.pathname.startsWith("/api/event/")) {
			const event = this.events.get(url.pathname.slice("/api/event/".length));
			return event
				? json(200, event)
				: json(404, { error: "this event is not in the archive" });
		}
		if (url.pathname === "/api/demo" && request.method === "POST")
			return this.demo ? json(403, { error: this.demo }) : json(202, {});
		if (url.pathname === "/api/control" && request.method === "POST") {
			let text = "";
			request.on("data", (chunk) => {
				text += chunk;
			});
			request.on("end", () => {
				this.posts.push(JSON.parse(text));
				json(202, { requestId: `request-${++this.#requestId}` });
			});
			return undefined;
		}
		return json(404, { error: "no such thing" });
	}
	/* All words, without case; the first of them is marked. */
	async #search(url, json) {
		const words = url.searchParams.get("q").toLowerCase().replaceAll(/["*]/g, "").split(/\s+/);
		const limit = Number(url.searchParams.get("limit") ?? 30);
		const before = url.searchParams.get("before");
		this.#happened();
		await this.hold?.(url);
		if (words.includes("kind:cat")) return json(400, { error: "kind:cat is none" });
		const all = this.hits.filter(
			({ id, text }) =>
				words.every((word) => text.toLowerCase().includes(word)) &&
				(!before || Number(id) < Number(before)),
		);
		const hits = all.slice(0, limit).map(({ text, ...hit }) => {
			const at = text.toLowerCase().indexOf(words[0]);
			const end = at + words[0].length;
			return { ...hit, snippet: [text.slice(0, at), text.slice(at, end), text.slice(end)] };
		});
		return json(200, {
			hits,
			more: all.length > limit,
			...(hits.length ? { before: hits.at(-1).id } : {}),
			indexing: this.indexing,
		});
	}
	async #times(url, response, json) {
		const query = Object.fromEntries(
			[...url.searchParams].map(([name, value]) => [
				name,
				name === "lanes" || name === "view" ? value : Number(value),
			]),
		);
		this.#happened();
		await this.hold?.(url);
		if (url.pathname === "/api/report") return json(200, this.report(query));
		response.writeHead(200, { "Content-Type": "application/octet-stream" });
		response.end(encodeTimeline(this.times, query));
		return this.#happened();
	}
	#stream(request, response, cursor) {
		response.writeHead(200, {
			"Content-Type": "application/x-ndjson",
			"Cache-Control": "no-store",
		});
		const at = cursor ? this.#ring.findIndex((line) => line.cursor === cursor) : -1;
		const current = cursor === `ring-${this.#sequence}`;
		const lines =
			at >= 0 ? this.#ring.slice(at + 1) : current ? [] : [this.#snapshot()];
		response.write(lines.map((line) => `${JSON.stringify(line)}\n`).join("") || "\n");
		this.streams.set(response, cursor);
		response.on("close", () => {
			this.streams.delete(response);
			this.#happened();
		});
		this.#happened();
	}
}

function deferred() {
	const out = {};
	out.promise = new Promise((resolve) => {
		out.resolve = resolve;
	});
	return out;
}
