/* Where the time went, of any stretch of it. */

import { batch, computed, signal } from "@preact/signals";
import type { ComponentType } from "preact";
import { useEffect, useLayoutEffect, useState } from "preact/hooks";
import { clockTime, dayStart, isoDay } from "./clock";
import type { FlameProps } from "./flame";
import { exact } from "./plain";
import { alignedTable, columnsOf, csv, linesOf, type Order, rowName, type Line } from "./report_rows";
import { keepQuery } from "./session";
import { agents, brokerNow, nameOf } from "./store";
import {
	Asker,
	askReport,
	joined,
	KINDS,
	LaneName,
	length,
	pairOf,
	percent,
	type Range,
	readPair,
	type Report,
	Share,
	sum,
	sums,
	TimeBar,
	type View,
	whole,
} from "./times";
import { screenKeys } from "./ui";
import { plural } from "./words";

/* Flame is the tree of top-down, drawn. */
type Shown = View | "flame";
const asked = (of: Shown): View => (of === "flame" ? "top-down" : of);

const VIEWS: [Shown, string][] = [
	["flat", "Flat"],
	["top-down", "Top-down"],
	["bottom-up", "Bottom-up"],
	["live", "Live"],
	["flame", "Flame"],
];
const REFRESH_MS = 2000;
/* More rows are drawn when they are asked for. */
const ROWS = 300;
const HOUR_MS = 3_600_000;

/* --- How the reader has set it: the address has it all --- */

type Span = "all" | "hour" | "today" | "fixed";
const spanKind = signal<Span>("all");
const fixed = signal<Range>({ from: null, to: null });
const view = signal<Shown>("flat");
const order = signal<Order>({ key: "self", down: true });
const filter = signal("");
const beside = signal(false);
const only = signal("");
const turned = signal<ReadonlySet<string>>(new Set());
const current = signal(-1);
const most = signal(ROWS);
const zoomed = signal(""); /* path of the frame that is looked into */

const firstOrder = (of: Shown): Order => ({
	key: of === "live" ? "total" : asked(of) === "top-down" ? "inclusive" : "self",
	down: true,
});

function number(text: string | null): number | null {
	const n = text === null || text === "" ? Number.NaN : Number(text);
	return Number.isSafeInteger(n) && n >= 0 ? n : null;
}

/* Only what can be asked for. */
function readRanges(text: string | null): { ranges?: string } {
	const list = joined((text ?? "").split(",").flatMap((one) => readPair(one) ?? []));
	return list.length > 1 ? { ranges: list.map(pairOf).join(",") } : {};
}

function readQuery(text: string) {
	const query = new URLSearchParams(text);
	const from = number(query.get("from"));
	const to = number(query.get("to"));
	const range = query.get("range");
	const wanted = VIEWS.find(([key]) => key === query.get("view"))?.[0] ?? "flat";
	const sort = query.get("sort");
	batch(() => {
		spanKind.value =
			from !== null || to !== null
				? "fixed"
				: range === "hour" || range === "today"
					? range
					: "all";
		fixed.value = { from, to, ...readRanges(query.get("ranges")) };
		view.value = wanted;
		order.value = sort
			? { key: sort.replace(/^-/, ""), down: !sort.startsWith("-") }
			: firstOrder(wanted);
		filter.value = query.get("q") ?? "";
		beside.value = query.get("beside") === "1";
		only.value = query.get("lanes") ?? "";
		zoomed.value = query.get("zoom") ?? "";
	});
}

function toQuery(): URLSearchParams {
	const query = new URLSearchParams();
	const { key, down } = order.value;
	const usual = firstOrder(view.value);
	if (spanKind.value === "fixed") {
		if (fixed.value.from !== null) query.set("from", String(fixed.value.from));
		if (fixed.value.to !== null) query.set("to", String(fixed.value.to));
		if (fixed.value.ranges) query.set("ranges", fixed.value.ranges);
	} else if (spanKind.value !== "all") query.set("range", spanKind.value);
	if (view.value !== "flat") query.set("view", view.value);
	if (key !== usual.key || down !== usual.down) query.set("sort", `${down ? "" : "-"}${key}`);
	if (filter.value) query.set("q", filter.value);
	if (beside.value) query.set("beside", "1");
	if (only.value) query.set("lanes", only.value);
	if (view.value === "flame" && zoomed.value) query.set("zoom", zoomed.value);
	return query;
}

