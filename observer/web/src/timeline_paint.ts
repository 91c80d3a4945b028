/* Draws the timeline. Cost follows the lanes in sight and the columns, not the spans: what is
 * narrower than a column is in the strip alone. */

import { clockTime } from "./clock";
import {
	type Answer,
	type Block,
	blockAt,
	CALL,
	FAILED,
	type LaneTimes,
	PART,
	rowTop,
	type Span,
	TURN,
	WAIT,
} from "./timeline_data";
import { length } from "./times";

export interface Stretch {
	from: number;
	to: number;
}
export interface Picked {
	lane: string;
	span: Span;
}
export interface Scene {
	view: Stretch;
	range: Stretch | null;
	now: number;
	answer: Answer | null;
	overview: Answer | null;
	blocks: readonly Block[];
	scroll: number;
	hover: Picked | null;
	picked: Picked | null;
	offline: ReadonlySet<string>;
	stalled: ReadonlySet<string>;
}

/* Colours come from the tokens, resolved by the browser: light-dark() included. */
export class Inks {
	#probe: HTMLElement;
	#known = new Map<string, string>();

	constructor(probe: HTMLElement) {
		this.#probe = probe;
	}
	forget() {
		this.#known.clear();
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

export function surface(canvas: HTMLCanvasElement, width: number, height: number) {
	const dense = devicePixelRatio || 1;
	const [w, h] = [Math.round(width * dense), Math.round(height * dense)];
	/* To set a size is to make the canvas anew. */
	if (canvas.width !== w) canvas.width = w;
	if (canvas.height !== h) canvas.height = h;
	const g = canvas.getContext("2d")!;
	g.setTransform(dense, 0, 0, dense, 0, 0);
	g.clearRect(0, 0, width, height);
	g.font = `11px ${getComputedStyle(document.documentElement).getPropertyValue("--font-ui")}`;
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
const tickStart = (step: number, from: number) => {
	/* Hours and days begin where the reader's do. */
	const zone = new Date(from).getTimezoneOffset() * 60_000;
	return Math.ceil((from - zone) / step) * step + zone;
};
function tickWords(t: number, step: number): string {
	if (step >= 864e5) return new Date(t).toLocaleDateString("en-CA");
	const words = clockTime(t);
	if (step < 1000) return `${words}.${String(Math.floor(t % 1000)).padStart(3, "0")}`;
	return step >= 6e4 ? words.slice(0, 5) : words;
}

function hatch(g: CanvasRenderingContext2D, x: number, y: number, w: number, h: number, ink: string) {
	g.save();
	g.beginPath();
	g.rect(x, y, w, h);
	g.clip();
	g.strokeStyle = ink;
	g.lineWidth = 2;
	g.beginPath();
	for (let at = x - h - (x % 6); at < x + w; at += 6) {
		g.moveTo(at, y + h);
		g.lineTo(at + h, y);
	}
	g.stroke();
	g.restore();
}

/* Lengths of texts do not change: they are measured once. */
const widths = new Map<string, number>();
const WIDTHS_MAX = 20_000;
function widthOf(g: CanvasRenderingContext2D, text: string): number {
	let width = widths.get(text);
	if (width === undefined) {
		if (widths.size > WIDTHS_MAX) widths.clear();
		width = g.measureText(text).width;
		widths.set(text, width);
	}
	return width;
}
/* As much of the name as there is room for. */
function fit(g: CanvasRenderingContext2D, name: string, room: number): string {
	if (room < 14) return "";
	const text = name.slice(0, 300);
	if (text.length === name.length && widthOf(g, text) <= room) return text;
	let [low, high] = [0, text.length];
	while (low < high) {
		const middle = (low + high + 1) >> 1;
		if (g.measureText(`${text.slice(0, middle)}…`).width <= room) low = middle;
		else high = middle - 1;
	}
	return low > 1 ? `${text.slice(0, low).trimEnd()}…` : "";
}

const HEIGHTS = [6, 10, 10, 2]; /* model, tool, you, idle: height tells them apart too */
const STRIP_INKS = ["time-model", "time-tool", "time-you", "time-idle"];

/* How many shades a share is told apart by. */
const LEVELS = 6;

/* The strip of a lane; its colours one after another, so that each is set once. */
function strip(
	g: CanvasRenderingContext2D,
	inks: Inks,
	answer: Answer,
	lane: LaneTimes,
	x: (t: number) => number,
	top: number,
	width: number,
	now: number,
	dots: boolean,
) {
	const column = (answer.to - answer.from) / answer.width;
	const at = (n: number) => x(answer.from + n * column);
	let begun = dots;
	for (const kind of [3, 0, 1, 2]) {
		const high = HEIGHTS[kind]!;
		const ink = inks.of(kind === 2 ? "span-you" : STRIP_INKS[kind]!);
		/* Columns side by side that look alike are drawn as one. */
		let [begin, end, level] = [0, Number.NEGATIVE_INFINITY, 0];
		let [hatchBegin, hatchEnd] = [0, Number.NEGATIVE_INFINITY];
		const flush = () => {
			if (end <= begin) return;
			/* A column of several things shows each as strongly as it is there. */
			g.globalAlpha = level / LEVELS;
			g.fillRect(begin, top + 22 - high, end - begin, high);
		};
		const flushHatch = () => {
			g.globalAlpha = 1;
			if (hatchEnd > hatchBegin)
				hatch(g, hatchBegin, top + 12, hatchEnd - hatchBegin, 10, inks.of("time-you"));
		};
		g.fillStyle = ink;
		for (const { column: first, columns, shares } of lane.stretches) {
			const share = shares[kind]!;
			if (!share) {
				if (kind === 3 && begun && !shares.some(Boolean)) {
					const stop = Math.min(at(first + columns), x(Math.min(now, answer.now)), width);
					g.globalAlpha = 1;
					for (let dot = Math.max(0, at(first)); dot < stop; dot += 5)
						g.fillRect(dot, top + 20, 2, 2);
				}
				continue;
			}
			begun = true;
			const left = Math.max(-2, at(first));
			const right = Math.min(width + 2, at(first + columns), Math.max(left + 1, x(now)));
			if (right < 0 || left > width) continue;
			const edge = left + Math.max(1, right - left);
			const like = kind === 3 ? LEVELS : Math.min(LEVELS, 2 + Math.ceil(((LEVELS - 2) * share) / 255));
			if (left > end + 0.5 || like !== level) {
				flush();
				[begin, level] = [left, like];
			}
			end = edge;
			if (kind !== 2) continue;
			if (left > hatchEnd + 1) {
				flushHatch();
				hatchBegin = left;
			}
			hatchEnd = edge;
		}
		flush();
		flushHatch();
	}
}

function inkOf({ kind, flags }: Span): string {
	if (flags & FAILED) return "failed";
	return kind === TURN ? "turn" : kind === WAIT ? "you" : kind === PART ? "sub" : "tool";
}

const HEIGHT = 17;
/* @begin: where the words may begin. */
function drawSpan(
	g: CanvasRenderingContext2D,
	inks: Inks,
	span: Span,
	left: number,
	right: number,
	top: number,
	begin: number,
) {
	const kind = inkOf(span);
	const open = span.end === Number.POSITIVE_INFINITY;
	const failed = kind === "failed";
	const w = Math.max(1, right - left - 1);
	g.fillStyle = inks.of(`span-${kind}`);
	if (w < 4) {
		g.fillRect(left, top, w, HEIGHT);
	} else {
		g.beginPath();
		g.roundRect(left, top, w, HEIGHT, open ? [3, 0, 0, 3] : 3);
		g.fill();
	}
	if (kind === "you") hatch(g, left, top + HEIGHT - 4, w, 4, inks.of("time-you"));
	if (failed) {
		g.fillStyle = inks.of("failed");
		g.fillRect(left, top + HEIGHT - 2, w, 2);
	}
	/* An open span has no end yet: its edge is a row of teeth. */
	if (open) {
		g.fillStyle = inks.of("ground");
		for (let y = top; y < top + HEIGHT; y += 4) g.fillRect(left + w - 2, y + 2, 2, 2);
	}
	const from = Math.max(begin, 0) + 5;
	const room = left + w - from - 4;
	const name = fit(g, failed ? `✕ ${span.name}` : span.name, room);
	/* A failure is marked where there is no room for its name, too. */
	const words = failed && name.length < 4 ? (room > 4 ? "✕" : "") : name;
	if (!words) return;
	g.fillStyle = inks.of(`span-${kind}-ink`);
	g.fillText(words, from, top + (kind === "you" ? 7 : 9));
}

export const edges = (span: Span, x: (t: number) => number, now: number, width: number) =>
	[
		Math.max(-4, x(span.t)),
		Math.min(width + 4, x(span.end === Number.POSITIVE_INFINITY ? now : span.end)),
	] as const;

const same = (a: Picked | null, lane: string, span: Span) =>
	a !== null && a.lane === lane && a.span.t === span.t && a.span.kind === span.kind && a.span.line === span.line;

/* The same call again and again, at the end of a lane that a rule says does not get on. */
function repeated(lane: LaneTimes): ReadonlySet<Span> {
	const calls = lane.spans.filter(({ kind }) => kind === CALL);
	const last = calls.at(-1);
	const first = calls.findLastIndex(({ name }) => name !== last?.name) + 1;
	return new Set(calls.length - first > 2 ? calls.slice(first) : []);
}

/* Answers how many lanes were drawn. */
export function drawLanes(canvas: HTMLCanvasElement, inks: Inks, scene: Scene, width: number, height: number): number {
	const g = surface(canvas, width, height);
	const { view, answer, now, scroll, blocks } = scene;
	const perPixel = (view.to - view.from) / width;
	const x = (t: number) => (t - view.from) / perPixel;
	const step = tickMs(perPixel);

	g.fillStyle = inks.of("line");
	for (let t = tickStart(step, view.from); t < view.to; t += step)
		g.fillRect(Math.round(x(t)), 0, 1, height);

	let drawn = 0;
	for (let i = blockAt(blocks, scroll); i < blocks.length && blocks[i]!.top < scroll + height; i++) {
		const block = blocks[i]!;
		const top = block.top - scroll;
		const lane = answer?.lanes.get(block.id);
		drawn++;
		if (i) {
			g.fillStyle = inks.of("line");
			g.fillRect(0, Math.round(top), width, 1);
		}
		if (!lane || !answer) continue;
		strip(g, inks, answer, lane, x, top, width, now, scene.offline.has(block.id));
		const waiting = lane.spans.filter(({ kind }) => kind === WAIT);
		const again = scene.stalled.has(block.id) ? repeated(lane) : null;
		/* Waits lie over the call that they are part of; its name begins behind them. */
		for (const waits of [false, true])
			for (const span of lane.spans) {
				if ((span.kind === WAIT) !== waits) continue;
				const [left, right] = edges(span, x, now, width);
				if (right < 0 || left > width || right <= left - 1) continue;
				const y = top + rowTop(block, span) + 2;
				const wait = waits
					? undefined
					: waiting.find((it) => it.t < span.t + 4 * perPixel && it.end > span.t && it.t >= span.t);
				drawSpan(g, inks, span, left, right, y, wait && span.kind !== TURN ? x(Math.min(wait.end, now)) : left);
				if (again?.has(span)) {
					g.strokeStyle = inks.of("needs-you");
					g.setLineDash([3, 2]);
					g.strokeRect(left + 0.5, y + 0.5, Math.max(2, right - left - 2), HEIGHT - 1);
					g.setLineDash([]);
				}
				const chosen = same(scene.picked, block.id, span);
				if (!chosen && !same(scene.hover, block.id, span)) continue;
				g.strokeStyle = inks.of(chosen ? "accent" : "ink");
				g.lineWidth = chosen ? 2 : 1;
				g.strokeRect(left - 0.5, y - 0.5, Math.max(2, right - left), HEIGHT + 1);
				g.lineWidth = 1;
			}
	}
	if (scene.range) {
		const [a, b] = [x(scene.range.from), x(scene.range.to)];
		/* All else steps back. */
		g.globalAlpha = 0.5;
		g.fillStyle = inks.of("ground");
		g.fillRect(0, 0, Math.max(0, a), height);
		g.fillRect(Math.min(width, b), 0, width, height);
		g.globalAlpha = 1;
		g.fillStyle = inks.of("accent");
		g.fillRect(a, 0, 1, height);
		g.fillRect(b, 0, 1, height);
	}
	g.fillStyle = inks.of("ink-2");
	g.fillRect(Math.round(x(now)), 0, 1, height);
	return drawn;
}

export const RULER = 50;
export const OVERVIEW = 24;

/* Above: everything there is, with the view as a window. Below: the ruler, with the range. */
export function drawRuler(canvas: HTMLCanvasElement, inks: Inks, scene: Scene, width: number) {
	const g = surface(canvas, width, RULER);
	const { view, overview, range } = scene;
	const perPixel = (view.to - view.from) / width;
	const x = (t: number) => (t - view.from) / perPixel;
	if (overview) {
		const all = (t: number) => ((t - overview.from) / (overview.to - overview.from)) * width;
		const ids = scene.blocks.filter(({ id }) => overview.lanes.has(id));
		const high = Math.min(3, 20 / Math.max(1, ids.length));
		const column = width / overview.width;
		ids.forEach(({ id }, row) => {
			for (const { column: first, columns, shares } of overview.lanes.get(id)?.stretches ?? []) {
				const most = Math.max(...shares);
				if (!most) continue;
				const kind = shares[2] ? 2 : shares.indexOf(most);
				g.fillStyle = inks.of(STRIP_INKS[kind]!);
				g.fillRect(first * column, 2 + row * high, Math.max(1, columns * column), kind === 3 ? 0.5 : Math.max(0.5, high - 1));
			}
		});
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
	const [a, b] = range ? [x(range.from), x(range.to)] : [0, 0];
	if (range) {
		g.fillStyle = inks.of("selected");
		g.fillRect(a, OVERVIEW + 1, b - a, 25);
	}
	const step = tickMs(perPixel);
	g.fillStyle = inks.of("ink-3");
	for (let t = tickStart(step, view.from); t < view.to; t += step) {
		const at = x(t);
		g.fillRect(Math.round(at), 42, 1, 8);
		/* The range has its own words. */
		if (range && at > a - 70 && at < b + 4) continue;
		if (at + 60 < width) g.fillText(tickWords(t, step), at + 4, 38);
	}
	if (!range) return;
	g.fillStyle = inks.of("accent");
	for (const edge of [a, b]) {
		g.fillRect(edge, OVERVIEW + 1, 1, 25);
		g.beginPath();
		g.roundRect(edge - 2.5, 31, 6, 12, 2);
		g.fill();
	}
	g.textAlign = "center";
	const took = length(range.to - range.from);
	const words = `${clockTime(range.from)} – ${clockTime(range.to)} · ${took}`;
	const middle = (Math.max(0, a) + Math.min(width, b)) / 2;
	if (b - a > 260) g.fillText(words, middle, 38);
	else if (b - a > 70) g.fillText(took, middle, 38);
}
