/* The rows of a report, in the order and at the depth that they are shown; and as text. Pure. */

import { plain } from "./plain";
import { laneWords, percent, type Report, type ReportRow, span, sum, type View, whole } from "./times";
import { agents, nameOf } from "./store";
import { plural } from "./words";

export interface Line {
	row: ReportRow;
	path: string;
	depth: number;
	open: boolean;
	parent: boolean;
	before: number | null; /* its share in the range before */
}

export interface Column {
	key: string;
	label: string;
	title: string;
	value: (line: Line, all: number) => number | null;
	text: (value: number) => string;
}

const figure = (
	key: string,
	label: string,
	title: string,
	value: Column["value"],
	text: Column["text"],
): Column => ({ key, label, title, value, text });

const count = figure(
	"count",
	"count",
	"How many there were",
	({ row }) => row.count,
	(n) => n.toLocaleString("en"),
);
const shareText = (share: number) => percent(share, 1);
const shareOf = (view: View) => (row: ReportRow) =>
	view === "top-down" ? row.inclusive : row.self;
const quantiles = (["p50", "p95", "max"] as const).map((key) =>
	figure(
		key,
		key,
		key === "max" ? "The longest" : `${key.slice(1)} of 100 took no longer`,
		({ row }) => row[key] ?? null,
		span,
	),
);

export function columnsOf(view: View, before: boolean): Column[] {
	if (view === "live")
		return [
			count,
			figure("total", "total", "All of them together", ({ row }) => row.total ?? null, sum),
			figure("min", "min", "The shortest", ({ row }) => row.min ?? null, span),
			figure("avg", "avg", "The mean", ({ row }) => row.avg ?? null, span),
			figure("max", "max", "The longest", ({ row }) => row.max ?? null, span),
			figure("deviation", "σ", "Standard deviation", ({ row }) => row.deviation ?? null, span),
		];
	return [
		count,
		figure(
			"inclusive",
			"inclusive",
			"From start to end, with what is inside",
			({ row }) => row.inclusive,
			sum,
		),
		figure(
			"self",
			"self",
			"Without the calls inside it and the waits for you",
			({ row }) => (row.agent || row.lane ? null : row.self),
			sum,
		),
		figure(
			"share",
			"share",
			"Part of all the time of the range",
			({ row }, all) => (all ? shareOf(view)(row) / all : null),
			shareText,
		),
		...(before
			? [
					figure(
						"before",
						"before",
						"Its share in the range before",
						(line) => line.before,
						shareText,
					),
				]
			: []),
		figure(
			"avg",
			"avg",
			"The mean",
			({ row }) => (row.count && row.max !== undefined ? row.inclusive / row.count : null),
			span,
		),
		...(view === "bottom-up" ? [] : quantiles),
	];
}

export function rowName(row: ReportRow): string {
	if (row.agent) return nameOf(agents.still(row.agent), row.agent);
	if (row.lane) return laneWords(row.lane);
	return row.more ? `${plural(row.more, "more row")}` : (row.name ?? "");
}
export const rowKey = (row: ReportRow) =>
	row.agent ?? row.lane ?? (row.more ? "more" : `${row.time ?? ""} ${row.name}`);

/* Agents and their channels are open at first. */
const opensItself = (row: ReportRow) => row.agent !== undefined || row.lane !== undefined;

export function sharesBefore(view: View, before: Report): Map<string, number> {
	const shares = new Map<string, number>();
	const all = whole(before.total);
	const walk = (rows: readonly ReportRow[], above: string) => {
		for (const row of rows) {
			const path = `${above}/${rowKey(row)}`;
			shares.set(path, all ? shareOf(view)(row) / all : 0);
			if (row.rows) walk(row.rows, path);
		}
	};
	walk(before.rows, "");
	return shares;
}

export interface Order {
	key: string; /* a column's, or "name" */
	down: boolean;
}

/* Does a row have these words? In quotes: what has this name and no other. */
export function matcher(filter: string): (row: ReportRow) => boolean {
	const named = /^"(.+)"$/s.exec(filter)?.[1];
	if (named !== undefined) return (row) => rowName(row) === named;
	const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
	return (row) => {
		const name = rowName(row).toLowerCase();
		return words.every((word) => name.includes(word));
	};
}

/* @turned: paths whose rows are not as they are at first. @opened: all are open. */
export function linesOf(
	view: View,
	report: Report,
	before: Report | null,
	columns: readonly Column[],
	order: Order,
	filter: string,
	turned: ReadonlySet<string>,
	opened = false,
): Line[] {
	const all = whole(report.total);
	const shares = before ? sharesBefore(view, before) : null;
	const column = columns.find(({ key }) => key === order.key);
	const filtered = filter.trim() !== "";
	const found = matcher(filter);
	const lines: Line[] = [];
	const walk = (rows: readonly ReportRow[], above: string, depth: number, inside: boolean): boolean => {
		const level = rows.map((row) => {
			const path = `${above}/${rowKey(row)}`;
			const opens = opened || opensItself(row) !== turned.has(path);
			return {
				row,
				path,
				depth,
				open: opens,
				parent: !!row.rows?.length,
				before: shares ? (shares.get(path) ?? 0) : null,
			};
		});
		const by = column
			? (line: Line) => column.value(line, all) ?? -1
			: (line: Line) => rowName(line.row);
		level.sort((a, b) => {
			/* What has no room stays at the end. */
			if (!!a.row.more !== !!b.row.more) return a.row.more ? 1 : -1;
			const [left, right] = [by(a), by(b)];
			const less = left < right ? -1 : left > right ? 1 : 0;
			return order.down ? -less : less;
		});
		let any = false;
		for (const line of level) {
			const here = inside || found(line.row);
			const at = lines.push(line);
			let below = false;
			/* With a filter, whatever holds a hit is open. */
			if (line.parent && (line.open || (filtered && !here))) {
				below = walk(line.row.rows!, line.path, depth + 1, here);
				line.open = line.open || below;
			}
			if (here || below) any = true;
			else lines.length = at - 1;
		}
		return any;
	};
	walk(report.rows, "", 0, !filtered);
	return lines;
}

/* As columns of text: names left, numbers right. */
export function alignedTable(lines: readonly Line[], columns: readonly Column[], all: number): string {
	const cells = [
		["Name", ...columns.map(({ label }) => label)],
		...lines.map((line) => [
			"  ".repeat(line.depth) + plain(rowName(line.row)).replace(/[\n\t]/g, " "),
			...columns.map(({ value, text }) => {
				const n = value(line, all);
				return n === null ? "" : text(n);
			}),
		]),
	];
	const widths = cells[0]!.map((_, i) =>
		Math.max(...cells.map((row) => [...row[i]!].length)),
	);
	return cells
		.map((row) =>
			row
				.map((cell, i) => {
					const pad = " ".repeat(widths[i]! - [...cell].length);
					return i ? pad + cell : cell + pad;
				})
				.join("  ")
				.trimEnd(),
		)
		.join("\n");
}

/* A spreadsheet takes what begins like this for a formula. */
const quoted = (text: string) =>
	`"${(/^[=+\-@\t\r]/.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;

/* Numbers as they came: ms, shares of 1. */
export function csv(lines: readonly Line[], columns: readonly Column[], all: number): string {
	return [
		["depth", "name", ...columns.map(({ key }) => key)].join(","),
		...lines.map((line) =>
			[
				line.depth,
				quoted(plain(rowName(line.row))),
				...columns.map(({ value }) => value(line, all) ?? ""),
			].join(","),
		),
	]
		.map((line) => `${line}\r\n`)
		.join("");
}
