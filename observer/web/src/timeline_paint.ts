/* Draws the timeline. Cost follows the lanes in sight and the columns, not the spans: what is
 * narrower than a column is in the strip alone. */

import { clockTime, dayOf, isoDay, stretchWords, zoneMs } from "./clock";
import {
	ALLOWED,
	type Block,
	blockAt,
	CALL,
	type Drawn,
	type DrawnLane,
	FAILED,
	type Ranked,
	ROW,
	rowTop,
	type Span,
	type Strip,
	TURN,
	VALUE_COLUMNS,
	VALUE_ROW,
	valueTop,
	WAIT,
} from "./timeline_data";
import { length, type Stretch } from "./times";

export interface Picked {
	lane: string;
	span: Span;
}
export interface Scene {
	view: Stretch;
	ranges: readonly Stretch[];
	now: number;
	answer: Drawn | null;
	overview: Drawn | null;
	blocks: readonly Block[];
	/* The same, but another list only when other lanes are shown. */
	lanes: readonly Block[];
	scroll: number;
	/* So many pixels on top do not scroll. */
	pinned: number;
	hover: Picked | null;
	picked: Picked | null;
	/* Spans of this name are marked. */
	like: string | null;
	offline: ReadonlySet<string>;
	stalled: ReadonlySet<string>;
}

/* Colours come from the tokens, resolved by the browser: light-dark() included. What is made of
 * them is kept until they change. */
let versions = 0;
export class Inks {
	#probe: HTMLElement;
	#known = new Map<string, string>();
	#hatches = new Map<string, CanvasPattern>();
	#pixels = new Map<string, number>();
	#font = "";
	/* No two sets of colours have the same, whoever they are of. */
	version = ++versions;

