/* What the broker and the harnesses said of themselves while the self screen was open, as lanes of
 * values. It is kept when they are heard, and drawn by the timeline's code. */

import { clockTime } from "./clock";
import { type Block, type Drawn, type DrawnLane, layOut, Ranked, type Series, Strip, VALUE_COLUMNS } from "./timeline_data";
import type { Scene } from "./timeline_paint";

export interface Figures {
	[name: string]: number;
}
export interface Lane {
	name: string;
	words: string;
	show: (n: number) => string;
	/* It only grows: drawn is how fast, a second. */
	grows?: true;
}
interface Told {
	t: number; /* Unix ms, by the clock that is never set */
	visit: number;
	of: Record<string, Figures>;
}

/* When there are so many every second one goes: all of the time stays, what is older is coarser. */
const KEPT = 360;
/* What is drawn is at least so long, so that it does not begin with bars of half the width. */
const LEAST_MS = 60_000;
const GRAIN_MS = 1000;
let told: Told[] = [];
let visit = 0;

/* What was not heard in between is not known. */
export const beginVisit = () => visit++;
export function keep(of: Record<string, Figures>) {
	const t = performance.timeOrigin + performance.now();
	if (told.length === KEPT) told = told.filter((_, i) => i % 2);
	/* Two at nearly one time would make a rate of nothing. */
	const last = told.at(-1);
	if (last?.visit === visit && t - last.t < GRAIN_MS) told.pop();
	told.push({ t, visit, of });
}
(window as unknown as { __perch: { self: Record<string, unknown> } }).__perch.self["figures"] = () => told.map(({ t, of }) => ({ t, ...of }));
export const since = () => clockTime(told[0]?.t ?? Date.now());

/* Columns are parts of the time that is drawn. */
function seriesOf(id: string, { name, grows }: Lane, kind: number, from: number, to: number): Series {
	const series: Series = { kind, pieces: [], most: 0 };
	for (let i = 1; i < told.length; i++) {
		const [was, is] = [told[i - 1]!, told[i]!];
		let value = is.of[id]?.[name];
		if (grows) value = ((value! - was.of[id]?.[name]!) * 1000) / (is.t - was.t);
		/* Not told, or begun anew. */
		if (was.visit !== is.visit || value === undefined || !(value >= 0) || !Number.isFinite(value)) continue;
		series.pieces.push({ column: (was.t - from) / (to - from), columns: (is.t - was.t) / (to - from), value });
		series.most = Math.max(series.most, value);
	}
	return series;
}

export interface Lanes {
	height: number;
	scene: Scene;
	/* The most of that lane, in words. */
	most: (id: string, kind: number, show: (n: number) => string) => string;
}
/* The lanes of each of these, one under the other. */
export function lanesOf(ids: readonly string[], list: readonly Lane[]): Lanes {
	const blocks = ids.map((id): Block => ({
		id, top: 0, height: 0, lines: { turns: false, calls: 0, parts: 0, values: (1 << list.length) - 1 },
	}));
	layOut(blocks);
	const to = told.at(-1)?.t ?? Date.now();
	const from = Math.min(told[0]?.t ?? to, to - LEAST_MS);
	const lanes = new Map<string, DrawnLane>(ids.map((id) => [id, {
		strip: new Strip(new Uint8Array()),
		values: list.map((lane, kind) => seriesOf(id, lane, kind, from, to)),
		list: { calls: Ranked.of([]), waits: Ranked.of([]) },
	}]));
	/* One column of values is all of the time. */
	const answer: Drawn = { from, to, now: to, width: VALUE_COLUMNS, lanes };
	const last = blocks.at(-1);
	const most: Lanes["most"] = (id, kind, show) => {
		const series = lanes.get(id)!.values[kind]!;
		return series.pieces.length ? show(series.most) : "–";
	};
	return { height: last ? last.top + last.height : 0, scene: sceneOf(answer, blocks), most };
}
export const sceneOf = (answer: Drawn, blocks: readonly Block[]): Scene => ({
	view: answer, ranges: [], now: answer.now, answer, overview: null, blocks, lanes: blocks,
	scroll: 0, pinned: 0, hover: null, picked: null, like: null, offline: new Set(), stalled: new Set(),
});