function rangeNow(): Range {
	const now = brokerNow();
	if (spanKind.value === "hour") return { from: Math.floor(now - HOUR_MS), to: null };
	if (spanKind.value === "today")
		return { from: dayStart(now), to: null };
	return spanKind.value === "fixed" ? fixed.value : { from: null, to: null };
}

/* --- What the broker said to it --- */

interface Answer {
	view: Shown;
	report: Report;
	before: Report | null;
}
const answer = signal<Answer | null>(null);
const failed = signal("");
const said = signal("");

const asker = new Asker<Answer>((error) => {
	failed.value = `No report: ${error.message}.`;
	/* What is there is the answer to another question. */
	if (anew) answer.value = null;
	later();
});
let anew = true;
let timer = 0;
let shown = false;
let lastText = "";
let settled = false;

const rangesOf = ({ ranges }: Range) => (ranges ?? "").split(",").flatMap((one) => readPair(one) ?? []);

async function find(of: Shown, range: Range, lanes: string, two: boolean): Promise<Answer> {
	/* Of two ranges the later one has the earlier beside it. */
	const [first, second] = rangesOf(range);
	if (two && first && second) {
		const [before, report] = [await askReport(asked(of), first, lanes), await askReport(asked(of), second, lanes)];
		return { view: of, report, before };
	}
	const report = await askReport(asked(of), range, lanes);
	const before = two
		? await askReport(asked(of), { from: Math.max(0, 2 * report.from - report.to), to: report.from }, lanes)
		: null;
	return { view: of, report, before };
}

function ask() {
	clearTimeout(timer);
	const [of, range, lanes, two] = [view.value, rangeNow(), only.value, beside.value && canBeside()];
	asker.ask(
		() => find(of, range, lanes, two),
		(found) => {
			const text = JSON.stringify(found.report.total);
			/* The past is asked for again until the archive has been read. */
			settled = spanKind.value === "fixed" && fixed.value.to !== null && text === lastText;
			lastText = text;
			anew = false;
			batch(() => {
				answer.value = found;
				failed.value = "";
			});
			later();
		},
	);
}
function later() {
	clearTimeout(timer);
	if (shown && !document.hidden && !settled) timer = setTimeout(ask, REFRESH_MS);
}
function onVisible() {
	if (document.hidden) clearTimeout(timer);
	else if (!settled) ask();
}

/* Before all that is known there is nothing. */
const canBeside = () =>
	spanKind.value === "fixed"
		? fixed.value.from !== null && rangesOf(fixed.value).length < 3
		: spanKind.value !== "all";

const columns = computed(() => columnsOf(asked(view.value), !!answer.value?.before));
const lines = computed<Line[]>(() => {
	const found = answer.value;
	return found && found.view === view.value
		? linesOf(
				asked(found.view),
				found.report,
				found.before,
				columns.value,
				order.value,
				filter.value,
				turned.value,
				found.view === "flame",
			)
		: [];
});

/* --- What the reader does --- */

/* @step: "back" undoes it. */
function change(what: () => void, step = false) {
	batch(() => {
		what();
		said.value = "";
	});
	keepQuery("report", toQuery(), step);
}
function askFor(what: () => void) {
	change(() => {
		what();
		current.value = -1;
		most.value = ROWS;
	});
	askAnew();
}
function askAnew() {
	settled = false;
	anew = true;
	lastText = "";
	ask();
}
function show(next: Shown) {
	if (next === view.value) return;
	askFor(() => {
		view.value = next;
		order.value = firstOrder(next);
		turned.value = new Set();
		zoomed.value = "";
	});
}
function sortBy(key: string) {
	const down = order.value.key === key ? !order.value.down : key !== "name";
	change(() => {
		order.value = { key, down };
	});
}
function turn(path: string) {
	const next = new Set(turned.value);
	if (!next.delete(path)) next.add(path);
	turned.value = next;
}
function zoomTo(path: string) {
	if (path === zoomed.value) return;
	change(() => {
		zoomed.value = path;
	}, true);
}
/* Back and forward: the address says what was looked at. */
function onStep() {
	const [, query] = /^#\/report(?:\?(.*))?$/.exec(location.hash) ?? [];
	if (query === undefined && location.hash !== "#/report") return;
	readQuery(query ?? "");
	askAnew();
}
async function copy(text: string, what: string) {
	try {
		await navigator.clipboard.writeText(text);
		said.value = `${what} copied, ${plural(lines.value.length, "row")}`;
	} catch {
		said.value = "The browser keeps its clipboard to itself";
	}
}
const all = () => (answer.value ? whole(answer.value.report.total) : 0);
const copyTable = () => void copy(alignedTable(lines.value, columns.value, all()), "Table");
const copyCsv = () => void copy(csv(lines.value, columns.value, all()), "CSV");

