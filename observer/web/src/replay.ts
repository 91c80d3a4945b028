/* What a file of `perch export --format html` holds in place of a broker: its rows, its times
 * and its reports, asked for by the same paths. Nothing leaves it, nothing can be controlled. */

import { offline } from "./offline";
import type { Message, Row } from "./types";

/* t, end (-1: goes on), kind, flags, line, name, row: the timeline's records. */
type SpanRecord = [number, number, number, number, number, string, string];
interface LaneTimes {
	id: string;
	until: number;
	/* From t on the time went into …: t, kind, t, kind, … */
	strip: number[];
	spans: (SpanRecord | null)[];
}
interface Data {
	from: number;
	to: number;
	now: number;
	snapshot: Message;
	rows: Record<string, Row[]>;
	times: LaneTimes[];
	reports: Record<string, unknown>;
}

/* As enum row_time: model, tool, you; none and idle are what is left. */
const SHARES = 3;
const EVERYTHING = 500;

const json = (body: unknown) =>
	new Response(JSON.stringify(body), { headers: { "Content-Type": "application/json" } });

function compare(a: Row, b: Row): number {
	return a.pos < b.pos ? -1 : a.pos > b.pos ? 1 : a.id < b.id ? -1 : 1;
}

/* --- Rows --- */

function rowsBefore(rows: readonly Row[], before: string | null, limit: number) {
	let end = rows.length;
	if (before) {
		let low = 0;
		while (low < end) {
			const middle = (low + end) >> 1;
			if (rows[middle]!.pos < before) low = middle + 1;
			else end = middle;
		}
	}
	let from = Math.max(0, end - limit);
	/* Rows of one place come together. */
	while (from > 0 && rows[from - 1]!.pos === rows[from]!.pos) from--;
	return { rows: rows.slice(from, end), more: from > 0 };
}

/* --- Times: PROTOCOL.md, "The timeline" --- */

