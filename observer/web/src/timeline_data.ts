/* The broker's answer about a stretch of time: PROTOCOL.md, "Times". Pure. */

export const TURN = 0;
export const CALL = 1;
export const PART = 2;
export const WAIT = 3;
export const FAILED = 1;
export const CANCELLED = 2;
export const COMMAND = 4;
export const ALLOWED = 8;
/* In the line of a wait: its call is a part. */
export const PART_LINE = 0x8000;

export interface Span {
	t: number;
	end: number; /* Infinity while it goes on */
	name: string;
	row: string;
	kind: number;
	flags: number;
	line: number;
}
/* Columns that look alike, one after another: read where they lie in the answer. */
export class Strip {
	/* u16:columns and four shares of 255 each: model, tool, you, idle. */
	readonly bytes: Uint8Array;
	readonly count: number;
	#starts: Uint32Array | null = null;

	constructor(bytes: Uint8Array) {
		this.bytes = bytes;
		this.count = bytes.length / STRETCH_BYTES;
	}
	/* The column at which each begins, and where the last one ends. */
	get starts(): Uint32Array {
		if (this.#starts) return this.#starts;
		const { bytes, count } = this;
		const starts = new Uint32Array(count + 1);
		let column = 0;
		for (let i = 0, at = 0; i < count; at += STRETCH_BYTES) {
			column = Math.min(WIDTH_MAX, column + (bytes[at]! | (bytes[at + 1]! << 8)));
			starts[++i] = column;
		}
		this.#starts = starts;
		return starts;
	}
	share(i: number, kind: number): number {
		return this.bytes[STRETCH_BYTES * i + 2 + kind]!;
	}
	/* The stretch that column @n is in. */
	at(n: number): number {
		const { starts } = this;
		let low = 0;
		let high = this.count;
		while (low < high) {
			const middle = (low + high) >> 1;
			if (starts[middle + 1]! <= n) low = middle + 1;
			else high = middle;
		}
		return low;
	}
}
/* What a lane counts: of BYTES so many a second, of COST thousandths. */
export const BYTES = 0;
export const TOKENS = 1;
export const COST = 2;
export const VALUE_KINDS = [BYTES, TOKENS, COST] as const;
export interface Series {
	kind: number;
	pieces: { column: number; columns: number; value: number }[];
	most: number;
}

/* Reads the records of spans where they lie in an answer. */
class Records {
	readonly view: DataView;
	readonly text: (index: number) => string;

	constructor(view: DataView, text: (index: number) => string) {
		this.view = view;
		this.text = text;
	}
	time(at: number): number {
		return this.view.getInt32(at + 4, true) * 2 ** 32 + this.view.getUint32(at, true);
	}
}

/* The spans of a lane, read when they are first asked for: only lanes in sight are. */
export class LaneTimes {
	readonly id: string;
	readonly generation: number;
	readonly count: number;
	readonly lines: Lines = { turns: false, calls: 0, parts: 0, values: 0 };
	values: readonly Series[] = [];
	readonly open: boolean; /* one of them goes on */
	strip: Strip;
	#records: Records | null;
	#at: number;
	#spans: Span[] | null = null;
	#list: SpanList | null = null;