	constructor(probe: HTMLElement) {
		this.#probe = probe;
	}
	forget() {
		this.#known.clear();
		this.#hatches.clear();
		this.#pixels.clear();
		this.#font = "";
		this.version = ++versions;
	}
	get font(): string {
		this.#font ||= `11px ${getComputedStyle(document.documentElement).getPropertyValue("--font-ui")}`;
		return this.#font;
	}
	/* The colour as a pixel of an ImageData seen as 32 bits, opaque. */
	pixel(token: string): number {
		let pixel = this.#pixels.get(token);
		if (pixel === undefined) {
			const g = new OffscreenCanvas(1, 1).getContext("2d")!;
			g.fillStyle = this.of(token);
			g.fillRect(0, 0, 1, 1);
			pixel = new Uint32Array(g.getImageData(0, 0, 1, 1).data.buffer)[0]!;
			this.#pixels.set(token, pixel);
		}
		return pixel;
	}
	/* Strokes 2 px wide, 6 apart. */
	hatch(token: string): CanvasPattern {
		const found = this.#hatches.get(token);
		if (found) return found;
		const dense = devicePixelRatio || 1;
		const tile = new OffscreenCanvas(Math.round(6 * dense), Math.round(6 * dense));
		const g = tile.getContext("2d")!;
		g.scale(tile.width / 6, tile.height / 6);
		g.strokeStyle = this.of(token);
		g.lineWidth = 2;
		g.beginPath();
		for (const at of [-6, 0, 6]) {
			g.moveTo(at - 1, 7);
			g.lineTo(at + 7, -1);
		}
		g.stroke();
		const pattern = g.createPattern(tile, "repeat")!;
		pattern.setTransform(new DOMMatrix().scale(6 / tile.width, 6 / tile.height));
		this.#hatches.set(token, pattern);
		return pattern;
	}
	of(token: string): string {
		let ink = this.#known.get(token);
		if (!ink) {
			this.#probe.style.color = `var(--${token})`;
			ink = getComputedStyle(this.#probe).color;
			this.#known.set(token, ink);
		}
		return ink;
	}
}

type Canvas = HTMLCanvasElement | OffscreenCanvas;
type Pen = CanvasRenderingContext2D | OffscreenCanvasRenderingContext2D;

function surface<T extends Canvas>(canvas: T, inks: Inks, width: number, height: number) {
	const dense = devicePixelRatio || 1;
	const [w, h] = [Math.round(width * dense), Math.round(height * dense)];
	/* To set a size is to make the canvas anew. */
	if (canvas.width !== w) canvas.width = w;
	if (canvas.height !== h) canvas.height = h;
	const g = canvas.getContext("2d") as T extends HTMLCanvasElement ? CanvasRenderingContext2D : Pen;
	g.setTransform(dense, 0, 0, dense, 0, 0);
	g.clearRect(0, 0, width, height);
	g.font = inks.font;
	g.textBaseline = "middle";
	g.textAlign = "start";
	return g;
}

const STEPS = [
	1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5,
	18e5, 36e5, 72e5, 108e5, 216e5, 432e5, 864e5, 1728e5, 6048e5, 2592e6, 7776e6, 31536e6, 31536e7,
];
/* Ticks at least so far apart that their words fit. */
const tickMs = (perPixel: number) => STEPS.find((step) => step >= 110 * perPixel) ?? STEPS.at(-1)!;
/* Hours and days begin where those that are shown do, also when clocks were changed meanwhile. */
function* ticks({ from, to }: Stretch, step: number): Generator<number> {
	const zone = zoneMs(from);
	for (let at = Math.ceil((from + zone) / step) * step; at - zone < to; at += step)
		yield at - (step > 36e5 ? zoneMs(at - zone) : zone);
}
function tickWords(t: number, step: number): string {
	if (step >= 864e5) return isoDay(t);
	const words = clockTime(t);
	if (step >= 6e4 && words === "00:00:00") return dayOf(t);
	if (step < 1000) return `${words}.${String(Math.floor(t % 1000)).padStart(3, "0")}`;
	return step >= 6e4 ? words.slice(0, 5) : words;
}

function hatch(g: Pen, x: number, y: number, w: number, h: number, inks: Inks) {
	g.fillStyle = inks.hatch("time-you");
	/* The strokes go with the row when it is scrolled. */
	g.translate(0, y);
	g.fillRect(x, 0, w, h);
	g.translate(0, -y);
}

/* Lengths of texts do not change: they are measured once. */
const widths = new Map<string, number>();
const WIDTHS_MAX = 20_000;
function widthOf(g: Pen, text: string): number {
	let width = widths.get(text);
	if (width === undefined) {
		if (widths.size > WIDTHS_MAX) widths.clear();
		width = g.measureText(text).width;
		widths.set(text, width);
	}
	return width;
}
/* As much of the name as there is room for, to the letter. */
function fit(g: Pen, name: string, room: number): string {
	if (room < 14) return "";
	const text = name.slice(0, 300);
	if (text.length === name.length && widthOf(g, text) <= room) return text;
	let left = room - widthOf(g, "…");
	let length = 0;
	for (const letter of text) {
		left -= widthOf(g, letter);
		if (left < 0) break;
		length += letter.length;
	}
	return length > 1 ? `${text.slice(0, length).trimEnd()}…` : "";
}

const HEIGHTS = [6, 10, 10, 2]; /* model, tool, you, idle: height tells them apart too */
const STRIP_INKS = ["time-model", "time-tool", "time-you", "time-idle"];

/* How many shades a share is told apart by. */
const LEVELS = 6;
const LEVEL_OF = Uint8Array.from({ length: 256 }, (_, share) => (share ? Math.min(LEVELS, 2 + Math.ceil(((LEVELS - 2) * share) / 255)) : 0));
const levelOf = (share: number, kind: number) => (kind === 3 && share ? LEVELS : LEVEL_OF[share]!);

/* --- A strip of many pieces is made into a picture once, a pixel for each column --- */

/* From so many pieces in sight on that is cheaper than to draw them again for each frame. */
const PIECES_MAX = 300;
/* Heights of what differs in a strip: tools and you alone, the model with them, idle too. */
const BANDS = [4, 4, 2] as const;
const STRIP_TOP = 12;
/* Strips that have a picture at the same time: more than are in sight. */
const PICTURES = 96;

/* All pictures are parts of one canvas, three rows each; when there is no room it begins anew. */
const atlas = { canvas: null as OffscreenCanvas | null, of: new Map<Strip, number>(), next: 0, version: 0 };
/* Few mixtures look different: each is mixed once, its three rows after each other. By the levels
 * of the four shares, in base 8. */
const mixtures = { version: -1, top: new Uint32Array(4096), middle: new Uint32Array(4096), low: new Uint32Array(4096), known: new Uint8Array(4096) };

/* @over on @under, @level parts of LEVELS; pixels are alpha, blue, green, red. */
function blend(under: number, over: number, level: number): number {
	if (!level) return under;
	const a = level / LEVELS;
	const b = (under >>> 24) / 255;
	const alpha = a + b * (1 - a);
	let pixel = Math.round(255 * alpha) << 24;
	for (const shift of [0, 8, 16]) {
		const part = (((over >>> shift) & 255) * a + ((under >>> shift) & 255) * b * (1 - a)) / alpha;
		pixel |= Math.round(part) << shift;
	}
	return pixel >>> 0;
}

/* Makes what is missing of the pictures of @strips, all before any is drawn: a canvas that was
 * drawn from is copied when it is written to. */
function makePictures(strips: readonly Strip[], inks: Inks) {
	const width = Math.max(1, ...strips.map(({ starts, count }) => starts[count]!));
	const canvas = (atlas.canvas ??= new OffscreenCanvas(width, 3 * PICTURES));
	let missing = strips.filter((strip) => !atlas.of.has(strip));
	if (!missing.length && atlas.version === inks.version) return;
	if (canvas.width < width || atlas.version !== inks.version || atlas.next + missing.length > PICTURES) {
		if (canvas.width < width) canvas.width = width;
		atlas.of.clear();
		[atlas.next, atlas.version] = [0, inks.version];
		missing = strips.slice(0, PICTURES);
	}
	const image = new ImageData(width, 3 * missing.length);
	const pixels = new Uint32Array(image.data.buffer);
	const first = atlas.next;
	for (const strip of missing) {
		makePicture(strip, inks, pixels, width, 3 * (atlas.next - first) * width);
		atlas.of.set(strip, 3 * atlas.next++);
	}
	canvas.getContext("2d")!.putImageData(image, 0, 3 * first);
}

function mix(key: number, inks: Inks) {
	const [model, tool, you, idle] = ["time-model", "time-tool", "span-you", "time-idle"].map((token) => inks.pixel(token)) as [number, number, number, number];
	const [a, b, c, d] = [key & 7, (key >> 3) & 7, (key >> 6) & 7, key >> 9];
	const over = (under: number) => blend(blend(under, tool, b), you, c);
	mixtures.top[key] = over(0);
	mixtures.middle[key] = over(blend(0, model, a));
	mixtures.low[key] = over(blend(blend(0, idle, d), model, a));
	mixtures.known[key] = 1;
}
function makePicture({ starts, bytes, count }: Strip, inks: Inks, pixels: Uint32Array, width: number, begin: number) {
	const { top, middle, low, known } = mixtures;
	if (mixtures.version !== inks.version) known.fill(0);
	mixtures.version = inks.version;
	for (let i = 0, at = 2; i < count; i++, at += 6) {
		const key = LEVEL_OF[bytes[at]!]! | (LEVEL_OF[bytes[at + 1]!]! << 3) | (LEVEL_OF[bytes[at + 2]!]! << 6) | (bytes[at + 3] ? LEVELS << 9 : 0);
		if (!key) continue;
		if (!known[key]) mix(key, inks);
		const [a, b, c] = [top[key]!, middle[key]!, low[key]!];
		for (let x = begin + starts[i]!, end = begin + starts[i + 1]!; x < end; x++) {
			pixels[x] = a;
			pixels[width + x] = b;
			pixels[2 * width + x] = c;
		}
	}
}

/* A lane that has not begun yet, or is gone: dots. */
function drawDots(g: Pen, strip: Strip, at: (column: number) => number, from: number, to: number, top: number, until: number) {
	const { bytes } = strip;
	for (let i = from, place = 6 * from + 2; i <= to && i < strip.count; i++, place += 6) {
		if (bytes[place]! | bytes[place + 1]! | bytes[place + 2]! | bytes[place + 3]!) continue;
		const stop = Math.min(at(strip.starts[i + 1]!), until);
		for (let dot = Math.max(0, at(strip.starts[i]!)); dot < stop; dot += 5) g.fillRect(dot, top + 20, 2, 2);
	}
}

/* The strip of a lane; its colours one after another, so that each is set once. */
function drawStrip(
	g: Pen,
	inks: Inks,
	answer: Drawn,
	lane: DrawnLane,
	x: (t: number) => number,
	top: number,
	width: number,
	now: number,
	offline: boolean,
) {
	const { strip } = lane;
	const { starts, bytes } = strip;
	const column = (answer.to - answer.from) / answer.width;
	const scale = x(answer.from + column) - x(answer.from);
	const begin0 = x(answer.from);
	const at = (n: number) => begin0 + n * scale;
	const first = strip.at(Math.floor(-2 - begin0) / scale);
	const last = strip.at((width + 2 - begin0) / scale);
	const nowX = x(now);
	const picture = last - first > PIECES_MAX ? atlas.of.get(strip) : undefined;
	const many = picture !== undefined;
	if (many) {
		g.imageSmoothingEnabled = false;
		const columns = starts[strip.count]!;
		let row = picture;
		let y = top + STRIP_TOP;
		for (const high of BANDS) {
			g.drawImage(atlas.canvas!, 0, row++, columns, 1, begin0, y, columns * scale, high);
			y += high;
		}
	}
	for (const kind of many ? [2] : [3, 0, 1, 2]) {
		const high = HEIGHTS[kind]!;
		/* Columns side by side that look alike are drawn as one. */
		let [begin, end, level] = [0, Number.NEGATIVE_INFINITY, 0];
		let [hatchBegin, hatchEnd] = [0, Number.NEGATIVE_INFINITY];
		const hatches: number[] = [];
		const flush = () => {
			if (many || end <= begin) return;
			/* A column of several things shows each as strongly as it is there. */
			g.globalAlpha = level / LEVELS;
			g.fillRect(begin, top + 22 - high, end - begin, high);
		};
		g.fillStyle = inks.of(kind === 2 ? "span-you" : STRIP_INKS[kind]!);
		for (let i = first; i <= last && i < strip.count; i++) {
			const share = bytes[6 * i + 2 + kind]!;
			if (!share) continue;
			const left = Math.max(-2, at(starts[i]!));
			const right = Math.min(width + 2, at(starts[i + 1]!), Math.max(left + 1, nowX));
			if (right < 0 || left > width) continue;
			const edge = left + Math.max(1, right - left);
			const like = levelOf(share, kind);
			if (left > end + 0.5 || like !== level) {
				flush();
				[begin, level] = [left, like];
			}
			end = edge;
			if (kind !== 2) continue;
			if (left > hatchEnd + 1) {
				hatches.push(hatchBegin, hatchEnd);
				hatchBegin = left;
			}
			hatchEnd = edge;
		}
		flush();
		g.globalAlpha = 1;
		hatches.push(hatchBegin, hatchEnd);
		for (let i = 0; i < hatches.length; i += 2)
			if (hatches[i + 1]! > hatches[i]!) hatch(g, hatches[i]!, top + 12, hatches[i + 1]! - hatches[i]!, 10, inks);
	}
	/* Before anything is known of it there is nothing to say, unless it is gone now. */
	const begun = strip.count && !(bytes[2]! | bytes[3]! | bytes[4]! | bytes[5]!) ? 1 : 0;
	g.fillStyle = inks.of("time-idle");
	drawDots(g, strip, at, offline ? first : Math.max(first, begun), last, top, Math.min(x(Math.min(now, answer.now)), width));
}

/* By kind; then failed. */
const INKS = ["turn", "tool", "sub", "you", "failed"];
const BAR_INKS = INKS.map((ink) => `span-${ink}`);
const WORD_INKS = INKS.map((ink) => `span-${ink}-ink`);
/* The ink of what failed. */
const BROKEN = 4;
const inkOf = (kind: number, flags: number) => (flags & FAILED ? BROKEN : kind > WAIT ? CALL : kind);

/* Which answer let which call go on: from your time in the strip to the call, where the wait ends. */
const ARROW = 6;
function drawArrow(g: Pen, inks: Inks, x: number, from: number, to: number) {
	g.fillStyle = inks.of("time-you");
	g.fillRect(x - 1, from, 1, to - from);
	g.beginPath();
	g.moveTo(x - 0.5 - ARROW / 2, to - ARROW);
	g.lineTo(x - 0.5 + ARROW / 2, to - ARROW);
	g.lineTo(x - 0.5, to);
	g.fill();
}

const HEIGHT = 17;
const NARROW = 3;
function drawSpan(g: Pen, inks: Inks, kind: number, open: boolean, left: number, right: number, top: number) {
	const w = Math.max(1, right - left - 1);
	g.fillStyle = inks.of(BAR_INKS[kind]!);
	if (w < 4) {
		g.fillRect(left, top, w, HEIGHT);
	} else {
		g.beginPath();
		g.roundRect(left, top, w, HEIGHT, open ? [3, 0, 0, 3] : 3);
		g.fill();
	}
	if (kind === WAIT) hatch(g, left, top + HEIGHT - 4, w, 4, inks);
	if (kind === BROKEN) {
		g.fillStyle = inks.of("failed");
		g.fillRect(left, top + HEIGHT - 2, w, 2);
	}
	/* An open span has no end yet: its edge is a row of teeth. */
	if (open) {
		g.fillStyle = inks.of("ground");
		for (let y = top; y < top + HEIGHT; y += 4) g.fillRect(left + w - 2, y + 2, 2, 2);
	}
}

/* @begin: where the words may begin. */
function drawWords(g: Pen, inks: Inks, list: Ranked, i: number, begin: number, right: number, top: number) {
	const from = Math.max(begin, 0) + 5;
	const room = right - 5 - from;
	if (room <= 4) return;
	const [kind, flags] = [list.kind[i]!, list.flags[i]!];
	if (!(Math.abs((list.rooms[i] ?? -1) - room) <= 0.01)) {
		const failed = (flags & FAILED) !== 0;
		const name = fit(g, failed ? `✕ ${list.name(i)}` : list.name(i), room);
		list.rooms[i] = room;
		/* A failure is marked where there is no room for its name, too. */
		list.words[i] = failed && name.length < 4 ? "✕" : name;
	}
	const words = list.words[i];
	if (!words) return;
	const ink = inkOf(kind, flags);
	g.fillStyle = inks.of(WORD_INKS[ink]!);
	g.fillText(words, from, top + (ink === WAIT ? 7 : 9));
}

export const edges = (span: Span, x: (t: number) => number, now: number, width: number) =>
	[
		Math.max(-4, x(span.t)),
		Math.min(width + 4, x(span.end === Number.POSITIVE_INFINITY ? now : span.end)),
	] as const;

/* The same call again and again, at the end of a lane that a rule says does not get on: from
 * which on, and its name. */
function repeated({ list: { calls } }: DrawnLane): { t: number; name: string } | null {
	let [count, t, name] = [0, 0, ""];
	for (let i = calls.count - 1; i >= 0; i--) {
		if (calls.kind[i] !== CALL) continue;
		if (count && calls.name(i) !== name) break;
		[count, t, name] = [count + 1, calls.t[i]!, calls.name(i)];
	}
	return count > 2 ? { t, name } : null;
}

function drawSpans(g: Pen, inks: Inks, scene: Scene, block: Block, lane: DrawnLane, top: number, width: number) {
	const { view, now, like } = scene;
	const perPixel = (view.to - view.from) / width;
	const x = (t: number) => (t - view.from) / perPixel;
	const { calls, waits } = lane.list;
	const again = scene.stalled.has(block.id) ? repeated(lane) : null;
	const here = (it: Picked | null) => (it?.lane === block.id ? it.span : null);
	const [picked, hover] = [here(scene.picked), here(scene.hover)];
	/* Narrow ones of a row that lie side by side are one bar; by their row. */
	const bars: { left: number; right: number; ink: string; y: number }[] = [];
	const flush = (row: number) => {
		const bar = bars[row];
		if (!bar?.ink) return;
		g.fillStyle = inks.of(bar.ink);
		g.fillRect(bar.left, bar.y, Math.max(1, bar.right - bar.left), HEIGHT);
		bar.ink = "";
	};
	/* Waits lie over the call that they are part of; its name begins behind them. */
	for (const list of [calls, waits]) {
		const { t: begins, end: ends, kind: kinds, flags, line: lines, count } = list;
		const is = (span: Span | null, i: number) =>
			span !== null && span.t === begins[i] && span.kind === kinds[i] && span.line === lines[i];
		for (let i = list.find(view.from); i < count; i++) {
			const t = begins[i]!;
			if (t > view.to) break;
			const until = ends[i]!;
			const open = until === Number.POSITIVE_INFINITY;
			const left = Math.max(-4, (t - view.from) / perPixel);
			const right = Math.min(width + 4, ((open ? now : until) - view.from) / perPixel);
			if (right < 0 || left > width || right <= left - 1) continue;
			const kind = kinds[i]!;
			const down = rowTop(block, kind, lines[i]!);
			const y = top + down + 2;
			const row = Math.floor(down / ROW);
			const marked = like !== null && kind !== TURN && list.name(i) === like;
			const [chosen, under] = [is(picked, i), is(hover, i)];
			const ink = inkOf(kind, flags[i]!);
			if (right - left < NARROW && !again) {
				const colour = marked ? "accent" : BAR_INKS[ink]!;
				const bar = (bars[row] ??= { left, right, ink: "", y });
				if (bar.ink === colour && left <= bar.right + 0.5) {
					if (right > bar.right) bar.right = right;
				} else {
					flush(row);
					bar.left = left;
					bar.right = right;
					bar.ink = colour;
					bar.y = y;
				}
				if (!chosen && !under) continue;
			}
			flush(row);
			drawSpan(g, inks, ink, open, left, right, y);
			if (kind === WAIT && flags[i]! & ALLOWED && !open && right - left > ARROW && right <= width) drawArrow(g, inks, right, top + STRIP_TOP + 10, y);
			if (right - left > 10) {
				const wait = list === calls && kind !== TURN ? waits.after(t) : waits.count;
				const over = wait < waits.count && waits.t[wait]! < Math.min(until, t + 4 * perPixel) && waits.line[wait] === lines[i];
				drawWords(g, inks, list, i, over ? x(Math.min(waits.end[wait]!, now)) : left, right, y);
			}
			if (again && kind === CALL && t >= again.t && list.name(i) === again.name) {
				g.strokeStyle = inks.of("needs-you");
				g.setLineDash([3, 2]);
				g.strokeRect(left + 0.5, y + 0.5, Math.max(2, right - left - 2), HEIGHT - 1);
				g.setLineDash([]);
			}
			if (!chosen && !under && !marked) continue;
			g.strokeStyle = inks.of(chosen || marked ? "accent" : "ink");
			g.lineWidth = chosen ? 2 : 1;
			g.strokeRect(left - 0.5, y - 0.5, Math.max(2, right - left), HEIGHT + 1);
			g.lineWidth = 1;
		}
		for (let row = 0; row < bars.length; row++) flush(row);
	}
}

/* What a lane counts, as a line over its ground; the highest that the answer has is the top. */
function drawValues(g: Pen, inks: Inks, answer: Drawn, block: Block, lane: DrawnLane, x: (t: number) => number, top: number, width: number) {
	const column = ((answer.to - answer.from) / answer.width) * VALUE_COLUMNS;
	const begin = x(answer.from);
	const scale = x(answer.from + column) - begin;
	for (const { kind, pieces, most } of lane.values) {
		const foot = top + valueTop(block, kind) + VALUE_ROW - 4;
		const high = VALUE_ROW - 10;
		g.fillStyle = inks.of("line");
		g.fillRect(0, foot, width, 1);
		if (!most) continue;
		g.fillStyle = inks.of("span-sub");
		g.beginPath();
		for (const { column: first, columns, value } of pieces) {
			const left = begin + first * scale;
			const right = left + columns * scale;
			if (!value || right < 0 || left > width) continue;
			const tall = Math.max(1, (high * value) / most);
			g.rect(left, foot - tall, right - left, tall);
		}
		g.fill();
	}
}

/* Answers how many lanes were drawn. */
export function drawLanes(canvas: HTMLCanvasElement, inks: Inks, scene: Scene, width: number, height: number): number {
	const g = surface(canvas, inks, width, height);
	const { view, answer, now, scroll, blocks } = scene;
	const perPixel = (view.to - view.from) / width;
	const x = (t: number) => (t - view.from) / perPixel;
	const step = tickMs(perPixel);

	g.fillStyle = inks.of("line");
	for (const t of ticks(view, step)) g.fillRect(Math.round(x(t)), 0, 1, height);

	const { pinned } = scene;
	if (answer) {
		const strips: Strip[] = [];
		for (const [from, to] of [[0, pinned], [scroll + pinned, scroll + height]] as const)
			for (let i = blockAt(blocks, from); i < blocks.length && blocks[i]!.top < to; i++) {
				const strip = answer.lanes.get(blocks[i]!.id)?.strip;
				if (strip && strip.count > PIECES_MAX) strips.push(strip);
			}
		if (strips.length) makePictures(strips, inks);
	}

	let drawn = 0;
	const draw = (from: number, to: number, shift: number) => {
		for (let i = blockAt(blocks, from); i < blocks.length && blocks[i]!.top < to; i++) {
			const block = blocks[i]!;
			const top = block.top - shift;
			const lane = answer?.lanes.get(block.id);
			drawn++;
			if (i) {
				g.fillStyle = inks.of("line");
				g.fillRect(0, Math.round(top), width, 1);
			}
			if (!lane || !answer) continue;
			drawStrip(g, inks, answer, lane, x, top, width, now, scene.offline.has(block.id));
			drawSpans(g, inks, scene, block, lane, top, width);
			drawValues(g, inks, answer, block, lane, x, top, width);
		}
	};
	if (pinned) {
		draw(0, pinned, 0);
		g.save();
		g.beginPath();
		g.rect(0, pinned, width, height);
		g.clip();
	}
	draw(scroll + pinned, scroll + height, scroll);
	if (pinned) {
		g.restore();
		g.fillStyle = inks.of("line-strong");
		g.fillRect(0, pinned - 1, width, 1);
	}
	if (scene.ranges.length) {
		/* All else steps back. */
		g.globalAlpha = 0.5;
		g.fillStyle = inks.of("ground");
		let behind = 0;
		for (const { from, to } of scene.ranges) {
			const before = Math.min(width, x(from));
			if (before > behind) g.fillRect(behind, 0, before - behind, height);
			behind = Math.max(behind, x(to));
		}
		if (behind < width) g.fillRect(behind, 0, width - behind, height);
		g.globalAlpha = 1;
		g.fillStyle = inks.of("accent");
		for (const { from, to } of scene.ranges) {
			g.fillRect(x(from), 0, 1, height);
			g.fillRect(x(to), 0, 1, height);
		}
	}
	g.fillStyle = inks.of("ink-2");
	g.fillRect(Math.round(x(now)), 0, 1, height);
	return drawn;
}

export const RULER = 50;
export const OVERVIEW = 24;

/* The overview as it was drawn last: drawn again only when what it shows has changed. */
const drawn = { canvas: null as OffscreenCanvas | null, of: [] as unknown[], times: 0 };
export const overviews = () => drawn.times;

function overviewOf(inks: Inks, overview: Drawn, shown: readonly Block[], width: number): OffscreenCanvas {
	const of = [overview, shown, width, devicePixelRatio, inks, inks.version];
	if (drawn.canvas && of.every((it, i) => it === drawn.of[i])) return drawn.canvas;
	const dense = devicePixelRatio || 1;
	const canvas = (drawn.canvas ??= new OffscreenCanvas(1, 1));
	const [w, h] = [Math.max(1, Math.round(width * dense)), Math.round(OVERVIEW * dense)];
	canvas.width = w;
	canvas.height = h;
	const g = canvas.getContext("2d")!;
	const image = g.createImageData(w, h);
	const pixels = new Uint32Array(image.data.buffer);
	const colours = STRIP_INKS.map((token) => inks.pixel(token));
	const lanes = shown.flatMap(({ id }) => overview.lanes.get(id) ?? []);
	const high = Math.min(3, 20 / Math.max(1, lanes.length)) * dense;
	const column = w / overview.width;
	lanes.forEach(({ strip: { bytes, count } }, row) => {
		const top = Math.floor(2 * dense + row * high);
		const bottom = Math.max(top + 1, Math.floor(2 * dense + row * high + high - (high > 2 ? 1 : 0)));
		/* A column has one colour: yours, else what took most of it. */
		let [begin, left, right, last] = [0, 0, 0, -1];
		const flush = () => {
			if (last < 0) return;
			const colour = colours[last]!;
			/* Idle is a line, which nothing else gives way to. */
			if (last === 3) {
				for (let p = (bottom - 1) * w + left; p < (bottom - 1) * w + right; p++) pixels[p] ||= colour;
				return;
			}
			for (let line = top * w; line < bottom * w; line += w) pixels.fill(colour, line + left, line + right);
		};
		/* Those side by side that look alike are one. */
		for (let i = 0, at = 2; i < count && begin < overview.width; i++, at += 6) {
			const from = Math.floor(begin * column);
			begin += bytes[at - 2]! | (bytes[at - 1]! << 8);
			const [model, tool, idle] = [bytes[at]!, bytes[at + 1]!, bytes[at + 3]!];
			let kind = bytes[at + 2] ? 2 : model >= tool && model >= idle ? 0 : tool >= idle ? 1 : 3;
			if (!bytes[at + kind]) kind = -1;
			if (kind !== last || from > right) {
				flush();
				[left, last] = [from, kind];
			}
			right = Math.min(w, Math.max(from + 1, Math.floor(begin * column)));
		}
		flush();
	});
	g.putImageData(image, 0, 0);
	drawn.of = of;
	drawn.times++;
	return canvas;
}

/* Above: everything there is, with the view as a window. Below: the ruler, with the ranges. */
export function drawRuler(canvas: HTMLCanvasElement, inks: Inks, scene: Scene, width: number) {
	const g = surface(canvas, inks, width, RULER);
	const { view, overview, ranges } = scene;
	const perPixel = (view.to - view.from) / width;
	const x = (t: number) => (t - view.from) / perPixel;
	if (overview) {
		const all = (t: number) => ((t - overview.from) / (overview.to - overview.from)) * width;
		g.drawImage(overviewOf(inks, overview, scene.lanes, width), 0, 0, width, OVERVIEW);
		const left = Math.max(0, all(view.from));
		const right = Math.min(width, all(view.to));
		g.globalAlpha = 0.6;
		g.fillStyle = inks.of("raised");
		g.fillRect(0, 0, left, OVERVIEW);
		g.fillRect(right, 0, width, OVERVIEW);
		g.globalAlpha = 1;
		g.strokeStyle = inks.of("ink-3");
		g.strokeRect(left + 0.5, 1.5, Math.max(2, right - left - 1), 21);
	}
	g.fillStyle = inks.of("line");
	g.fillRect(0, OVERVIEW, width, 1);
	const shown = ranges.map(({ from, to }) => [x(from), x(to)] as const);
	g.fillStyle = inks.of("selected");
	for (const [a, b] of shown) g.fillRect(a, OVERVIEW + 1, b - a, 25);
	const step = tickMs(perPixel);
	g.fillStyle = inks.of("ink-3");
	for (const t of ticks(view, step)) {
		const at = x(t);
		g.fillRect(Math.round(at), 42, 1, 8);
		/* A range has its own words. */
		if (shown.some(([a, b]) => at > a - 70 && at < b + 4)) continue;
		if (at + 60 < width) g.fillText(tickWords(t, step), at + 4, 38);
	}
	shown.forEach(([a, b], i) => drawHandles(g, inks, ranges[i]!, a, b, width));
}

function drawHandles(g: Pen, inks: Inks, { from, to }: Stretch, a: number, b: number, width: number) {
	g.fillStyle = inks.of("accent");
	for (const edge of [a, b]) {
		g.fillRect(edge, OVERVIEW + 1, 1, 25);
		g.beginPath();
		g.roundRect(edge - 2.5, 31, 6, 12, 2);
		g.fill();
	}
	g.textAlign = "center";
	const took = length(to - from);
	const words = `${stretchWords(from, to)} · ${took}`;
	const [left, right] = [Math.max(0, a), Math.min(width, b)];
	if (right - left > 260) g.fillText(words, (left + right) / 2, 38);
	else if (right - left > 70) g.fillText(took, (left + right) / 2, 38);
}
