/* What the timeline shows, what it knows of it, and what it asks for. */

import { batch, computed, signal } from "@preact/signals";
import { request as get } from "./api";
import { DECODE, LAYOUT, timed } from "./phases";
import { keepQuery } from "./session";
import { brokerNow, lanes } from "./store";
import { type Answer, type Block, blockAt, decode, growLines, layOut, rowTop, type Span } from "./timeline_data";
import { edges, type Picked } from "./timeline_paint";
import { type Arrangement, arrangement, others, pinnedCount, readArrangement, shownIds, writeArrangement } from "./timeline_lanes";
import { Asker, askReport, joined, pairOf as pair, rangeOf, rangeQuery, readPair, type Report, type Stretch } from "./times";

const MINUTE_MS = 60_000;
const FIRST_MS = 10 * MINUTE_MS;
const FRESH_MIN_MS = 10_000;
const VIEW_MIN_MS = 20;
const VIEW_MAX_MS = 20 * 365 * 86_400_000;
const REFRESH_MS = 2000;
const OVERVIEW_MS = 15_000;
/* Room for now at the right, part of the view. */
const AHEAD = 0.04;
/* So much on either side comes with the view, for the next pan. */
const OVERSCAN = 0.5;
/* Longer lists of lanes are not put in an address: all are asked for. */
const NAMED_MAX = 20;
/* Letters that come faster than this are of one word. */
const STEP_MS = 2000;

export const view = signal<Stretch>({ from: 0, to: 1 });
export const follow = signal(true);
/* What is reported about: by time, none touching another. */
export const ranges = signal<readonly Stretch[]>([]);
export const asTable = signal(false);
export const answer = signal<Answer | null>(null);
export const overview = signal<Answer | null>(null);
export const picked = signal<Picked | null>(null);
export const hover = signal<Picked | null>(null);
/* Every span of this name is marked. */
export const like = signal<string | null>(null);
export const failed = signal("");
export const rangeReport = signal<Report | null>(null);
/* Why there is none. */
export const rangeFailed = signal("");
export const size = signal({ width: 0, height: 0 });
/* A block for each lane that was ever here; where it lies is written into it. */
const known = new Map<string, Block>();
const linesChanged = signal(0);

function blockOf(id: string): Block {
	let block = known.get(id);
	if (!block) {
		block = { id, lines: { turns: false, calls: 0, parts: 0, values: 0 }, top: 0, height: 0 };
		known.set(id, block);
	}
	return block;
}

export const shownBlocks = computed(() => shownIds.value.map(blockOf));
/* A new list whenever one of them lies elsewhere. */
export const blocks = computed((): readonly Block[] => {
	linesChanged.value;
	timed(LAYOUT, () => layOut(shownBlocks.value));
	return shownBlocks.value.slice();
});
export const total = computed(() => {
	const last = blocks.value.at(-1);
	return last ? last.top + last.height : 0;
});
/* Pinned lanes stay on top, in so many pixels; not when they leave too little to the others. */
export const pinnedHeight = computed(() => {
	const last = blocks.value[pinnedCount.value - 1];
	const high = last ? last.top + last.height : 0;
	return high > 0.6 * size.value.height ? 0 : high;
});
const inState = (state: string) => new Set(shownIds.value.filter((id) => lanes.still(id)?.state === state));
export const offline = computed(() => inState("offline"));
export const stalled = computed(() => inState("stalled"));

/* --- Asking: the view, now and then everything, one at a time --- */

export const asked = { requests: 0, last: 0 };
let timer = 0;
let open = false;
let overviewAtMs = Number.NEGATIVE_INFINITY;
let wantFit = false;
/* The reader has not said how much is in view: all there is, up to FIRST_MS. */
let fresh = true;

export const only = () => {
	const { filter, hidden } = arrangement.value;
	return (filter || hidden.length) && shownIds.value.length <= NAMED_MAX ? shownIds.value.join(",") : "";
};