	constructor(id: string, generation: number, strip: Strip, records: Records, at: number, count: number) {
		this.id = id;
		this.generation = generation;
		this.strip = strip;
		this.count = count;
		this.#at = at;
		this.#records = records;
		const { view } = records;
		let open = false;
		let last = -1;
		for (const end = at + SPAN_BYTES * count; at < end; at += SPAN_BYTES) {
			open ||= view.getInt32(at + 12, true) < 0;
			const [kind, line] = [view.getUint8(at + 24), view.getUint16(at + 26, true)];
			/* Most are like the one before. */
			if (last === (last = (line << 8) | kind)) continue;
			growLine(this.lines, kind, line);
		}
		this.open = open;
	}
	get list(): SpanList {
		if (this.#list) return this.#list;
		const records = this.#records!;
		const calls: number[] = [];
		const waits: number[] = [];
		for (let i = 0, at = this.#at; i < this.count; i++, at += SPAN_BYTES)
			(records.view.getUint8(at + 24) === WAIT ? waits : calls).push(at);
		this.#list = { calls: Ranked.read(records, calls), waits: Ranked.read(records, waits) };
		this.#records = null;
		return this.#list;
	}
	/* Those of the list as things of their own: for what is said about a span, not for drawing. */
	get spans(): readonly Span[] {
		if (this.#spans) return this.#spans;
		const { calls, waits } = this.list;
		this.#spans = [];
		for (const list of [calls, waits]) for (let i = 0; i < list.count; i++) this.#spans.push(list.span(i));
		return this.#spans;
	}
}
/* What the painter needs of a lane, and of an answer. */
export interface DrawnLane {
	strip: Strip;
	values: readonly Series[];
	list: SpanList;
}
export interface Drawn {
	from: number;
	to: number;
	now: number;
	width: number;
	lanes: ReadonlyMap<string, DrawnLane>;
}
export interface Answer {
	request: number;
	from: number;
	to: number;
	now: number;
	completeFrom: number; /* -Infinity: nothing was let go */
	width: number;
	lanes: Map<string, LaneTimes>;
}

/* The spans of a lane as they are drawn: by their starts, waits apart, as they lie over the
 * others. */
export interface SpanList {
	calls: Ranked;
	waits: Ranked;
}
export class Ranked {
	readonly count: number;
	readonly t: Float64Array;
	readonly end: Float64Array; /* Infinity while it goes on */
	readonly kind: Uint8Array;
	readonly flags: Uint8Array;
	readonly line: Uint16Array;
	/* The latest end of it and all before it. */
	readonly until: Float64Array;
	/* The name as it fits into so much room: the room is the same while the view is panned. */
	readonly rooms: number[] = [];
	readonly words: string[] = [];
	/* What it is made of, in the order of the starts. */
	#records: Records | null = null;
	#places: ArrayLike<number> = [];
	#spans: Span[] = [];

	private constructor(count: number) {
		this.count = count;
		/* One piece of memory for all columns. */
		const bytes = new ArrayBuffer(28 * count);
		this.t = new Float64Array(bytes, 0, count);
		this.end = new Float64Array(bytes, 8 * count, count);
		this.until = new Float64Array(bytes, 16 * count, count);
		this.line = new Uint16Array(bytes, 24 * count, count);
		this.kind = new Uint8Array(bytes, 26 * count, count);
		this.flags = new Uint8Array(bytes, 27 * count, count);
	}
	#rank() {
		let until = Number.NEGATIVE_INFINITY;
		for (let i = 0; i < this.count; i++) {
			until = Math.max(until, this.end[i]!);
			this.until[i] = until;
		}
	}
	static read(records: Records, places: number[]): Ranked {
		const { view } = records;
		const ranked = new Ranked(places.length);
		/* They come by runs, nearly always in order. */
		if (!places.every((at, i) => !i || records.time(places[i - 1]!) <= records.time(at)))
			places.sort((a, b) => records.time(a) - records.time(b));
		const { t, end, kind, flags, line } = ranked;
		for (let i = 0; i < places.length; i++) {
			const at = places[i]!;
			const until = records.time(at + 8);
			t[i] = records.time(at);
			end[i] = until < 0 ? Number.POSITIVE_INFINITY : until;
			kind[i] = view.getUint8(at + 24);
			flags[i] = view.getUint8(at + 25);
			line[i] = view.getUint16(at + 26, true);
		}
		ranked.#records = records;
		ranked.#places = places;
		ranked.#rank();
		return ranked;
	}
	static of(spans: readonly Span[]): Ranked {
		const ranked = new Ranked(spans.length);
		ranked.#spans = [...spans].sort((a, b) => a.t - b.t);
		ranked.#spans.forEach(({ t, end, kind, flags, line }, i) => {
			ranked.t[i] = t;
			ranked.end[i] = end;
			ranked.kind[i] = kind;
			ranked.flags[i] = flags;
			ranked.line[i] = line;
		});
		ranked.#rank();
		return ranked;
	}
	name(i: number): string {
		const records = this.#records;
		return records ? records.text(records.view.getUint32(this.#places[i]! + 16, true)) : this.#spans[i]!.name;
	}
	/* The same one each time. */
	span(i: number): Span {
		const records = this.#records;
		return (this.#spans[i] ??= {
			t: this.t[i]!,
			end: this.end[i]!,
			name: this.name(i),
			row: records ? records.text(records.view.getUint32(this.#places[i]! + 20, true)) : "",
			kind: this.kind[i]!,
			flags: this.flags[i]!,
			line: this.line[i]!,
		});
	}
	/* The first that may reach @t. */
	find(t: number): number {
		let low = 0;
		let high = this.count;
		while (low < high) {
			const middle = (low + high) >> 1;
			if (this.until[middle]! < t) low = middle + 1;
			else high = middle;
		}
		return low;
	}
	/* The first that begins at @t or behind it; count, if none does. */
	after(t: number): number {
		let low = 0;
		let high = this.count;
		while (low < high) {
			const middle = (low + high) >> 1;
			if (this.t[middle]! < t) low = middle + 1;
			else high = middle;
		}
		return low;
	}
}
const MAGIC = 0x324c5450; /* "PTL2" */
const STRETCH_BYTES = 6;
const SPAN_BYTES = 28;
const PIECE_BYTES = 6;
const UNKNOWN = 2 ** 32 - 1;
/* A column of values is as wide as four of the others. */
export const VALUE_COLUMNS = 4;
/* Columns of an answer, at most: what more says is not read. */
const WIDTH_MAX = 16_384;
/* Beyond this a number is no time but "none". */
const FAR = 2 ** 62;

/* Throws a RangeError when the bytes end too soon or are no timeline, and takes no more memory
 * than a few times theirs. Of a lane that has not
 * changed since @was, an answer about the same columns, the spans are @was's. */
export function decode(bytes: ArrayBuffer, was: Answer | null = null): Answer {
	const view = new DataView(bytes);
	let at = 0;
	const u32 = () => view.getUint32((at += 4) - 4, true);
	/* Times are exact in a double until the year 287396. */
	const i64 = () => {
		const low = u32();
		return view.getInt32((at += 4) - 4, true) * 2 ** 32 + low;
	};
	if (u32() !== MAGIC) throw new RangeError("not a timeline");
	const request = u32();
	const [from, to, now, complete] = [i64(), i64(), i64(), i64()];
	const width = u32();
	if (!(to > from) || width < 1 || width > WIDTH_MAX) throw new RangeError("the timeline has no columns");
	const found: { id: number; generation: number; strip: Strip; at: number; count: number; values: Series[] }[] = [];
	for (let lanes = u32(); lanes > 0; lanes--) {
		const [id, generation, stretches, count, series] = [u32(), i64(), u32(), u32(), u32()];
		const strip = new Strip(new Uint8Array(bytes, at, STRETCH_BYTES * stretches));
		at += STRETCH_BYTES * stretches;
		const begin = at;
		at += SPAN_BYTES * count;
		const values: Series[] = [];
		for (let i = 0; i < series; i++) {
			const [kind, pieces] = [u32(), u32()];
			const one: Series = { kind, pieces: [], most: 0 };
			let column = 0;
			for (let k = 0; k < pieces; k++) {
				const columns = view.getUint16(at, true);
				const value = view.getUint32(at + 2, true);
				at += PIECE_BYTES;
				if (value !== UNKNOWN) {
					one.pieces.push({ column, columns, value });
					one.most = Math.max(one.most, value);
				}
				column += columns;
			}
			if (kind < VALUE_KINDS.length) values.push(one);
		}
		found.push({ id, generation, strip, at: begin, count, values });
	}
	const count = u32();
	if (2 * count > bytes.byteLength - at) throw new RangeError("the timeline ends too soon");
	/* Most texts are of lanes out of sight: they are read when they are asked for. */
	const places = new Uint32Array(count);
	for (let i = 0; i < count; i++) {
		places[i] = at;
		at += 2 + view.getUint16(at, true);
	}
	if (at > bytes.byteLength) throw new RangeError("the timeline ends too soon");
	const decoder = new TextDecoder();
	const strings: string[] = [];
	const text = (index: number): string => {
		const place = places[index];
		if (place === undefined) return "";
		return (strings[index] ??= decoder.decode(new Uint8Array(bytes, place + 2, view.getUint16(place, true))));
	};
	const records = new Records(view, text);
	const again = was && was.from === from && was.to === to && was.width === width;
	const lanes = new Map<string, LaneTimes>();
	for (const { id: index, generation, strip, at: begin, count: spans, values } of found) {
		const id = text(index);
		const old = again ? was.lanes.get(id) : undefined;
		if (old && old.generation === generation && old.count === spans && !old.open) {
			old.strip = strip;
			old.values = values;
			lanes.set(id, old);
		} else {
			const lane = new LaneTimes(id, generation, strip, records, begin, spans);
			lane.values = values;
			for (const { kind } of values) lane.lines.values |= 1 << kind;
			lanes.set(id, lane);
		}
	}
	return {
		request,
		from,
		to,
		now,
		completeFrom: complete < -FAR ? Number.NEGATIVE_INFINITY : complete,
		width,
		lanes,
	};
}

/* --- Where lanes lie: a block each, of rows --- */

export const STATE_ROW = 30;
export const ROW = 21;
export const VALUE_ROW = 34;
const LINES_MAX = 16;

export interface Lines {
	turns: boolean;
	calls: number;
	parts: number;
	values: number; /* a bit for each kind that it has */
}
export interface Block {
	id: string;
	lines: Lines;
	top: number;
	height: number;
}

const rowsOf = ({ turns, calls, parts }: Lines) => Number(turns) + calls + parts;

function growLine(lines: Lines, kind: number, line: number) {
	const at = Math.min(line + 1, LINES_MAX);
	if (kind === TURN) lines.turns = true;
	else if (kind === PART) lines.parts = Math.max(lines.parts, at);
	else lines.calls = Math.max(lines.calls, kind === WAIT ? 1 : at);
}
/* Grows only, so that nothing jumps while the reader moves about. */
export function growLines(lines: Lines, more: Lines): boolean {
	const was = rowsOf(lines);
	lines.turns ||= more.turns;
	lines.calls = Math.max(lines.calls, more.calls);
	lines.parts = Math.max(lines.parts, more.parts);
	const values = lines.values;
	lines.values |= more.values;
	return was !== rowsOf(lines) || values !== lines.values;
}

/* How many kinds the bits are. */
const countKinds = (bits: number): number => (bits ? 1 + countKinds(bits & (bits - 1)) : 0);
export const hasValue = (lines: Lines, kind: number) => (lines.values & (1 << kind)) !== 0;
/* Top of a value's row inside its block. */
export function valueTop({ lines }: Block, kind: number): number {
	return STATE_ROW + rowsOf(lines) * ROW + countKinds(lines.values & ((1 << kind) - 1)) * VALUE_ROW;
}
/* Puts the blocks under each other. */
export function layOut(blocks: readonly Block[]) {
	let top = 0;
	for (const block of blocks) {
		const rows = rowsOf(block.lines);
		const kinds = countKinds(block.lines.values);
		block.top = top;
		block.height = STATE_ROW + rows * ROW + kinds * VALUE_ROW + (rows + kinds ? 4 : 0);
		top += block.height;
	}
}

/* The first block that reaches below @y. */
export function blockAt(blocks: readonly Block[], y: number): number {
	let low = 0;
	let high = blocks.length;
	while (low < high) {
		const middle = (low + high) >> 1;
		const block = blocks[middle]!;
		if (block.top + block.height <= y) low = middle + 1;
		else high = middle;
	}
	return low;
}

/* Top of the span's row inside its block. */
export function rowTop({ lines }: Block, kind: number, line: number): number {
	const at = Math.min(line & ~PART_LINE, LINES_MAX - 1);
	const first = STATE_ROW + (lines.turns ? ROW : 0);
	if (kind === TURN) return STATE_ROW;
	return first + (kind === PART || line & PART_LINE ? lines.calls + at : at) * ROW;
}
