/* What the timeline shows, what it knows of it, and what it asks for. */

import { batch, computed, signal } from "@preact/signals";
import { request as get } from "./api";
import { keepQuery } from "./session";
import { brokerNow, lanes as known } from "./store";
import { type Answer, blockAt, decode, growLines, layOut, type Lines, rowTop, type Span } from "./timeline_data";
import { edges, type Picked, type Stretch } from "./timeline_paint";
import { Asker, askReport, laneWords, type Report } from "./times";

const MINUTE_MS = 60_000;
const FIRST_MS = 10 * MINUTE_MS;
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

export const view = signal<Stretch>({ from: 0, to: 1 });
export const follow = signal(true);
export const range = signal<Stretch | null>(null);
export const filter = signal("");
export const asTable = signal(false);
export const answer = signal<Answer | null>(null);
export const overview = signal<Answer | null>(null);
export const picked = signal<Picked | null>(null);
export const hover = signal<Picked | null>(null);
export const failed = signal("");
export const rangeReport = signal<Report | null>(null);
export const size = signal({ width: 0, height: 0 });
const lines = new Map<string, Lines>();
const linesChanged = signal(0);

/* In an order that nothing the agents do changes. */
const words = computed(() => {
	const ids = new Set([...known.ids.value, ...(overview.value?.lanes.keys() ?? []), ...(answer.value?.lanes.keys() ?? [])]);
	return [...ids].map((id) => [laneWords(id), id] as const).sort((a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : a[1] < b[1] ? -1 : 1));
});
export const laneCount = computed(() => words.value.length);
const shownIds = computed(() => {
	const wanted = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
	return words.value
		.filter(([name]) => !wanted.length || wanted.some((word) => name.toLowerCase().includes(word)))
		.map(([, id]) => id);
});
export const blocks = computed(() => {
	linesChanged.value;
	return layOut(shownIds.value, lines);
});
export const total = computed(() => {
	const last = blocks.value.at(-1);
	return last ? last.top + last.height : 0;
});
const inState = (state: string) => new Set(shownIds.value.filter((id) => known.get(id)?.state === state));
export const offline = computed(() => inState("offline"));
export const stalled = computed(() => inState("stalled"));

/* --- Asking: the view, now and then everything, one at a time --- */

export const asked = { requests: 0, last: 0 };
let timer = 0;
let open = false;
let overviewAtMs = Number.NEGATIVE_INFINITY;
let wantFit = false;

export const only = () =>
	filter.value && shownIds.value.length <= NAMED_MAX ? shownIds.value.join(",") : "";

async function ask(stretch: Stretch | null, width: number): Promise<Answer> {
	const id = ++asked.requests;
	const query = new URLSearchParams({ width: String(Math.max(1, Math.min(16_384, Math.round(width)))), request: String(id) });
	if (stretch) {
		query.set("from", String(Math.max(0, Math.floor(stretch.from))));
		query.set("to", String(Math.max(1, Math.ceil(stretch.to))));
		const lanes = only();
		if (lanes) query.set("lanes", lanes);
	}
	const response = await get(`/api/timeline?${query}`);
	const found = decode(await response.arrayBuffer());
	if (found.request !== id) throw new Error("the answer is to another question");
	return found;
}

export const asker = new Asker<Answer>((error) => {
	failed.value = `No timeline: ${error.message}.`;
	later();
}, true);

