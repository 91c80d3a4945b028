/* How perch itself does: when this page decoded, reduced, laid out and painted, drawn as the
 * timeline draws what agents do; beside it what the broker and the harnesses count. */

import { effect, signal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { getJson } from "./api";
import { clockTime, now as clock, Tick } from "./clock";
import { PAINT, PHASES, phasesSince, timed, type Timed } from "./phases";
import { exact } from "./plain";
import { agents, health, nameOf } from "./store";
import { CALL, type Block, type Drawn, layOut, Ranked, type Span, Strip } from "./timeline_data";
import { drawLanes, Inks, type Scene } from "./timeline_paint";
import { screenKeys, theme } from "./ui";
import { age, bytes, plural } from "./words";

interface Figures {
	[name: string]: number;
}
interface Self {
	now: number;
	broker: Figures;
	rowBytes: number;
	harnesses: { agent: string; atMs: number; replayed?: number; figures: Figures }[];
}

const ASK_MS = 5000;
const SPAN_MIN_MS = 1000;
const SPAN_MAX_MS = 300_000;
const WORDS = ["Decode", "Reduce", "Layout", "Paint"];
const span = signal(30_000);
const going = signal(true);
const until = signal(0);
const self = signal<Self | null>(null);
const failed = signal("");

/* --- The page's own phases --- */

const block: Block = { id: "page", top: 0, height: 0, lines: { turns: false, calls: PHASES.length, parts: 0, values: 0 } };
layOut([block]);

function sceneOf(phases: readonly Timed[], from: number, to: number, width: number): Scene {
	const spans: Span[] = phases.map(({ phase, t, ms }) => ({
		t, end: t + ms, name: `${WORDS[phase]} ${ms.toFixed(1)} ms`, row: "", kind: CALL, flags: 0, line: phase,
	}));
	const lane = { strip: new Strip(new Uint8Array()), values: [], list: { calls: Ranked.of(spans), waits: Ranked.of([]) } };
	const answer: Drawn = { from, to, now: to, width, lanes: new Map([[block.id, lane]]) };
	return {
		view: { from, to }, ranges: [], now: to, answer, overview: null, blocks: [block], lanes: [block],
		scroll: 0, pinned: 0, hover: null, picked: null, like: null, offline: new Set(), stalled: new Set(),
	};
}

function Phases() {
	const canvas = useRef<HTMLCanvasElement>(null);
	const probe = useRef<HTMLElement>(null);
	useLayoutEffect(() => {
		const inks = new Inks(probe.current!);
		let frame = 0;
		const draw = () => {
			frame = 0;
			const width = canvas.current!.clientWidth;
			const [from, to] = [until.value - span.value, until.value];
			const scene = sceneOf(phasesSince(from), from, to, width);
			if (width) timed(PAINT, () => drawLanes(canvas.current!, inks, scene, width, block.height));
		};
		const dirty = () => {
			frame ||= requestAnimationFrame(draw);
		};
		const recolour = () => {
			inks.forget();
			dirty();
		};
		const schemes = [matchMedia("(prefers-color-scheme: dark)"), matchMedia("(prefers-contrast: more)")];
		for (const scheme of schemes) scheme.addEventListener("change", recolour);
		const sizes = new ResizeObserver(dirty);
		sizes.observe(canvas.current!);
		canvas.current!.style.blockSize = `${block.height}px`;
		const stops = [
			effect(() => {
				until.value;
				span.value;
				dirty();
			}),
			effect(() => {
				theme.value;
				recolour();
			}),
		];
		return () => {
			cancelAnimationFrame(frame);
			sizes.disconnect();
			for (const scheme of schemes) scheme.removeEventListener("change", recolour);
			for (const stop of stops) stop();
		};
	}, []);
	return (
		<div class="phases">
			<ul>
				<li class="lane" data-lane="state">
					<b>This page</b>
				</li>
				{WORDS.map((word) => (
					<li key={word} class="lane">
						{word}
					</li>
				))}
			</ul>
			<canvas ref={canvas} role="img" aria-label="When this page decoded, reduced, laid out and painted; the sums are in the table" />
			<i ref={probe} class="hidden" aria-hidden="true" />
		</div>
	);
}

const quantile = (sorted: readonly number[], part: number) => sorted[Math.min(sorted.length - 1, Math.floor(part * sorted.length))] ?? 0;
const ms = (n: number) => `${n.toFixed(1)} ms`;

function PhaseTable() {
	const found = phasesSince(until.value - span.value).filter(({ t }) => t <= until.value);
	return (
		<table class="figures">
			<caption class="hidden">Phases of this page</caption>
			<thead>
				<tr>
					{["Phase", "count", "total", "share", "p50", "p95", "max"].map((word) => (
						<th key={word} scope="col">
							{word}
						</th>
					))}
				</tr>
			</thead>
			<tbody>
				{WORDS.map((word, phase) => {
					const all = found.filter((it) => it.phase === phase).map((it) => it.ms).sort((a, b) => a - b);
					const total = all.reduce((sum, it) => sum + it, 0);
					return (
						<tr key={word}>
							<th scope="row">{word}</th>
							<td>{all.length}</td>
							<td>{ms(total)}</td>
							<td>{`${((100 * total) / span.value).toFixed(2)} %`}</td>
							<td>{ms(quantile(all, 0.5))}</td>
							<td>{ms(quantile(all, 0.95))}</td>
							<td>{ms(all.at(-1) ?? 0)}</td>
						</tr>
					);
				})}
			</tbody>
		</table>
	);
}

/* --- The broker and the harnesses --- */

const BROKER: [name: string, words: string, show: (n: number) => string][] = [
	["pages", "Pages that read the stream", String],
	["messages", "Messages of the stream so far", (n) => n.toLocaleString("en")],
	["messageBytes", "Their size", bytes],
	["snapshots", "Snapshots sent", String],
	["ringBytes", "Kept for pages that come back", bytes],
	["spanLanes", "Lanes with times", String],
	["spanBytes", "Times in memory", bytes],
];
const HARNESS: [name: string, words: string, show: (n: number) => string, title: string][] = [
	["queueEvents", "queue", (n) => plural(n, "event"), "Events that wait to be sent"],
	["queueBytes", "queued", bytes, "What they hold in memory"],
	["inFlight", "in flight", (n) => plural(n, "frame"), "Sent, and not yet taken by the relay"],
	["sealUs", "seal", (n) => `${(n / 1000).toFixed(2)} ms`, "How long the newest frame took to encrypt and sign"],
	["deferred", "deferred", (n) => n.toLocaleString("en"), "Events for which the queue had no room: they came from the journal, later"],
	["dropped", "dropped", (n) => n.toLocaleString("en"), "Events that nothing had room for"],
	["journalBytes", "journal", bytes, "What its journal holds on disk"],
	["journalLost", "lost", (n) => n.toLocaleString("en"), "Frames that the journal could not keep"],
];
const say = (figures: Figures, name: string, show: (n: number) => string) =>
	typeof figures[name] === "number" ? show(figures[name]) : "–";

function Broker() {
	const found = self.value;
	if (!found) return <p class="quiet">{failed.value || "The broker is asked."}</p>;
	const missing = (health.value.missing ?? []).reduce((sum, { frames }) => sum + frames, 0);
	return (
		<dl class="counts">
			{BROKER.map(([name, words, show]) => (
				<div key={name}>
					<dt>{words}</dt>
					<dd class="number">{say(found.broker, name, show)}</dd>
				</div>
			))}
			<div>
				<dt>Rows in memory</dt>
				<dd class="number">{bytes(found.rowBytes)}</dd>
			</div>
			<div>
				<dt>Frames missing</dt>
				<dd class="number">{missing.toLocaleString("en")}</dd>
			</div>
		</dl>
	);
}

function Harnesses() {
	const said = self.value?.harnesses ?? [];
	if (!said.length) return <p class="quiet">No harness has told its figures to this observer yet.</p>;
	return (
		<div class="wide-table" tabIndex={0} role="group" aria-label="Figures of the harnesses">
			<table class="figures">
				<thead>
					<tr>
						<th scope="col">Harness</th>
						<th scope="col" title="How long ago it said so">
							told
						</th>
						<th scope="col" title="Frames that were numbered but are not here">
							gaps
						</th>
						<th scope="col" title="Frames that came when we asked for them again">
							replays
						</th>
						{HARNESS.map(([name, words, , title]) => (
							<th key={name} scope="col" title={title}>
								{words}
							</th>
						))}
					</tr>
				</thead>
				<tbody>
					{said.map(({ agent, atMs, replayed, figures }) => (
						<tr key={agent}>
							<th scope="row">{exact(nameOf(agents.still(agent), agent))}</th>
							<td>
								<Tick text={(now) => age(now - atMs)} />
							</td>
							<td>{agents.still(agent)?.missing ?? 0}</td>
							<td>{replayed ?? 0}</td>
							{HARNESS.map(([name, , show]) => (
								<td key={name}>{say(figures, name, show)}</td>
							))}
						</tr>
					))}
				</tbody>
			</table>
		</div>
	);
}

/* --- --- */

function takeKey(event: KeyboardEvent, key: string): boolean {
	if (event.altKey) return false;
	if (key === "w" || key === "s") {
		span.value = Math.max(SPAN_MIN_MS, Math.min(SPAN_MAX_MS, span.value * (key === "w" ? 0.5 : 2)));
		return true;
	}
	if (key !== " " || event.repeat || (event.target as HTMLElement).closest("a, button, summary")) return false;
	going.value = !going.value;
	return true;
}

export function SelfScreen() {
	useLayoutEffect(() => {
		let timer = 0;
		let open = true;
		const ask = async () => {
			try {
				self.value = await getJson<Self>("/api/self");
				failed.value = "";
			} catch (error) {
				failed.value = `No figures: ${(error as Error).message}.`;
			}
			if (open && !document.hidden) timer = setTimeout(ask, ASK_MS);
		};
		const onVisible = () => {
			clearTimeout(timer);
			if (!document.hidden) void ask();
		};
		void ask();
		document.addEventListener("visibilitychange", onVisible);
		screenKeys.take = takeKey;
		const stop = effect(() => {
			clock.value;
			if (going.value) until.value = Date.now();
		});
		return () => {
			open = false;
			clearTimeout(timer);
			document.removeEventListener("visibilitychange", onVisible);
			screenKeys.take = null;
			stop();
		};
	}, []);
	return (
		<main class="self">
			<h1 class="hidden">Self</h1>
			<section aria-labelledby="self-page">
				<div class="toolbar">
					<h2 id="self-page">Frame phases of this page</h2>
					<button class="button" type="button" aria-pressed={going.value} onClick={() => (going.value = !going.value)}>
						Follow <kbd>Space</kbd>
					</button>
					<span class="span">
						{clockTime(until.value - span.value)} – {clockTime(until.value)}
					</span>
				</div>
				<Phases />
				<PhaseTable />
			</section>
			<section aria-labelledby="self-broker">
				<h2 id="self-broker">Broker</h2>
				{failed.value && self.value ? (
					<p class="warning" role="alert">
						{failed.value}
					</p>
				) : null}
				<Broker />
			</section>
			<section aria-labelledby="self-harnesses">
				<h2 id="self-harnesses">Harnesses</h2>
				<Harnesses />
			</section>
		</main>
	);
}
