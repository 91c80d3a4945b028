/* How perch itself does: when this page decoded, reduced, laid out and painted, drawn as the
 * timeline draws what agents do; beside it what the broker and the harnesses count. */

import { effect, signal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { getJson } from "./api";
import { clockTime, now as clock, Tick } from "./clock";
import { PAINT, PHASES, phasesSince, timed } from "./phases";
import { exact } from "./plain";
import { beginVisit, type Figures, keep, type Lane, lanesOf, sceneOf, since } from "./self_lanes";
import { agents, health, nameOf } from "./store";
import { CALL, type Block, layOut, Ranked, type Span, Strip } from "./timeline_data";
import { drawLanes, Inks, type Scene } from "./timeline_paint";
import { screenKeys, theme } from "./ui";
import { age, bytes, plural } from "./words";

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

/* --- Canvases: drawn again with whoever has them, and when their size or the colours change --- */

function Drawing({ label, height, scene }: { label: string; height: number; scene: (width: number) => Scene }) {
	const canvas = useRef<HTMLCanvasElement>(null);
	const probe = useRef<HTMLElement>(null);
	const newest = useRef({ scene, height, dirty: () => {} });
	newest.current.scene = scene;
	newest.current.height = height;
	useLayoutEffect(() => {
		const inks = new Inks(probe.current!);
		let frame = 0;
		const draw = () => {
			frame = 0;
			const width = canvas.current!.clientWidth;
			const { scene, height } = newest.current;
			if (width) timed(PAINT, () => drawLanes(canvas.current!, inks, scene(width), width, height));
		};
		const dirty = () => {
			frame ||= requestAnimationFrame(draw);
		};
		newest.current.dirty = dirty;
		const recolour = () => {
			inks.forget();
			dirty();
		};
		const schemes = [matchMedia("(prefers-color-scheme: dark)"), matchMedia("(prefers-contrast: more)")];
		for (const scheme of schemes) scheme.addEventListener("change", recolour);
		const sizes = new ResizeObserver(dirty);
		sizes.observe(canvas.current!);
		const stop = effect(() => {
			theme.value;
			recolour();
		});
		return () => {
			cancelAnimationFrame(frame);
			sizes.disconnect();
			for (const scheme of schemes) scheme.removeEventListener("change", recolour);
			stop();
		};
	}, []);
	useLayoutEffect(() => {
		canvas.current!.style.blockSize = `${height}px`;
		newest.current.dirty();
	});
	return (
		<>
			<canvas ref={canvas} role="img" aria-label={label} />
			<i ref={probe} class="hidden" aria-hidden="true" />
		</>
	);
}

/* --- The page's own phases --- */

const block: Block = { id: "page", top: 0, height: 0, lines: { turns: false, calls: PHASES.length, parts: 0, values: 0 } };
layOut([block]);

function phasesIn(from: number, to: number, width: number): Scene {
	const spans: Span[] = phasesSince(from).map(({ phase, t, ms }) => ({
		t, end: t + ms, name: `${WORDS[phase]} ${ms.toFixed(1)} ms`, row: "", kind: CALL, flags: 0, line: phase,
	}));
	const lane = { strip: new Strip(new Uint8Array()), values: [], list: { calls: Ranked.of(spans), waits: Ranked.of([]) } };
	return sceneOf({ from, to, now: to, width, lanes: new Map([[block.id, lane]]) }, [block]);
}

function Phases() {
	const [from, to] = [until.value - span.value, until.value];
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
			<Drawing
				label="When this page decoded, reduced, laid out and painted; the sums are in the table"
				height={block.height}
				scene={(width) => phasesIn(from, to, width)}
			/>
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
/* Drawn: the names are short, as they are beside a canvas. */
const count = (n: number) => n.toLocaleString("en");
const BROKER_LANES: Lane[] = [
	{ name: "messages", words: "Messages/s", show: (n) => n.toFixed(1), grows: true },
	{ name: "messageBytes", words: "Bytes/s", show: bytes, grows: true },
	{ name: "ringBytes", words: "Kept", show: bytes },
	{ name: "rowBytes", words: "Rows", show: bytes },
	{ name: "spanBytes", words: "Times", show: bytes },
	{ name: "missing", words: "Missing", show: count },
];
const HARNESS_LANES: Lane[] = [
	{ name: "queueEvents", words: "Queue", show: count },
	{ name: "inFlight", words: "In flight", show: count },
	{ name: "sealUs", words: "Seal", show: (n) => `${(n / 1000).toFixed(2)} ms` },
	{ name: "missing", words: "Gaps", show: count },
	{ name: "replayed", words: "Replays", show: count },
];
/* Harnesses that have lanes: the first in the table. */
const DRAWN_MAX = 8;
const missing = () => (health.value.missing ?? []).reduce((sum, { frames }) => sum + frames, 0);

function hear({ broker, rowBytes, harnesses }: Self) {
	const pick = (list: readonly Lane[], figures: Figures) =>
		Object.fromEntries(list.flatMap(({ name }) => (typeof figures[name] === "number" ? [[name, figures[name]]] : [])));
	const of: Record<string, Figures> = { broker: pick(BROKER_LANES, { ...broker, rowBytes, missing: missing() }) };
	for (const { agent, replayed = 0, figures } of harnesses.slice(0, DRAWN_MAX))
		of[agent] = pick(HARNESS_LANES, { ...figures, replayed, missing: agents.still(agent)?.missing ?? 0 });
	keep(of);
}

/* What was told until now, as lanes; the newest of it is in the figures. */
function Told({ of, list, label }: { of: string[]; list: readonly Lane[]; label: string }) {
	const { height, scene, most } = lanesOf(of, list);
	return (
		<>
			<p class="quiet">
				Since {since()}, told every {ASK_MS / 1000} s while this screen is open{of.length === DRAWN_MAX ? `; of the first ${DRAWN_MAX}` : ""}
			</p>
			<div class="phases told">
				<ul>
					{of.map((id) => [
						<li key={id} class="lane" data-lane="state">
							<b>{exact(id === "broker" ? "Broker" : nameOf(agents.still(id), id))}</b>
						</li>,
						...list.map(({ words, show }, kind) => (
							<li key={id + words} class="lane" data-lane="value" title="The most of it">
								{words}
								<span class="value">{most(id, kind, (n) => `≤ ${show(n)}`)}</span>
							</li>
						)),
					])}
				</ul>
				<Drawing label={`${label} since ${since()}`} height={height} scene={() => scene} />
			</div>
		</>
	);
}

const say = (figures: Figures, name: string, show: (n: number) => string) =>
	typeof figures[name] === "number" ? show(figures[name]) : "–";

function Broker() {
	const found = self.value;
	if (!found) return <p class="quiet">{failed.value || "The broker is asked."}</p>;
	return (
		<>
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
					<dd class="number">{count(missing())}</dd>
				</div>
			</dl>
			<Told of={["broker"]} list={BROKER_LANES} label="What the broker counted" />
		</>
	);
}

function Harnesses() {
	const said = self.value?.harnesses ?? [];
	if (!said.length) return <p class="quiet">No harness has told its figures to this observer yet.</p>;
	return (
		<>
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
			<Told of={said.slice(0, DRAWN_MAX).map(({ agent }) => agent)} list={HARNESS_LANES} label="What the harnesses told" />
		</>
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
				const found = await getJson<Self>("/api/self");
				hear(found);
				self.value = found;
				failed.value = "";
			} catch (error) {
				failed.value = `No figures: ${(error as Error).message}.`;
				beginVisit();
			}
			/* Another may have been asked meanwhile. */
			clearTimeout(timer);
			if (open && !document.hidden) timer = setTimeout(ask, ASK_MS);
		};
		const onVisible = () => {
			clearTimeout(timer);
			beginVisit();
			if (!document.hidden) void ask();
		};
		beginVisit();
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