async function ask(stretch: Stretch | null, width: number): Promise<Answer> {
	const id = ++asked.requests;
	const query = new URLSearchParams({ width: String(Math.max(1, Math.min(16_384, Math.round(width)))), request: String(id) });
	if (stretch) {
		query.set("from", String(Math.max(0, Math.floor(stretch.from))));
		query.set("to", String(Math.max(1, Math.ceil(stretch.to))));
		const named = only();
		if (named) query.set("lanes", named);
	}
	const response = await get(`/api/timeline?${query}`);
	const bytes = await response.arrayBuffer();
	const found = timed(DECODE, () => decode(bytes, answer.peek()));
	if (found.request !== id) throw new Error("the answer is to another question");
	return found;
}

export const asker = new Asker<Answer>((error) => {
	failed.value = `No timeline: ${error.message}.`;
	later();
}, true);

/* Lanes that the fleet has not, or no more. */
function know(found: Answer) {
	const more = [...found.lanes.keys()].filter((id) => !others.value.includes(id) && !lanes.get(id));
	if (more.length) others.value = [...others.value, ...more];
}

function take(found: Answer) {
	batch(() => {
		let grown = false;
		for (const { id, lines } of found.lanes.values()) grown = growLines(blockOf(id).lines, lines) || grown;
		if (grown) linesChanged.value++;
		answer.value = found;
		failed.value = "";
		know(found);
	});
	later();
}

/* Answers are drawn where they belong, so one that is late is still right; those from before a
 * newer one never come, as they are asked for one after another. */
export function askView() {
	clearTimeout(timer);
	const { width } = size.value;
	if (!open || !width) return;
	const { from, to } = view.value;
	const more = (to - from) * OVERSCAN;
	const stretch = { from: Math.max(0, from - more), to: to + more };
	const columns = (width * (stretch.to - stretch.from)) / (to - from);
	asker.ask(() => ask(stretch, columns), take);
}
/* Whether what is here is as fine as the view, and reaches as far. */
export function ensure() {
	const found = answer.value;
	const { from, to } = view.value;
	const fine = found && (found.to - found.from) / found.width / ((to - from) / size.value.width);
	if (!found || fine! > 1.2 || fine! < 0.6 || found.from > Math.max(0, from) || found.to < to) askView();
}

function askOverview() {
	if (!open || !size.value.width) return;
	asker.ask(
		() => ask(null, Math.min(2000, size.value.width)),
		(found) => {
			overviewAtMs = performance.now();
			overview.value = found;
			know(found);
			if (wantFit) fit();
			tick();
			askView();
		},
	);
}

function later() {
	clearTimeout(timer);
	if (!open || document.hidden) return;
	timer = setTimeout(() => {
		if (performance.now() - overviewAtMs > OVERVIEW_MS) askOverview();
		else askView();
	}, REFRESH_MS);
}

export function start() {
	open = true;
	askOverview();
	const onVisible = () => (document.hidden ? clearTimeout(timer) : askView());
	document.addEventListener("visibilitychange", onVisible);
	/* Back and forward: the address says how the lanes lay. */
	const onStep = () => {
		const [, query] = /^#\/timeline(?:\?(.*))?$/.exec(location.hash) ?? [];
		if (query !== undefined || location.hash === "#/timeline") readQuery(query ?? "");
	};
	addEventListener("popstate", onStep);
	return () => {
		removeEventListener("popstate", onStep);
		open = false;
		clearTimeout(timer);
		asker.forget();
		strip.forget();
		document.removeEventListener("visibilitychange", onVisible);
	};
}

/* --- The report of the range --- */

const strip = new Asker<Report>((error) => {
	rangeReport.value = null;
	rangeFailed.value = `No report of it: ${error.message}.`;
}, true);

export function setRanges(next: readonly Stretch[]) {
	ranges.value = joined(next);
	const now = ranges.value;
	if (now.length)
		strip.ask(
			() => askReport("flat", rangeOf(now), only()),
			(found) => {
				if (!ranges.value.length) return;
				rangeReport.value = found;
				rangeFailed.value = "";
			},
		);
	else {
		strip.forget();
		rangeReport.value = null;
		rangeFailed.value = "";
	}
	keep();
}

/* --- Moving about --- */