class Bytes {
	#view = new DataView(new ArrayBuffer(1 << 16));
	length = 0;
	put(size: 1 | 2 | 4 | 8, n: number) {
		if (this.length + size > this.#view.byteLength) {
			const grown = new Uint8Array(2 * this.#view.byteLength);
			grown.set(new Uint8Array(this.#view.buffer));
			this.#view = new DataView(grown.buffer);
		}
		this.at(this.length, size, n);
		this.length += size;
	}
	at(offset: number, size: 1 | 2 | 4 | 8, n: number) {
		if (size === 1) this.#view.setUint8(offset, n);
		else if (size === 2) this.#view.setUint16(offset, n, true);
		else if (size === 4) this.#view.setUint32(offset, n, true);
		else this.#view.setBigInt64(offset, BigInt(Math.trunc(n)), true);
	}
	bytes(text: Uint8Array) {
		for (const byte of text) this.put(1, byte);
	}
	get buffer(): ArrayBuffer {
		return this.#view.buffer.slice(0, this.length) as ArrayBuffer;
	}
}

interface Window {
	from: number;
	to: number;
	width: number;
}

/* The shares of each column, 255 for all of it, written as stretches of equal ones. */
function writeStrip(lane: LaneTimes, { from, to, width }: Window, out: Bytes): number {
	const { strip, until } = lane;
	let count = 0;
	let columns = 0;
	let last = "";
	let shares = [0, 0, 0, 0];
	const flush = () => {
		if (!columns) return;
		out.put(2, columns);
		for (const share of shares) out.put(1, share);
		count++;
	};
	let piece = 0;
	let high = strip.length / 2;
	while (piece < high) {
		const middle = (piece + high) >> 1;
		const end = strip[2 * middle + 2] ?? until;
		if (end <= from) piece = middle + 1;
		else high = middle;
	}
	for (let column = 0; column < width; column++) {
		const a = from + Math.floor(((to - from) * column) / width);
		const b = from + Math.floor(((to - from) * (column + 1)) / width);
		const ms = [0, 0, 0, 0];
		while (piece < strip.length / 2) {
			const start = strip[2 * piece]!;
			const end = strip[2 * piece + 2] ?? until;
			const inside = Math.min(end, b) - Math.max(start, a);
			const kind = strip[2 * piece + 1]!;
			if (inside > 0) ms[kind >= 1 && kind <= SHARES ? kind - 1 : SHARES]! += inside;
			if (end > b) break;
			piece++;
		}
		const now = ms.map((n) =>
			n ? Math.max(1, Math.round((255 * n) / Math.max(1, b - a))) : 0,
		);
		const key = String(now);
		if (key === last && columns < 65_535) {
			columns++;
			continue;
		}
		flush();
		columns = 1;
		shares = now;
		last = key;
	}
	flush();
	return count;
}

function timeline(data: Data, query: URLSearchParams): ArrayBuffer {
	const number = (name: string, otherwise: number) => Number(query.get(name) ?? otherwise);
	const window = {
		from: number("from", data.from),
		to: number("to", data.now + 1),
		width: Math.max(1, number("width", 1000)),
	};
	const { from, to, width } = window;
	const only = query.get("lanes")?.split(",") ?? [];
	const least = Math.max(1, Math.floor((to - from) / width));
	const out = new Bytes();
	const strings = [""];
	const index = new Map([["", 0]]);
	const string = (text: string) => {
		let at = index.get(text);
		if (at === undefined) index.set(text, (at = strings.push(text) - 1));
		return at;
	};
	const shown = data.times.filter(
		({ id, strip, until }) =>
			strip[0]! < to && until > from && (!only.length || only.some((it) => id.startsWith(it))),
	);
	for (const letter of "PTL2") out.put(1, letter.charCodeAt(0));
	out.put(4, number("request", 0));
	for (const time of [from, to, data.now]) out.put(8, time);
	/* Nothing was let go of: the least i64. */
	out.put(4, 0);
	out.put(4, 0x80000000);
	out.put(4, width);
	out.put(4, shown.length);
	for (const lane of shown) {
		out.put(4, string(lane.id));
		out.put(8, 1);
		const counts = out.length;
		out.put(8, 0);
		out.put(4, 0); /* no values */
		out.at(counts, 4, writeStrip(lane, window, out));
		let count = 0;
		for (const record of lane.spans) {
			if (!record) continue;
			const [t, end, kind, flags, line, name, row] = record;
			const until = end < 0 ? data.now : end;
			if (t >= to || until <= from || until - t < least) continue;
			const named = until - t >= 4 * least;
			out.put(8, t);
			out.put(8, end);
			out.put(4, string(named || kind ? name : ""));
			out.put(4, string(named ? row : ""));
			out.put(1, kind);
			out.put(1, flags);
			out.put(2, line);
			count++;
		}
		out.at(counts + 4, 4, count);
	}
	out.put(4, strings.length);
	const encoder = new TextEncoder();
	for (const text of strings) {
		const utf8 = encoder.encode(text).subarray(0, 65_535);
		out.put(2, utf8.length);
		out.bytes(utf8);
	}
	return out.buffer;
}

/* The whole time, or next to it, of all lanes: nobody counted anything else. */
function report(data: Data, query: URLSearchParams): unknown {
	const [from, to] = [query.get("from"), query.get("to")];
	const covers =
		(from === null || Number(from) <= data.from) && (to === null || Number(to) >= data.to);
	if (!covers || query.get("lanes") || query.get("ranges"))
		throw new Error(
			"a replay has the report of all of its time and agents; one of a part is in a replay that was exported with --from and --to, or --agent",
		);
	return data.reports[query.get("view") ?? "flat"];
}

/* --- Search: all words, anywhere in what a row says --- */

function words(row: Row): string {
	const said: string[] = [];
	const collect = (value: unknown, key: string) => {
		if (key === "id" || key === "lane" || key === "turn" || key === "pos") return;
		if (typeof value === "string") said.push(value);
		else if (value && typeof value === "object")
			for (const [name, inner] of Object.entries(value)) collect(inner, name);
	};
	collect(row, "");
	return said.join("\n");
}

function search(data: Data, query: URLSearchParams) {
	const wanted = (query.get("q") ?? "").toLowerCase().replaceAll(/["*]/g, " ").split(/\s+/).filter(Boolean);
	const all = Object.values(data.rows)
		.flat()
		.sort((a, b) => b.t - a.t);
	const hits = [];
	for (const row of all) {
		const text = words(row);
		const low = text.toLowerCase();
		if (!wanted.length || !wanted.every((word) => low.includes(word))) continue;
		const at = low.indexOf(wanted[0]!);
		const end = at + wanted[0]!.length;
		const { id, lane, pos, t, type } = row;
		const snippet = [text.slice(Math.max(0, at - 48), at), text.slice(at, end), text.slice(end, end + 132)];
		hits.push({ id: String(hits.length), lane, row: id, pos, t, type, snippet });
		if (hits.length === EVERYTHING) break;
	}
	return { hits, more: false, indexing: false };
}

/* --- The broker's place --- */

function answer(data: Data, path: string): Response {
	const url = new URL(path, "http://replay");
	const query = url.searchParams;
	switch (url.pathname) {
		case "/api/rows":
			return json(
				rowsBefore(
					data.rows[query.get("lane") ?? ""] ?? [],
					query.get("before"),
					Number(query.get("limit") ?? 200),
				),
			);
		case "/api/timeline":
			return new Response(timeline(data, query));
		case "/api/report":
			return json(report(data, query));
		case "/api/search":
			return json(search(data, query));
		case "/api/control":
			throw new Error("this is a replay: nothing can be controlled");
		default:
			throw new Error("a replay does not hold this");
	}
}

const data = JSON.parse(document.getElementById("perch-replay")!.textContent!) as Data;
for (const rows of Object.values(data.rows)) rows.sort(compare);
offline.is = {
	snapshot: data.snapshot,
	from: data.from,
	to: data.to,
	now: data.now,
	ask: async (path) => answer(data, path),
};
