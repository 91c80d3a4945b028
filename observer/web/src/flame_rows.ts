/* The frames of a flame graph: where each stands, from the tree of a report. Pure. */

import { rowKey, rowName } from "./report_rows";
import { type Report, type ReportRow, whole } from "./times";

export interface Frame {
	row: ReportRow;
	path: string; /* as of a line of the tree; "" is all of it */
	parent: Frame | null;
	kids: Frame[];
	/* ms of its width: its own time, or that of what it holds where that ran side by side. */
	width: number;
}
export interface Placed {
	frame: Frame;
	depth: number;
	from: number; /* of the whole width, 0 to 1 */
	share: number;
}
/* What of a frame is too narrow to be drawn, as one piece. */
export interface Narrow {
	path: string;
	count: number;
	depth: number;
	from: number;
	share: number;
}

/* Narrower frames could be neither seen nor hit. */
export const SHARE_MIN = 1 / 500;

/* Model, calls, you, idle; what has no class before them, what is added up behind. By name
 * inside of that, not by time: a frame stays where it is while time goes on. */
const ORDER = ["model", "tool", "you", "idle"];
const place = (row: ReportRow) =>
	row.more ? ORDER.length : row.time ? ORDER.indexOf(row.time) : -1;

function inOrder(a: Frame, b: Frame): number {
	const by = place(a.row) - place(b.row);
	if (by) return by;
	const [left, right] = [rowName(a.row), rowName(b.row)];
	/* Two agents may be called the same. */
	if (left === right) return a.path < b.path ? -1 : 1;
	return left < right ? -1 : 1;
}

function frameOf(row: ReportRow, path: string, parent: Frame | null): Frame {
	const frame: Frame = { row, path, parent, kids: [], width: 0 };
	frame.kids = (row.rows ?? [])
		.map((kid) => frameOf(kid, `${path}/${rowKey(kid)}`, frame))
		.sort(inOrder);
	frame.width = Math.max(
		row.inclusive,
		frame.kids.reduce((ms, kid) => ms + kid.width, 0),
	);
	return frame;
}

export function framesOf(report: Report): Frame {
	const held = whole(report.total);
	return frameOf(
		{ name: "All", count: report.lanes.length, inclusive: held, self: 0, rows: report.rows },
		"",
		null,
	);
}

/* The frame of that path or, if it is not there now, the last one on the way to it. */
export function frameAt(root: Frame, path: string): Frame {
	for (let at = root; ; ) {
		const next = at.kids.find((kid) => path === kid.path || path.startsWith(`${kid.path}/`));
		if (!next) return at;
		at = next;
	}
}

/* From the root to its parent. */
export function above(frame: Frame): Frame[] {
	const frames: Frame[] = [];
	for (let at = frame.parent; at; at = at.parent) frames.unshift(at);
	return frames;
}

/* @zoom takes the whole width, and so does what it is inside of. */
export function placeFrames(zoom: Frame): { placed: Placed[]; narrow: Narrow[]; depth: number } {
	const placed: Placed[] = [];
	const narrow: Narrow[] = [];
	let deepest = 0;
	for (const frame of above(zoom)) placed.push({ frame, depth: placed.length, from: 0, share: 1 });
	const walk = (frame: Frame, depth: number, from: number) => {
		placed.push({ frame, depth, from, share: zoom.width ? frame.width / zoom.width : 1 });
		deepest = Math.max(deepest, depth);
		let left = from;
		const rest: Narrow = { path: frame.path, count: 0, depth: depth + 1, from: 0, share: 0 };
		for (const kid of frame.kids) {
			const share = kid.width / zoom.width;
			if (share >= SHARE_MIN) {
				walk(kid, depth + 1, left);
				left += share;
			} else {
				rest.count++;
				rest.share += share || 0;
			}
		}
		if (rest.count && rest.share >= SHARE_MIN / 2) {
			narrow.push({ ...rest, from: left });
			deepest = Math.max(deepest, depth + 1);
		}
	};
	walk(zoom, placed.length, 0);
	return { placed, narrow, depth: deepest + 1 };
}

/* Where an arrow leads from frame @at of @placed: up to what it is part of, down to its first
 * part, left and right along its depth. @at itself when there is nothing. */
export function step(placed: readonly Placed[], at: number, key: string): number {
	const here = placed[at]!;
	const find = (want: (it: Placed) => boolean) => placed.findIndex(want);
	let to = -1;
	if (key === "ArrowUp") to = find(({ frame }) => frame === here.frame.parent);
	else if (key === "ArrowDown") to = find(({ frame }) => frame.parent === here.frame);
	else if (key === "Home") to = 0;
	else {
		/* Those of one depth come from left to right. */
		const like = placed.flatMap(({ depth }, i) => (depth === here.depth ? [i] : []));
		const next = like.indexOf(at) + (key === "ArrowRight" ? 1 : -1);
		to = like[key === "End" ? like.length - 1 : next] ?? -1;
	}
	return to < 0 ? at : to;
}

/* The time of what matches, each moment of a path once. */
export function matching(root: Frame, found: (row: ReportRow) => boolean): { count: number; ms: number } {
	let count = 0;
	let ms = 0;
	const walk = (frame: Frame, inside: boolean) => {
		const here = frame.parent !== null && found(frame.row);
		if (here) count++;
		if (here && !inside) ms += frame.row.inclusive;
		for (const kid of frame.kids) walk(kid, inside || here);
	};
	walk(root, false);
	return { count, ms };
}
