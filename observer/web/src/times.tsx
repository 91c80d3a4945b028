/* What the timeline and the report have in common: asking, numbers, bars. */

import { useEffect, useRef } from "preact/hooks";
import { getJson } from "./api";
import { exact } from "./plain";
import { agents, channelWords, lanes, nameOf } from "./store";
import { running } from "./words";

export type TimeKind = "model" | "tool" | "you" | "idle";
export type Times = Record<TimeKind, number>;

export const KINDS: [TimeKind, string][] = [
	["model", "Model"],
	["tool", "Tools"],
	["you", "You"],
	["idle", "Idle"],
];
export const whole = (times: Times) => KINDS.reduce((sum, [kind]) => sum + times[kind], 0);

export interface ReportRow {
	agent?: string;
	lane?: string;
	name?: string;
	more?: number;
	time?: TimeKind;
	command?: boolean;
	count: number;
	inclusive: number;
	self: number;
	p50?: number;
	p95?: number;
	max?: number;
	rows?: ReportRow[];
	/* Of the live view, instead. */
	total?: number;
	min?: number;
	avg?: number;
	deviation?: number;
	bins?: number[];
}

export interface Report {
	from: number;
	to: number;
	now: number;
	completeFrom?: number;
	total: Times;
	lanes: (Times & { lane: string })[];
	rows: ReportRow[];
}

export type View = "flat" | "top-down" | "bottom-up" | "live";

export interface Range {
	from: number | null;
	to: number | null;
	/* "a-b,c-d" where it has holes: only what is in these. */
	ranges?: string;
}

/* --- Several ranges --- */

export interface Stretch {
	from: number;
	to: number;
}
/* As many as the broker takes. */
export const RANGES_MAX = 16;

/* By time; those that touch are one, what is shorter than a millisecond is none. */
export function joined(list: readonly Stretch[]): Stretch[] {
	const out: Stretch[] = [];
	const sorted = list.filter(({ from, to }) => to - from >= 1).sort((a, b) => a.from - b.from);
	for (const { from, to } of sorted) {
		const last = out.at(-1);
		if (last && from <= last.to) last.to = Math.max(last.to, to);
		else out.push({ from, to });
	}
	return out.slice(0, RANGES_MAX);
}
export const pairOf = ({ from, to }: Stretch) => `${Math.round(from)}-${Math.round(to)}`;
export function readPair(text: string | null): Stretch | null {
	const [, a, b] = /^(\d{1,15})-(\d{1,15})$/.exec(text ?? "") ?? [];
	return a && b && Number(b) > Number(a) ? { from: Number(a), to: Number(b) } : null;
}
/* What is asked about: from the first to the last of them, less what is between. */
export const rangeOf = (list: readonly Stretch[]): Range => ({
	from: list[0]!.from,
	to: list.at(-1)!.to,
	...(list.length > 1 ? { ranges: list.map(pairOf).join(",") } : {}),
});

export function askReport(view: View, { from, to, ranges }: Range, only: string): Promise<Report> {
	const query = new URLSearchParams({ view });
	if (from !== null) query.set("from", String(Math.max(0, Math.floor(from))));
	if (to !== null) query.set("to", String(Math.max(1, Math.ceil(to))));
	if (ranges) query.set("ranges", ranges);
	if (only) query.set("lanes", only);
	return getJson<Report>(`/api/report?${query}`);
}

/* At most one question in the air; of those that come meanwhile only the last is asked. An
 * answer that another question has overtaken is dropped, unless @keep. */
export class Asker<T> {
	#busy = false;
	#next: { ask: () => Promise<T>; done: (answer: T) => void } | null = null;
	#failed: (error: Error) => void;
	#keep: boolean;
	dropped = 0;
	asked = 0;

	constructor(failed: (error: Error) => void, keep = false) {
		this.#failed = failed;
		this.#keep = keep;
	}
	get busy() {
		return this.#busy;
	}
	ask(ask: () => Promise<T>, done: (answer: T) => void) {
		this.#next = { ask, done };
		if (!this.#busy) void this.#run();
	}
	/* Nothing that is in the air is wanted any more. */
	forget() {
		this.#next = null;
		this.#generation++;
	}
	#generation = 0;
	async #run() {
		this.#busy = true;
		while (this.#next) {
			const { ask, done } = this.#next;
			const generation = this.#generation;
			this.#next = null;
			this.asked++;
			const stale = () =>
				generation !== this.#generation || (this.#next !== null && !this.#keep);
			try {
				const answer = await ask();
				if (stale()) this.dropped++;
				else done(answer);
			} catch (error) {
				if (!stale()) this.#failed(error as Error);
			}
		}
		this.#busy = false;
	}
}