function take(found: Answer) {
	batch(() => {
		if (growLines(lines, found)) linesChanged.value++;
		answer.value = found;
		failed.value = "";
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
			if (wantFit) fit();
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
	return () => {
		open = false;
		clearTimeout(timer);
		asker.forget();
		strip.forget();
		document.removeEventListener("visibilitychange", onVisible);
	};
}

/* --- The report of the range --- */

const strip = new Asker<Report>(() => {
	rangeReport.value = null;
}, true);

export function setRange(next: Stretch | null) {
	range.value = next && next.to - next.from >= 1 ? next : null;
	const now = range.value;
	if (now)
		strip.ask(
			() => askReport("flat", now, only()),
			(found) => {
				if (range.value) rangeReport.value = found;
			},
		);
	else {
		strip.forget();
		rangeReport.value = null;
	}
	keep();
}

/* --- Moving about --- */

export function setView(from: number, to: number) {
	const span = Math.min(VIEW_MAX_MS, Math.max(VIEW_MIN_MS, to - from));
	const middle = (from + to) / 2;
	const start = Math.max(0, span === to - from ? from : middle - span / 2);
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
export function tick() {
	if (!follow.value) return;
	const span = view.value.to - view.value.from;
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
export function centre() {
	const { span } = picked.value ?? {};
	if (!span) return;
	follow.value = false;
	const end = Math.min(span.end, brokerNow());
	const middle = (span.t + end) / 2;
	const wide = view.value.to - view.value.from;
	/* Again: the span fills the view. */
	const there = Math.abs((view.value.from + view.value.to) / 2 - middle) < wide / 1000;
	const half = there ? Math.max(VIEW_MIN_MS, end - span.t) * 0.6 : wide / 2;
	setView(middle - half, middle + half);
}
export function pickedToRange() {
	const { span } = picked.value ?? {};
	if (span) setRange({ from: span.t, to: Math.min(span.end, brokerNow()) });
}
export function clear() {
	batch(() => {
		picked.value = null;
		hover.value = null;
	});
	setRange(null);
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
export function at(x: number, y: number): Picked | null {
	const block = blocks.value[blockAt(blocks.value, y)];
	const lane = block && answer.value?.lanes.get(block.id);
	if (!block || !lane) return null;
	const scale = size.value.width / (view.value.to - view.value.from);
	const place = (t: number) => (t - view.value.from) * scale;
	let best: Span | null = null;
	for (const span of lane.spans) {
		const top = block.top + rowTop(block, span);
		const [left, right] = edges(span, place, brokerNow(), size.value.width);
		if (y < top || y >= top + 21 || x < left - 1 || x > right + 1) continue;
		if (!best || Math.min(span.end, brokerNow()) - span.t <= Math.min(best.end, brokerNow()) - best.t) best = span;
	}
	return best && { lane: block.id, span: best };
}

/* --- The address --- */

const pair = ({ from, to }: Stretch) => `${Math.round(from)}-${Math.round(to)}`;
function readPair(text: string | null): Stretch | null {
	const [, a, b] = /^(\d{1,15})-(\d{1,15})$/.exec(text ?? "") ?? [];
	return a && b && Number(b) > Number(a) ? { from: Number(a), to: Number(b) } : null;
}

let keepTimer = 0;
/* Browsers refuse an address that changes with every frame. */
export function keep() {
	clearTimeout(keepTimer);
	keepTimer = setTimeout(() => {
		if (open) keepQuery("timeline", toQuery());
	}, 150);
}
function toQuery() {
	const query = new URLSearchParams();
	const span = Math.round(view.value.to - view.value.from);
	if (!follow.value) query.set("view", pair(view.value));
	else if (span !== FIRST_MS) query.set("follow", String(span));
	if (range.value) query.set("range", pair(range.value));
	if (filter.value) query.set("q", filter.value);
	if (asTable.value) query.set("table", "1");
	return query;
}
export function readQuery(text: string) {
	const query = new URLSearchParams(text);
	const fixed = readPair(query.get("view"));
	const span = Number(query.get("follow"));
	batch(() => {
		filter.value = query.get("q") ?? "";
		asTable.value = query.get("table") === "1";
		picked.value = null;
		follow.value = !fixed;
		const to = brokerNow();
		const wide = span >= VIEW_MIN_MS && span <= VIEW_MAX_MS ? span : FIRST_MS;
		view.value = fixed ?? { from: to - wide, to };
	});
	tick();
	ensure();
	setRange(readPair(query.get("range")));
}


export const scrollTop = signal(0);

export function setFilter(text: string) {
	filter.value = text;
	askView();
	if (range.value) setRange(range.value);
	keep();
}

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
				y: box.top + block.top + rowTop(block, span) - scroller.scrollTop,
				width: right - left,
				height: 21,
			};
		}),
	);
}
