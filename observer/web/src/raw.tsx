/* The raw zoom: under each row the lines it was made of, and those up to the next row. They are
 * asked for when the row is drawn, and kept while there is room. */

import { signal, type Signal } from "@preact/signals";
import { Component } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { control, getJson } from "./api";
import { Time } from "./parts";
import { exact, plain } from "./plain";
import { agentOf, lanes } from "./store";
import type { RawLine, Row } from "./types";
import { bytes, byteLength, plural } from "./words";

/* Of one request: what is drawn at once is asked for together. */
const PAGE = 200;
const MANY = 40;
/* A view that is scrolled past asks for nothing. */
const REST_MS = 60;
/* Of a line that is folded; opened, it is asked for whole. */
const GIST_BYTES = 600;
/* Of a line that is opened: more is looked at elsewhere. */
const OPEN_BYTES = 65_536;
/* No screen shows a longer one; the rest is a number. */
const LINE_MAX = 4000;
/* Characters of a line that is folded. */
const GIST = 240;
const KEPT_BYTES = 8_000_000;
const BODY_TRIES = 20;
const BODY_EVERY_MS = 1500;

export interface Span {
	lane: string;
	from: string;
	/* null: up to now */
	to: string | null;
}

interface Lines {
	lines: RawLine[];
	next: string | null;
	state: "loading" | "ready" | "failed";
	reason: string;
	bytes: number;
	/* Up to where it was asked. */
	to: string | null;
}

const EMPTY: Lines = {
	lines: [],
	next: null,
	state: "loading",
	reason: "",
	bytes: 0,
	to: null,
};

const kept = new Map<string, Signal<Lines>>();

function keep(id: string): Signal<Lines> {
	const cell = kept.get(id) ?? signal(EMPTY);
	kept.delete(id);
	kept.set(id, cell);
	let sum = 0;
	for (const { value } of kept.values()) sum += value.bytes;
	for (const old of kept.keys()) {
		if (sum <= KEPT_BYTES || old === id) break;
		sum -= kept.get(old)!.peek().bytes;
		kept.delete(old);
	}
	return cell;
}

export async function ask(
	{ lane, to }: Span,
	from: string,
	limit: number,
	cut?: number,
): Promise<{ lines: RawLine[]; next: string | null }> {
	const query = new URLSearchParams({ lane, from, limit: String(limit) });
	if (to) query.set("to", to);
	if (cut) query.set("cut", String(cut));
	return getJson(`/api/raw?${query}`);
}

/* The place behind an event's. */
const behind = (pos: string) =>
	`${pos.slice(0, 17)}${String(Number(pos.slice(17)) + 1).padStart(16, "0")}`;

type Cell = Signal<Lines>;

const asking = new Set<Cell>();
const waiting = new Map<Cell, Span>();
let timer = 0;

/* Soon, together with others: from the start, or behind the last line that is here. */
function want(cell: Cell, span: Span) {
	if (span.from === span.to || span.from === "~") {
		cell.value = { ...EMPTY, state: "ready", to: span.to };
		return;
	}
	waiting.set(cell, span);
	timer ||= setTimeout(flush, REST_MS);
}
function leave(cell: Cell) {
	waiting.delete(cell);
}

/* What is still to be asked of a stretch; null: it is here. */
function rest([cell, span]: [Cell, Span]): [Cell, Span] | null {
	const was = cell.peek();
	const last = was.lines[was.lines.length - 1];
	const from = was.next ?? (last ? behind(last.pos) : span.from);
	if (!span.to || from < span.to) return [cell, { ...span, from }];
	waiting.delete(cell);
	cell.value = { ...was, next: null, state: "ready", to: span.to };
	return null;
}

/* Stretches that follow each other are one. */
function flush() {
	timer = 0;
	const all = [...waiting]
		.filter(([cell]) => !asking.has(cell))
		.map(rest)
		.filter((one) => one !== null)
		.sort(([, a], [, b]) => (a.lane + a.from < b.lane + b.from ? -1 : 1));
	for (let i = 0; i < all.length;) {
		const some = [all[i++]!];
		while (
			i < all.length &&
			some.length < MANY &&
			all[i]![1].lane === some[0]![1].lane &&
			all[i]![1].from === some[some.length - 1]![1].to
		)
			some.push(all[i++]!);
		for (const [cell] of some) waiting.delete(cell);
		void load(some);
	}
}