/* The report's address for ranges. */
export function rangeQuery(list: readonly Stretch[], only: string): string {
	const { from, to, ranges } = rangeOf(list);
	const query = new URLSearchParams({
		from: String(Math.floor(from!)),
		to: String(Math.ceil(to!)),
	});
	if (ranges) query.set("ranges", ranges);
	if (only) query.set("lanes", only);
	return query.toString();
}

/* Less would be said as nothing. */
const FINE_MS = 50;
/* 14 ms, 0.3 s, 31.0 s, 2:51: how long one thing took. */
export const span = (ms: number) =>
	ms > 0 && ms < FINE_MS ? `${Math.ceil(ms)} ms` : ms < 60_000 ? `${(Math.max(0, ms) / 1000).toFixed(1)} s` : running(ms);
/* 4.1 s, 0:58, 19:48: a sum. */
export const sum = (ms: number) =>
	ms > 0 && ms < FINE_MS ? `${Math.ceil(ms)} ms` : ms < 10_000 ? `${(Math.max(0, ms) / 1000).toFixed(1)} s` : running(ms);
/* What the whole is counted in, and its parts with it. */
const unitOf = (all: number) => (all < FINE_MS ? 1 : all < 10_000 ? 100 : 1000);
/* The parts as they are shown add up to the whole as it is shown: those that lost the most by
 * being cut get what is missing. What is less than the unit is said as it is. */
export function sums(times: Times): Record<TimeKind, string> {
	const all = whole(times);
	const unit = unitOf(all);
	const shown = unit === 1 ? Math.ceil(all) : unit === 100 ? Math.round(all / unit) : Math.floor(all / unit);
	const parts = KINDS.map(([kind]) => ({ kind, count: Math.floor(times[kind] / unit), lost: times[kind] % unit }));
	let missing = shown - parts.reduce((count, part) => count + part.count, 0);
	for (const part of [...parts].sort((a, b) => b.lost - a.lost)) if (missing-- > 0) part.count++;
	const words = (count: number) =>
		unit === 1 ? `${count} ms` : unit === 100 ? `${(count / 10).toFixed(1)} s` : running(count * unit);
	return Object.fromEntries(
		parts.map(({ kind, count }) => [kind, count ? words(count) : sum(times[kind])]),
	) as Record<TimeKind, string>;
}
/* 2 min 0 s: how long a range is. */
export function length(ms: number): string {
	const s = ms / 1000;
	if (s < 1) return `${Math.round(ms)} ms`;
	if (s < 60) return `${s.toFixed(s < 10 ? 2 : 1)} s`;
	const minutes = Math.floor(s / 60);
	if (minutes < 60) return `${minutes} min ${Math.floor(s % 60)} s`;
	const hours = Math.floor(minutes / 60);
	return hours < 48
		? `${hours} h ${minutes % 60} min`
		: `${Math.floor(hours / 24)} d ${hours % 24} h`;
}
export const percent = (part: number, all: number) =>
	all ? `${((100 * part) / all).toFixed(1)} %` : "–";

/* A share of a whole, set on the element: the page has no inline styles. */
export function Share({
	of,
	children,
	...rest
}: {
	of: number;
	children?: string;
	class?: string;
	"data-time"?: string;
}) {
	const element = useRef<HTMLElement>(null);
	useEffect(() => element.current?.style.setProperty("--share", String(of)), [of]);
	return (
		<span ref={element} {...rest}>
			{children}
		</span>
	);
}

export function TimeBar({ times, class: name }: { times: Times; class?: string }) {
	const parts = KINDS.filter(([kind]) => times[kind] > 0);
	const said = sums(times);
	const words = parts.map(([kind, word]) => `${word} ${said[kind]}`).join(", ");
	return (
		<div class={`bar ${name ?? ""}`} role="img" aria-label={words || "nothing"}>
			{parts.map(([kind]) => (
				<Share key={kind} of={times[kind]} data-time={kind} />
			))}
		</div>
	);
}

/* "claude api-server": whose lane it is. */
export function laneWords(id: string): string {
	const lane = lanes.still(id);
	const agent = id.split("/")[0]!;
	const name = nameOf(agents.still(agent), agent);
	return `${name} ${channelWords(lane, id)}`;
}
export function LaneName({ id }: { id: string }) {
	const lane = lanes.still(id);
	const agent = id.split("/")[0]!;
	return (
		<>
			<b>{exact(nameOf(agents.still(agent), agent))}</b>
			<span class="quiet where">
				{exact(channelWords(lane, id))}
			</span>
		</>
	);
}