function move(by: number) {
	const last = view.value === "flame" ? -1 : Math.min(most.value, lines.value.length) - 1;
	if (last < 0) return;
	current.value = Math.max(0, Math.min(last, current.value + by));
	document
		.querySelector(`.report tbody tr:nth-child(${current.value + 1})`)
		?.scrollIntoView({ block: "nearest" });
}

function takeKey(event: KeyboardEvent, key: string): boolean {
	const target = event.target as HTMLElement;
	if (event.altKey) return false;
	if (key === "Escape") {
		if (view.value !== "flame" || !zoomed.value) return false;
		zoomTo("");
		return true;
	}
	if (key === "j" || key === "k") {
		move(key === "j" ? 1 : -1);
		return true;
	}
	if (event.repeat) return false;
	if (key >= "1" && key <= String(VIEWS.length)) {
		show(VIEWS[Number(key) - 1]![0]);
		return true;
	}
	if (key === "c") {
		copyTable();
		return true;
	}
	if (key === "Enter" && !target.closest("a, button, select, summary")) {
		const line = lines.value[current.value];
		if (!line?.parent) return false;
		turn(line.path);
		return true;
	}
	return false;
}

/* --- The screen --- */

function rangeWords(report: Report | undefined): string {
	if (!report) return "";
	const far = report.to - report.from > 24 * HOUR_MS;
	const at = (ms: number) =>
		far ? `${isoDay(ms)} ${clockTime(ms)}` : clockTime(ms);
	return `${at(report.from)} – ${at(Math.min(report.to, report.now))}`;
}

function Head() {
	const { from, to } = fixed.value;
	const report = answer.value?.report;
	const able = canBeside();
	const lasts = report ? Math.min(report.to, report.now) - report.from : 0;
	const several = only.value && !agents.get(only.value);
	const words = spanKind.value === "fixed" && from !== null && to !== null;
	const ranges = spanKind.value === "fixed" ? rangesOf(fixed.value).length : 0;
	return (
		<header class="report-head">
			<h1>Where the time went</h1>
			<span class="picker">
				<select
					class="button"
					aria-label="Range"
					value={spanKind.value}
					onChange={(event) => {
						const next = event.currentTarget.value as Span;
						askFor(() => {
							spanKind.value = next;
						});
					}}
				>
					<option value="all">All</option>
					<option value="hour">Last hour</option>
					<option value="today">Today</option>
					{from !== null || to !== null ? (
						<option value="fixed">
							{words ? `${clockTime(from)} – ${clockTime(to)}` : "From a link"}
							{ranges ? `, ${ranges} ranges of it` : ""}
						</option>
					) : null}
				</select>
			</span>
			<span class="picker">
				<select
					class="button"
					aria-label="Agents"
					value={only.value}
					onChange={(event) => {
						const next = event.currentTarget.value;
						askFor(() => {
							only.value = next;
						});
					}}
				>
					<option value="">All agents</option>
					{several ? (
						<option value={only.value}>
							{plural(only.value.split(",").length, "lane")}
						</option>
					) : null}
					{agents.stills().map((agent) => (
						<option key={agent.id} value={agent.id}>
							{exact(nameOf(agent, agent.id))}
						</option>
					))}
				</select>
			</span>
			<button
				class="button"
				type="button"
				aria-pressed={beside.value && able}
				disabled={!able}
				title={able ? undefined : ranges ? "Two ranges can stand beside each other, not more" : "Before all that is known there is nothing: choose a range"}
				onClick={() =>
					askFor(() => {
						beside.value = !beside.value;
					})
				}
			>
				{ranges === 2 ? "One range beside the other" : `Beside ${able && report ? `the ${length(lasts)}` : "the range"} before`}
			</button>
			{words ? null : <span class="quiet range-words">{rangeWords(report)}</span>}
			<span class="end">
				<span class="quiet" role="status">
					{said.value}
				</span>
				<button class="button" type="button" onClick={copyTable}>
					Copy table <kbd>C</kbd>
				</button>
				<button class="button" type="button" onClick={copyCsv}>
					CSV
				</button>
			</span>
		</header>
	);
}