async function load(some: [Cell, Span][]) {
	const [, first] = some[0]!;
	const { to } = some[some.length - 1]![1];
	for (const [cell] of some) asking.add(cell);
	try {
		const { lines, next } = await ask({ ...first, to }, first.from, PAGE, GIST_BYTES);
		for (const [cell, span] of some) {
			/* The answer ended before this one began: it is asked for again. */
			if (next && next <= span.from) {
				if (!waiting.has(cell)) waiting.set(cell, span);
				continue;
			}
			const mine = lines.filter(
				({ pos }) => pos >= span.from && (!span.to || pos < span.to),
			);
			const was = cell.peek();
			cell.value = {
				lines: [...was.lines, ...mine],
				next: next && (!span.to || next < span.to) ? next : null,
				state: "ready",
				reason: "",
				bytes: mine.reduce((sum, { text }) => sum + text.length, was.bytes),
				to: span.to,
			};
		}
	} catch (error) {
		for (const [cell] of some)
			cell.value = {
				...cell.peek(),
				state: "failed",
				reason: (error as Error).message,
			};
	} finally {
		for (const [cell] of some) asking.delete(cell);
		/* What was wanted meanwhile. */
		if (waiting.size) timer ||= setTimeout(flush);
	}
}

function pretty(text: string): string {
	let out = text;
	try {
		out = JSON.stringify(JSON.parse(text), null, 2);
	} catch {
		/* cut, or no JSON: as it is */
	}
	return out
		.split("\n")
		.map((line) =>
			line.length > LINE_MAX
				? `${line.slice(0, LINE_MAX)}… ${(line.length - LINE_MAX).toLocaleString("en")} more characters`
				: line,
		)
		.join("\n");
}

/* A line as it is to be read: as it came where all of it is here, else asked for. */
export function Opened({ line, span }: { line: RawLine; span: Span }) {
	const [text, setText] = useState(
		byteLength(line.text) >= line.bytes ? line.text : null,
	);
	const [said, setSaid] = useState("");
	useEffect(() => {
		if (text !== null) return;
		ask({ ...span, to: null }, line.pos, 1, OPEN_BYTES).then(
			({ lines }) => setText(lines[0]?.text ?? line.text),
			(error: Error) => setSaid(`${error.message}.`),
		);
	}, []);
	if (text === null) return <p class="panel-foot">{said || "Asking for the line"}</p>;
	const here = byteLength(text);
	const copy = async () => {
		try {
			await navigator.clipboard.writeText(text);
			setSaid("Copied");
		} catch {
			setSaid("The browser did not let it be copied");
		}
	};
	return (
		<>
			<pre class="terminal" tabIndex={0}>
				{exact(pretty(text))}
			</pre>
			<p class="panel-foot">
				<span>
					{here < line.bytes
						? `The first ${bytes(here)} of ${bytes(line.bytes)}`
						: bytes(line.bytes)}
				</span>
				<span role="status">{said}</span>
				<button class="link" type="button" onClick={() => void copy()}>
					Copy {here < line.bytes ? "this part" : "the line"}
				</button>
			</p>
		</>
	);
}

/* What a harness cut before it sent it, it may still have. */
function Cut({ line, span, cell }: { line: RawLine; span: Span; cell: Signal<Lines> }) {
	const [said, setSaid] = useState("");
	const alive = useRef(true);
	useEffect(
		() => () => {
			alive.current = false;
		},
		[],
	);
	const fetchIt = async () => {
		const [agent, channel] = span.lane.split("/") as [string, string];
		const [epoch, seq] = line.pos.split("/") as [string, string];
		setSaid("Asked for");
		try {
			await control({
				agent,
				channel,
				type: "fetch_body",
				epoch,
				seq: Number(seq),
			});
			for (let i = 0; i < BODY_TRIES && alive.current; i++) {
				await new Promise((done) => setTimeout(done, BODY_EVERY_MS));
				const { lines } = await ask({ ...span, to: null }, line.pos, 1);
				const whole = lines[0];
				if (!whole || whole.trimmed || whole.redacted) continue;
				cell.value = {
					...cell.peek(),
					lines: cell
						.peek()
						.lines.map((old) => (old.pos === line.pos ? whole : old)),
				};
				return;
			}
			setSaid("The harness did not send it");
		} catch (error) {
			setSaid(`${(error as Error).message}.`);
		}
	};
	const foreign = lanes.get(span.lane) && agentOf(lanes.get(span.lane)!)?.foreign;
	return (
		<p class="raw-cut">
			<span>
				{line.redacted
					? "Secrets were taken out before it was sent"
					: `Cut before it was sent: it was ${bytes(line.trimmed!)}`}
			</span>
			<span role="status">{said}</span>
			{foreign ? null : (
				<button
					class="link"
					type="button"
					disabled={said === "Asked for"}
					onClick={() => void fetchIt()}
				>
					Fetch it whole
				</button>
			)}
		</p>
	);
}