export function setView(from: number, to: number) {
	const span = Math.min(VIEW_MAX_MS, Math.max(VIEW_MIN_MS, to - from));
	const middle = (from + to) / 2;
	const start = Math.max(0, span === to - from ? from : middle - span / 2);
	fresh = false;
	view.value = { from: start, to: start + span };
	ensure();
	keep();
}
export function pan(ms: number) {
	follow.value = false;
	setView(view.value.from + ms, view.value.to + ms);
}
/* @t stays where it is; while it follows, now does. */
export function zoom(by: number, t = (view.value.from + view.value.to) / 2) {
	const { from, to } = view.value;
	const about = follow.value ? brokerNow() : t;
	setView(about - (about - from) * by, about + (to - about) * by);
}
/* As much as shows what is known from its first moment on. */
function freshSpan(): number {
	const { from } = overview.value ?? {};
	if (from === undefined) return FIRST_MS;
	return Math.max(FRESH_MIN_MS, Math.min(FIRST_MS, ((brokerNow() - from) * (1 + AHEAD)) / (1 - AHEAD)));
}
export function tick() {
	if (!follow.value) return;
	const span = fresh ? freshSpan() : view.value.to - view.value.from;
	const to = brokerNow() + span * AHEAD;
	view.value = { from: Math.max(0, to - span), to };
	ensure();
}
export function setFollow(on: boolean) {
	follow.value = on;
	tick();
	keep();
}
export function fit() {
	const all = overview.value;
	wantFit = !all;
	if (!all) return;
	follow.value = false;
	const now = Math.max(all.now, brokerNow());
	const pad = Math.max(1000, (now - all.from) * AHEAD);
	setView(all.from - pad / 2, now + pad);
}
let centred: { span: Span; view: Stretch } | null = null;
export function centre() {
	const { span } = picked.value ?? {};
	if (!span) return;
	follow.value = false;
	const end = Math.min(span.end, brokerNow());
	const middle = (span.t + end) / 2;
	const wide = view.value.to - view.value.from;
	/* Again: the span fills the view. */
	const there = centred?.span === span && centred.view === view.value;
	const half = there ? Math.max(VIEW_MIN_MS, end - span.t) * 0.6 : wide / 2;
	setView(middle - half, middle + half);
	centred = { span, view: view.value };
}
export function pickedToRange() {
	const { span } = picked.value ?? {};
	if (span) setRanges([{ from: span.t, to: Math.min(span.end, brokerNow()) }]);
}
export function clear() {
	batch(() => {
		picked.value = null;
		hover.value = null;
		like.value = null;
	});
	setRanges([]);
}
/* The report's address for what has this name: in the ranges if there are any. */
export function instances(name: string): string {
	const query = ranges.value.length ? rangeQuery(ranges.value, only()) : "";
	return `${query}${query && "&"}${new URLSearchParams({ view: "live", q: `"${name}"` })}`;
}
/* How many that are marked are in view. */
export function countLike(): number {
	const { from, to } = view.value;
	let count = 0;
	for (const { id } of blocks.value)
		for (const { kind, name, t, end } of answer.value?.lanes.get(id)?.spans ?? [])
			if (kind !== 0 && name === like.value && t < to && end > from) count++;
	return count;
}

/* The span before or after the picked one: of its row, or of the same name anywhere or in its
 * lane. Without one the first in the view. */
export function neighbour(by: 1 | -1, like: "row" | "name" | "name in lane") {
	const found = answer.value;
	if (!found) return;
	const from = picked.value;
	const all: Picked[] = [];
	for (const { id } of blocks.value)
		for (const span of found.lanes.get(id)?.spans ?? []) {
			if (from && like === "row" && (id !== from.lane || span.kind !== from.span.kind)) continue;
			if (from && like !== "row" && span.name !== from.span.name) continue;
			if (from && like === "name in lane" && id !== from.lane) continue;
			if (!from && (span.kind === 0 || span.t < view.value.from)) continue;
			all.push({ lane: id, span });
		}
	all.sort((a, b) => a.span.t - b.span.t);
	const at = from ? all.findIndex(({ lane, span }) => lane === from.lane && span.t === from.span.t && span.kind === from.span.kind && span.line === from.span.line) : by > 0 ? -1 : all.length;
	const next = all[at + by];
	if (!next) return;
	picked.value = next;
	const end = Math.min(next.span.end, brokerNow());
	if (end < view.value.from || next.span.t > view.value.to) {
		follow.value = false;
		const half = (view.value.to - view.value.from) / 2;
		setView(next.span.t - half, next.span.t + half);
	}
}