function Went({ report, before }: { report: Report; before: Report | null }) {
	const allMs = whole(report.total);
	const allBefore = before ? whole(before.total) : 0;
	const went = sums(report.total);
	return (
		<section class="went" aria-label="Model, tools, you, idle">
			<dl>
				{KINDS.map(([kind, word]) => (
					<div key={kind}>
						<dt>
							<span class="swatch" data-time={kind} />
							{word}
						</dt>
						<dd>{went[kind]}</dd>
						<dd>
							{percent(report.total[kind], allMs)}
							{before ? `, was ${percent(before.total[kind], allBefore).replace(" %", "")}` : ""}
						</dd>
					</div>
				))}
			</dl>
			<span class="name">All, {sum(allMs)}</span>
			<TimeBar class="total" times={report.total} />
			{before ? (
				<>
					<span class="name">Before, {sum(allBefore)}</span>
					<TimeBar class="before" times={before.total} />
				</>
			) : null}
			<ul class="went-agents" tabIndex={0} aria-label="Each lane">
				{report.lanes.map(({ lane, ...times }) => (
					<li key={lane}>
						<LaneName id={lane} />
						<TimeBar times={times} />
					</li>
				))}
			</ul>
		</section>
	);
}

/* Bin n is of those from 2^n ms on. */
function Histogram({ bins }: { bins: number[] }) {
	const top = Math.max(1, ...bins);
	const path = bins
		.map((n, i) => (n ? `M${i * 4 + 2} 18v-${Math.max(2, Math.round((16 * n) / top))}` : ""))
		.join("");
	return (
		<svg
			class="histogram"
			viewBox="0 0 128 18"
			role="img"
			aria-label={bins
				.map((n, i) => (n ? `${n} from ${2 ** i} ms` : ""))
				.filter(Boolean)
				.join(", ")}
		>
			<path class="rest" d="M0 18h128" />
			<path d={path} />
		</svg>
	);
}

function Name({ line }: { line: Line }) {
	const { row } = line;
	const words = row.command ? <code>{exact(rowName(row))}</code> : exact(rowName(row));
	return (
		<th scope="row" data-depth={Math.min(line.depth, 8)}>
			{line.parent ? (
				<button
					type="button"
					class="twist"
					aria-expanded={line.open}
					onClick={() => turn(line.path)}
				>
					{row.time ? <span class="swatch" data-time={row.time} /> : null}
					{words}
				</button>
			) : (
				<span class="leaf">
					{row.time ? <span class="swatch" data-time={row.time} /> : null}
					{words}
				</span>
			)}
		</th>
	);
}

function Cells({ line, all: allMs }: { line: Line; all: number }) {
	return (
		<>
			{columns.value.map(({ key, value, text }) => {
				const n = value(line, allMs);
				return (
					<td key={key}>
						{n === null ? null : key === "share" ? (
							<Share class="share" of={Math.min(1, n)}>
								{text(n)}
							</Share>
						) : (
							text(n)
						)}
					</td>
				);
			})}
			{view.value === "live" ? (
				<td>
					<Histogram bins={line.row.bins ?? []} />
				</td>
			) : null}
		</>
	);
}

function Sum({ report }: { report: Report }) {
	const rows = report.rows;
	const self = rows.reduce((ms, row) => ms + row.self, 0);
	const held = whole(report.total);
	const over = self - held;
	return (
		<tfoot>
			<tr>
				<td>
					Sum of rows. The lanes hold {sum(held)}
					{over > 50 ? `: ${sum(over)} ran side by side` : ""}
				</td>
				<td>{rows.reduce((n, row) => n + row.count, 0).toLocaleString("en")}</td>
				<td />
				<td>{sum(self)}</td>
				<td colSpan={columns.value.length - 3} />
			</tr>
		</tfoot>
	);
}

function Head2({ name, label, title }: { name: string; label: string; title: string }) {
	const { key, down } = order.value;
	const sorted = key === name;
	return (
		<th scope="col" aria-sort={sorted ? (down ? "descending" : "ascending") : undefined}>
			<button type="button" title={title} onClick={() => sortBy(name)}>
				{label}
				{sorted ? <span aria-hidden="true"> {down ? "↓" : "↑"}</span> : null}
			</button>
		</th>
	);
}