const WAYS = {
	read: ["←", "from the agent"],
	write: ["→", "to the agent"],
} as const;

function Line({ line, span, cell }: { line: RawLine; span: Span; cell: Signal<Lines> }) {
	const [open, setOpen] = useState(false);
	const way = line.direction ? WAYS[line.direction] : null;
	return (
		<div class="raw-line" data-direction={line.direction}>
			<details
				open={open}
				onToggle={(event) => setOpen(event.currentTarget.open)}
			>
				<summary>
					<span class="way" title={way?.[1] ?? "of the harness"}>
						<span aria-hidden="true">{way?.[0] ?? "·"}</span>
						<span class="hidden">{way?.[1] ?? "of the harness"}</span>
					</span>
					<b>{exact(line.name ?? line.kind)}</b>
					<code>{exact(line.text.slice(0, GIST))}</code>
					<span class="number" title="How long the line is">
						{line.merged ? `${plural(line.merged, "line")}, ` : ""}
						{bytes(line.bytes)}
					</span>
				</summary>
				{open ? <Opened line={line} span={span} /> : null}
			</details>
			{line.trimmed || line.redacted ? (
				<Cut line={line} span={span} cell={cell} />
			) : null}
		</div>
	);
}

function RawLines({ row, span, live }: { row: Row; span: Span; live: number }) {
	const cell = keep(`${span.lane} ${row.id}`);
	const { lines, next, state, reason } = cell.value;
	useEffect(() => {
		/* Where the next row began since, the lines behind it are that row's. */
		const was = cell.peek();
		if (span.to && was.lines.some(({ pos }) => pos >= span.to!))
			cell.value = {
				...was,
				lines: was.lines.filter(({ pos }) => pos < span.to!),
				next: null,
			};
		if (was.state === "loading" || (!was.next && was.to !== span.to) || !span.to)
			want(cell, span);
		return () => leave(cell);
	}, [cell, span.from, span.to, live]);
	return (
		<>
			{lines.map((line) => (
				<Line key={line.pos} line={line} span={span} cell={cell} />
			))}
			{state === "failed" ? (
				<p class="quiet">
					Its lines could not be read: {reason}.{" "}
					<button
						class="link"
						type="button"
						onClick={() => want(cell, span)}
					>
						Try again
					</button>
				</p>
			) : next ? (
				<p>
					<button
						class="link"
						type="button"
						onClick={() => want(cell, span)}
					>
						More lines
					</button>
				</p>
			) : !lines.length ? (
				<p class="quiet raw-none">
					{state === "loading"
						? "Asking for its lines"
						: `${plain(NONE[row.type] ?? "No line of its own")}`}
				</p>
			) : null}
		</>
	);
}

const NONE: Record<string, string> = {
	gap: "Frames that are not here have no lines",
	lifecycle: "Said of the whole harness, not of this channel",
};

interface Props {
	row: Row;
	from: string;
	to: string | null;
	/* Changes when there may be more behind the newest row. */
	live: number;
	current: boolean;
}

export class Raw extends Component<Props> {
	shouldComponentUpdate(next: Props) {
		const { row, from, to, live, current } = this.props;
		return (
			next.row !== row ||
			next.from !== from ||
			next.to !== to ||
			next.live !== live ||
			next.current !== current
		);
	}
	render({ row, from, to, live, current }: Props) {
		return (
			<li
				class="entry entry-raw"
				data-row={row.id}
				data-time={row.time ?? undefined}
				data-type={row.type}
				data-current={current || undefined}
			>
				<Time ms={row.t} class="entry-time" />
				<div class="entry-body">
					<RawLines row={row} span={{ lane: row.lane, from, to }} live={live} />
				</div>
			</li>
		);
	}
}