/* What lies at a point of the canvas: the shortest, and waits before what they are part of. */
export function at(x: number, down: number, scroll: number): Picked | null {
	const y = down < pinnedHeight.value ? down : down + scroll;
	const block = blocks.value[blockAt(blocks.value, y)];
	const lane = block && answer.value?.lanes.get(block.id);
	if (!block || !lane) return null;
	const scale = size.value.width / (view.value.to - view.value.from);
	const place = (t: number) => (t - view.value.from) * scale;
	let best: Span | null = null;
	for (const span of lane.spans) {
		const top = block.top + rowTop(block, span.kind, span.line);
		const [left, right] = edges(span, place, brokerNow(), size.value.width);
		if (y < top || y >= top + 21 || x < left - 1 || x > right + 1) continue;
		if (!best || Math.min(span.end, brokerNow()) - span.t <= Math.min(best.end, brokerNow()) - best.t) best = span;
	}
	return best && { lane: block.id, span: best };
}

/* --- The address --- */

let keepTimer = 0;
let pushed = 0;
/* Browsers refuse an address that changes with every frame. */
export function keep() {
	clearTimeout(keepTimer);
	keepTimer = setTimeout(() => {
		if (open) keepQuery("timeline", toQuery());
	}, 150);
}
/* What was before is a step back; letters typed one after another are one step. */
export function arrange(next: Arrangement | null, typed = false) {
	if (!next) return;
	const before = toQuery();
	arrangement.value = next;
	const now = performance.now();
	if (!typed || now - pushed > STEP_MS) {
		clearTimeout(keepTimer);
		keepQuery("timeline", before);
		keepQuery("timeline", toQuery(), true);
	} else keep();
	pushed = typed ? now : 0;
	askView();
	if (ranges.value.length) setRanges(ranges.value);
}
function toQuery() {
	const query = new URLSearchParams();
	const span = Math.round(view.value.to - view.value.from);
	if (!follow.value) query.set("view", pair(view.value));
	else if (!fresh) query.set("follow", String(span));
	if (ranges.value.length) query.set("range", ranges.value.map(pair).join(","));
	writeArrangement(query);
	if (asTable.value) query.set("table", "1");
	return query;
}
export function readQuery(text: string) {
	const query = new URLSearchParams(text);
	const fixed = readPair(query.get("view"));
	const span = Number(query.get("follow"));
	batch(() => {
		arrangement.value = readArrangement(query);
		asTable.value = query.get("table") === "1";
		picked.value = null;
		follow.value = !fixed;
		const to = brokerNow();
		const said = span >= VIEW_MIN_MS && span <= VIEW_MAX_MS;
		fresh = !fixed && !said;
		const wide = said ? span : freshSpan();
		view.value = fixed ?? { from: to - wide, to };
	});
	tick();
	ensure();
	setRanges((query.get("range") ?? "").split(",").flatMap((text) => readPair(text) ?? []));
}


export const scrollTop = signal(0);

/* Where the spans in sight are in the window: the canvas says nothing by itself. */
export function places(scroller: HTMLElement | null) {
	const box = scroller?.querySelector("canvas")?.getBoundingClientRect();
	if (!scroller || !box) return [];
	const scale = size.value.width / (view.value.to - view.value.from);
	const place = (t: number) => (t - view.value.from) * scale;
	return blocks.value.flatMap((block) =>
		(answer.value?.lanes.get(block.id)?.spans ?? []).map((span) => {
			const [left, right] = edges(span, place, brokerNow(), size.value.width);
			return {
				lane: block.id,
				...span,
				open: span.end === Number.POSITIVE_INFINITY,
				x: box.left + left,
				y: box.top + block.top + rowTop(block, span.kind, span.line) - (block.top < pinnedHeight.value ? 0 : scroller.scrollTop),
				width: right - left,
				height: 21,
			};
		}),
	);
}