function Table({ report }: { report: Report }) {
	const allMs = whole(report.total);
	const shownLines = lines.value.slice(0, most.value);
	const rest = lines.value.length - shownLines.length;
	return (
		<>
			<table class="figures">
				<thead>
					<tr>
						<Head2 name="name" label="Name" title="Tool, command or state" />
						{columns.value.map(({ key, label, title }) => (
							<Head2
								key={key}
								name={key}
								label={key === "share" ? `share of ${sum(allMs)}` : label}
								title={title}
							/>
						))}
						{view.value === "live" ? <th scope="col">how long, 1 ms to weeks</th> : null}
					</tr>
				</thead>
				<tbody>
					{shownLines.map((line, i) => (
						<tr
							key={line.path}
							data-time={line.row.time}
							data-current={i === current.value || undefined}
						>
							<Name line={line} />
							<Cells line={line} all={allMs} />
						</tr>
					))}
				</tbody>
				{view.value === "flat" && !filter.value ? <Sum report={report} /> : null}
			</table>
			{lines.value.length ? null : (
				<p class="quiet nothing">
					{report.rows.length ? "No row has these words." : "Nothing happened in this range."}
				</p>
			)}
			{rest ? (
				<button
					class="button"
					type="button"
					onClick={() => {
						most.value += ROWS;
					}}
				>
					{plural(rest, "more row")}
				</button>
			) : null}
		</>
	);
}

/* Fetched when it is first asked for. */
let flame: ComponentType<FlameProps> | null = null;
function FlameLater(props: FlameProps) {
	const [failed, setFailed] = useState(false);
	const [, setLoaded] = useState(false);
	const Flame = flame;
	useEffect(() => {
		/* As it was drawn: another drawing of it may have got it since. */
		if (!Flame)
			import("./flame").then(
				(module) => {
					flame = module.Flame;
					setLoaded(true);
				},
				() => setFailed(true),
			);
	}, []);
	if (Flame) return <Flame {...props} />;
	return failed ? (
		<p class="warning" role="alert">
			This view did not come: the broker is gone, or newer than this page. Load the page again.
		</p>
	) : null;
}

function Panel({ report, before }: { report: Report; before: Report | null }) {
	if (view.value !== "flame") return <Table report={report} />;
	if (!report.rows.length) return <p class="quiet nothing">Nothing happened in this range.</p>;
	return (
		<FlameLater
			report={report}
			before={before}
			filter={filter.value.trim()}
			zoom={zoomed.value}
			onZoom={zoomTo}
		/>
	);
}

function Tabs() {
	const step = (event: KeyboardEvent) => {
		const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
		if (!by) return;
		event.preventDefault();
		const at = VIEWS.findIndex(([key]) => key === view.value);
		const next = VIEWS[(at + by + VIEWS.length) % VIEWS.length]![0];
		show(next);
		document.getElementById(`tab-${next}`)?.focus();
	};
	return (
		<div class="choice" role="tablist" aria-label="Views" onKeyDown={step}>
			{VIEWS.map(([key, word]) => (
				<button
					key={key}
					id={`tab-${key}`}
					type="button"
					role="tab"
					aria-selected={key === view.value}
					aria-controls="report-panel"
					tabIndex={key === view.value ? 0 : -1}
					onClick={() => show(key)}
				>
					{word}
				</button>
			))}
		</div>
	);
}

export function ReportScreen({ query }: { query: string }) {
	useLayoutEffect(() => {
		readQuery(query);
		askAnew();
	}, [query]);
	useLayoutEffect(() => {
		shown = true;
		screenKeys.take = takeKey;
		document.addEventListener("visibilitychange", onVisible);
		addEventListener("popstate", onStep);
		return () => {
			removeEventListener("popstate", onStep);
			shown = false;
			screenKeys.take = null;
			clearTimeout(timer);
			asker.forget();
			document.removeEventListener("visibilitychange", onVisible);
		};
	}, []);
	const found = answer.value;
	return (
		<main class="report" data-asked={asker.asked}>
			<Head />
			{failed.value ? (
				<p class="warning" role="alert">
					{failed.value}
				</p>
			) : null}
			{found?.report.completeFrom && found.report.completeFrom > found.report.from ? (
				<p class="quiet">
					Complete from {clockTime(found.report.completeFrom)}: older runs were let
					go.
				</p>
			) : null}
			{found ? <Went report={found.report} before={found.before} /> : null}
			<div class="report-tabs">
				<Tabs />
				<input
					class="field"
					type="search"
					aria-label="Filter rows"
					placeholder="Filter rows"
					value={filter.value}
					onInput={(event) => {
						const text = event.currentTarget.value;
						change(() => {
							filter.value = text;
						});
					}}
					onKeyDown={(event) => {
						if (event.key === "Escape") event.currentTarget.blur();
					}}
				/>
			</div>
			<div
				id="report-panel"
				class="report-table"
				role="tabpanel"
				tabIndex={0}
				aria-labelledby={`tab-${view.value}`}
				aria-busy={!failed.value && found?.view !== view.value}
			>
				{found?.view === view.value ? <Panel report={found.report} before={found.before} /> : null}
			</div>
		</main>
	);
}
