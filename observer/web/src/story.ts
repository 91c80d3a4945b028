/* The story zoom: rows that follow each other as one sentence. The words are the broker's; the
 * rule by which rows join is that of observer/story.c. */

import type { Row } from "./types";

export interface Said {
	verb: string;
	object: string;
	text: string;
	outcome: string;
	like: string;
	count: number;
	/* An edit's lines; -1: no edit. */
	added: number;
	removed: number;
}

const read = new WeakMap<Row, Said>();

function say(row: Row): Said {
	const story: NonNullable<Row["story"]> = row.story ?? {};
	const own = row as { verb?: string; object?: string; outcome?: string; text?: string };
	const said = {
		verb: story.verb ?? own.verb ?? "",
		object: story.object ?? own.object ?? "",
		text: story.text ?? "",
		outcome: story.outcome ?? own.outcome ?? "",
		like: story.like ?? "",
		count: story.count ?? 1,
		added: story.added ?? -1,
		removed: story.removed ?? 0,
	};
	if (!said.verb && !said.object && !said.text)
		said.text = (own.text ?? "").trimStart().split("\n", 1)[0]!;
	return said;
}

export function said(row: Row): Said {
	let out = read.get(row);
	if (!out) read.set(row, (out = say(row)));
	return out;
}

const waits = (row: Row) => row.type === "tool" && row.time === "you";

/* The question that a call waits for. */
export const asks = (before: Row, row: Row) =>
	waits(before) &&
	row.type === "permission" &&
	row.state === "pending" &&
	!!row.call &&
	row.call === (before as typeof row).call;

/* Of one verb, and either of one sort, all well; or the very same again. A call that waits joins
 * only the question that it waits for. */
export function joins(before: Row, row: Row): boolean {
	if (asks(before, row)) return true;
	if (before.type !== row.type || waits(before) || waits(row)) return false;
	const a = said(before);
	const b = said(row);
	if (!a.verb || a.verb !== b.verb || a.text || b.text) return false;
	const well = (!a.outcome || a.added >= 0) && (!b.outcome || b.added >= 0);
	if (a.like && a.like === b.like && well) return true;
	return !!a.object && a.object === b.object && a.outcome === b.outcome;
}

/* Rows that join, as one. */
export interface Told extends Said {
	rows: number;
	/* "4 files" in place of the object. */
	many: string;
}

export function tell(rows: readonly Row[]): Told {
	/* "Waiting to run make", "Wants to run make": the question says both. */
	if (rows[1] && rows[0]!.type !== rows[1].type) rows = rows.slice(1);
	const first = said(rows[0]!);
	const objects = new Set<string>();
	let count = 0;
	let added = 0;
	let removed = 0;
	for (const row of rows) {
		const one = said(row);
		/* What has no object counts by itself. */
		if (!one.object || !objects.has(one.object)) count += one.count;
		objects.add(one.object);
		added += Math.max(0, one.added);
		removed += one.removed;
	}
	return {
		...first,
		rows: rows.length,
		many: first.like && count > 1 ? `${count} ${first.like}` : "",
		outcome: first.added >= 0 ? `+${added} −${removed}` : first.outcome,
	};
}
