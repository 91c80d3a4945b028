/* The broker's answer about a stretch of time: PROTOCOL.md, "Times". Pure. */

export const TURN = 0;
export const CALL = 1;
export const PART = 2;
export const WAIT = 3;
export const FAILED = 1;
export const CANCELLED = 2;
export const COMMAND = 4;

export interface Span {
	t: number;
	end: number; /* Infinity while it goes on */
	name: string;
	row: string;
	kind: number;
	flags: number;
	line: number;
}
export interface Stretch {
	column: number;
	columns: number;
	shares: [model: number, tool: number, you: number, idle: number]; /* of 255 */
}
export interface LaneTimes {
	id: string;
	generation: number;
	stretches: Stretch[];
	spans: Span[];
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

const MAGIC = 0x314c5450; /* "PTL1" */
/* Beyond this a number is no time but "none". */
const FAR = 2 ** 62;

/* Throws a RangeError when the bytes end too soon, as DataView does. */
export function decode(bytes: ArrayBuffer): Answer {
	const view = new DataView(bytes);
	let at = 0;
	const u8 = () => view.getUint8(at++);
	const u16 = () => view.getUint16((at += 2) - 2, true);
	const u32 = () => view.getUint32((at += 4) - 4, true);
	/* Times are exact in a double until the year 287396. */
	const i64 = () => {
		const low = u32();
		return view.getInt32((at += 4) - 4, true) * 2 ** 32 + low;
	};
	if (u32() !== MAGIC) throw new RangeError("not a timeline");
	const request = u32();
	const from = i64();
	const to = i64();
	const now = i64();
	const complete = i64();
	const width = u32();
	const names: [LaneTimes, number][] = [];
	const texts: [Span, number, number][] = [];
	for (let lanes = u32(); lanes > 0; lanes--) {
		const id = u32();
		const generation = i64();
		const stretchCount = u32();
		const spanCount = u32();
		const lane: LaneTimes = { id: "", generation, stretches: [], spans: [] };
		let column = 0;
		for (let i = 0; i < stretchCount; i++) {
			const columns = u16();
			lane.stretches.push({ column, columns, shares: [u8(), u8(), u8(), u8()] });
			column += columns;
		}
		for (let i = 0; i < spanCount; i++) {
			const t = i64();
			const end = i64();
			const [name, row, kind, flags] = [u32(), u32(), u8(), u8()];
			const span: Span = {
				t,
				end: end < 0 ? Number.POSITIVE_INFINITY : end,
				name: "",
				row: "",
				kind,
				flags,
				line: u16(),
			};
			lane.spans.push(span);
			texts.push([span, name, row]);
		}
		names.push([lane, id]);
	}
	const strings: string[] = [];
	const decoder = new TextDecoder();
	for (let count = u32(); count > 0; count--) {
		const length = u16();
		strings.push(decoder.decode(new Uint8Array(bytes, at, length)));
		at += length;
	}
	for (const [span, name, row] of texts) {
		span.name = strings[name] ?? "";
		span.row = strings[row] ?? "";
	}
	const lanes = new Map<string, LaneTimes>();
	for (const [lane, id] of names) {
		lane.id = strings[id] ?? "";
		lanes.set(lane.id, lane);
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
const LINES_MAX = 16;

export interface Lines {
	turns: boolean;
	calls: number;
	parts: number;
}
export interface Block {
	id: string;
	top: number;
	height: number;
	lines: Lines;
}

/* Grows only, so that nothing jumps while the reader moves about. */
export function growLines(known: Map<string, Lines>, answer: Answer): boolean {
	let grown = false;
	for (const [id, { spans }] of answer.lanes) {
		const lines = known.get(id) ?? { turns: false, calls: 0, parts: 0 };
		const was = lines.calls + lines.parts + Number(lines.turns);
		for (const { kind, line } of spans) {
			const at = Math.min(line + 1, LINES_MAX);
			if (kind === TURN) lines.turns = true;
			else if (kind === PART) lines.parts = Math.max(lines.parts, at);
			else lines.calls = Math.max(lines.calls, kind === WAIT ? 1 : at);
		}
		known.set(id, lines);
		grown ||= was !== lines.calls + lines.parts + Number(lines.turns);
	}
	return grown;
}

export function layOut(ids: readonly string[], known: Map<string, Lines>): Block[] {
	let top = 0;
	return ids.map((id) => {
		const lines = known.get(id) ?? { turns: false, calls: 0, parts: 0 };
		const rows = Number(lines.turns) + lines.calls + lines.parts;
		const block = { id, top, height: STATE_ROW + rows * ROW + (rows ? 4 : 0), lines };
		top += block.height;
		return block;
	});
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
export function rowTop({ lines }: Block, { kind, line }: Span): number {
	const at = Math.min(line, LINES_MAX - 1);
	const first = STATE_ROW + (lines.turns ? ROW : 0);
	if (kind === TURN) return STATE_ROW;
	if (kind === PART) return first + (lines.calls + at) * ROW;
	return first + (kind === WAIT ? 0 : at) * ROW;
}
