/* What every agent did, when: lanes of names beside one canvas. */

import { effect, untracked } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { clockTime, moment, now as clock, stretchWords, utc } from "./clock";
import { exact, plain } from "./plain";
import { PAINT, timed } from "./phases";
import { routeTo } from "./session";
import { brokerNow } from "./store";
import { ALLOWED, CALL, CANCELLED, COMMAND, FAILED, PART, PART_LINE, ROW, rowTop, TURN, WAIT } from "./timeline_data";
import { arrangement, hiddenCount, laneCount } from "./timeline_lanes";
import * as model from "./timeline_model";
import { Menu, openMenu } from "./timeline_menu";
import { goToLane, laneKey, LaneTable, Names, said, showHidden } from "./timeline_names";
import { drawLanes, drawRuler, edges, Inks, OVERVIEW, overviews, type Picked, type Scene } from "./timeline_paint";
import { KINDS, LaneName, length, percent, rangeQuery, span as spanTime, sum, sums, TimeBar, whole } from "./times";
import { palette, screenKeys, theme } from "./ui";
import { plural, running, took } from "./words";

/* Rows of the table; more than that no reader wants at once. */
const TABLE_ROWS = 400;
const CLICK_PX = 4;
/* So long a finger stays until it means the menu. */
const HOLD_MS = 500;
const figures = { draws: 0, drawMs: 0, lanes: 0, redraw: () => {} };

/* --- Words about a span --- */

/* The call that a wait held up. */
function heldUp(lane: string, { t, line }: Picked["span"]) {
	const at = line & PART_LINE ? PART : CALL;
	return model.answer.value?.lanes.get(lane)?.spans.find((it) => it.kind === at && it.line === (line & ~PART_LINE) && it.t <= t && it.end >= t);
}
function outcome(lane: string, span: Picked["span"]): string {
	const { end, t, flags, kind } = span;
	const open = end === Number.POSITIVE_INFINITY;
	const ms = (open ? brokerNow() : end) - t;
	if (kind === WAIT) {
		if (open) return `waiting for you, ${running(ms)} so far`;
		const name = flags & ALLOWED ? heldUp(lane, span)?.name : "";
		return `waited for you ${took(ms)}${flags & ALLOWED ? `, then ${name ? `${plain(name)} was ` : ""}allowed` : ""}`;
	}
	if (open) return `goes on, ${running(ms)} so far`;
	return `${flags & FAILED ? "failed after" : flags & CANCELLED ? "cancelled after" : "took"} ${took(ms)}`;
}
const KIND_WORDS = { [TURN]: "turn", [PART]: "part of a call", [WAIT]: "wait" } as Record<number, string>;
const kindWords = (kind: number) => KIND_WORDS[kind] ?? "call";
const times = ({ t, end }: Picked["span"]) =>
	end === Number.POSITIVE_INFINITY ? `${clockTime(t)} – now` : stretchWords(t, end);

function SpanName({ span }: { span: Picked["span"] }) {
	const name = exact(span.name || kindWords(span.kind));
	return span.flags & COMMAND ? <code>{name}</code> : <>{name}</>;
}

function Tip() {
	const element = useRef<HTMLParagraphElement>(null);
	const over = model.hover.value ?? model.picked.value;
	const { width } = model.size.value;
	const view = model.view.value;
	useLayoutEffect(() => {
		const tip = element.current;
		if (!tip || !over) return;
		const block = model.blocks.value.find(({ id }) => id === over.lane);
		const canvas = document.querySelector<HTMLElement>(".lanes canvas");
		if (!block || !canvas) return;
		const scale = width / (view.to - view.from);
		const [left, right] = edges(over.span, (t) => (t - view.from) * scale, brokerNow(), width);
		const x = Math.max(8, Math.min(width - 260, (Math.max(0, left) + Math.min(width, right)) / 2 - 40));
		const y = block.top + rowTop(block, over.span.kind, over.span.line) + ROW + 4 + (block.top < model.pinnedHeight.value ? canvas.parentElement!.scrollTop : 0);
		const scroller = canvas.parentElement!;
		const below = y - scroller.scrollTop + tip.offsetHeight < scroller.clientHeight;
		tip.style.insetInlineStart = `${canvas.offsetLeft + x}px`;
		tip.style.insetBlockStart = `${below ? y : y - ROW - tip.offsetHeight - 8}px`;
	});
	if (!over || over.span.t > view.to || over.span.end < view.from) return null;
	const { span } = over;
	return (
		<p ref={element} class="tip" role="tooltip">
			<b>
				<SpanName span={span} />
			</b>
			<i data-failed={span.flags & FAILED ? "" : undefined}>{outcome(over.lane, span)}</i>
			<span>
				{times(span)} · <LaneName id={over.lane} /> · {kindWords(span.kind)}
			</span>
		</p>
	);
}

/* --- The canvas: drawn when something that it shows has changed --- */

function scene(): Scene {
	return {
		view: model.view.value,
		ranges: model.ranges.value,
		now: brokerNow(),
		answer: model.answer.value,
		overview: model.overview.value,
		blocks: model.blocks.value,
		lanes: model.shownBlocks.value,
		scroll: scroller?.scrollTop ?? 0,
		pinned: model.pinnedHeight.value,
		hover: model.hover.value,
		picked: model.picked.value,
		like: model.like.value,
		offline: model.offline.value,
		stalled: model.stalled.value,
	};
}
let scroller: HTMLElement | null = null;

function openRow({ lane, span }: Picked) {
	location.hash = routeTo(lane, span.row || null);
}

/* Fingers and mouse: drag pans, two fingers zoom, a click opens; the right button, or a finger
 * that stays, has the span's menu, and dragged the right button draws a range out. */
function handlePointers(canvas: HTMLCanvasElement) {
	const down = new Map<number, { x: number; y: number }>();
	let moved = 0;
	let hold = 0;
	let held = false;
	let drawing: Drawing | null = null;
	const point = (event: MouseEvent) => {
		const box = canvas.getBoundingClientRect();
		return { x: event.clientX - box.left, y: event.clientY - box.top };
	};
	const perPixel = () => (model.view.value.to - model.view.value.from) / Math.max(1, model.size.value.width);
	const timeAt = (event: MouseEvent) => model.view.value.from + Math.max(0, Math.min(canvas.clientWidth, point(event).x)) * perPixel();
	const under = (event: MouseEvent) => {
		const { x, y } = point(event);
		return model.at(x, y, scroller?.scrollTop ?? 0);
	};
	const hoverOver = (next: Picked | null) => {
		const was = model.hover.value;
		if (was?.span !== next?.span) model.hover.value = next;
		canvas.classList.toggle("over", next !== null);
	};
	const menuAt = (event: MouseEvent) => {
		const it = under(event);
		if (it) openMenu(it, event.clientX, event.clientY);
	};
	canvas.onpointerdown = (event) => {
		if (event.button !== 0 && event.button !== 2) return;
		canvas.setPointerCapture(event.pointerId);
		if (event.button === 2) {
			drawing = drawRange(event, timeAt(event));
			return;
		}
		down.set(event.pointerId, point(event));
		moved = 0;
		clearTimeout(hold);
		held = false;
		if (event.pointerType === "touch" && down.size === 1)
			hold = setTimeout(() => {
				held = true;
				down.clear();
				menuAt(event);
			}, HOLD_MS);
	};
	canvas.onpointermove = (event) => {
		/* A button that goes up while another is down says so only here, and one that goes up
		 * where nobody hears it not at all. */
		if (!(event.buttons & 2)) drawing = null;
		if (!(event.buttons & 1)) down.delete(event.pointerId);
		if (drawing) return drawing.to(event, timeAt(event));
		const at = point(event);
		const last = down.get(event.pointerId);
		if (!last) return hoverOver(under(event));
		const others = [...down].filter(([id]) => id !== event.pointerId).map(([, it]) => it);
		down.set(event.pointerId, at);
		moved += Math.abs(at.x - last.x) + Math.abs(at.y - last.y);
		if (moved < CLICK_PX) return;
		clearTimeout(hold);
		hoverOver(null);
		const other = others[0];
		if (other) {
			const was = Math.abs(last.x - other.x);
			const is = Math.abs(at.x - other.x);
			if (was > 10 && is > 10) model.zoom(was / is, model.view.value.from + ((at.x + other.x) / 2) * perPixel());
			return;
		}
		model.pan((last.x - at.x) * perPixel());
		if (scroller) scroller.scrollTop += last.y - at.y;
	};
	canvas.onpointerup = (event) => {
		clearTimeout(hold);
		if (drawing && event.button === 2) {
			if (!drawing.moved()) menuAt(event);
			drawing = null;
			return;
		}
		if (!down.delete(event.pointerId) || moved >= CLICK_PX) return;
		const it = under(event);
		if (!it) model.picked.value = null;
		else if (event.shiftKey) model.picked.value = it;
		else openRow(it);
	};
	canvas.onpointercancel = (event) => {
		clearTimeout(hold);
		drawing = null;
		down.delete(event.pointerId);
	};
	canvas.onpointerleave = () => hoverOver(null);
	canvas.oncontextmenu = (event) => event.preventDefault();
	const wheel = (event: WheelEvent) => {
		event.preventDefault();
		const lines = event.deltaMode === 1 ? 16 : 1;
		if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
			model.pan((event.deltaX || event.deltaY) * lines * perPixel());
			return;
		}
		const by = Math.exp(Math.max(-1, Math.min(1, (event.deltaY * lines) / 400)));
		model.zoom(by, model.view.value.from + point(event).x * perPixel());
	};
	/* The click that a browser makes of a finger would take the focus from the menu. */
	const lift = (event: TouchEvent) => {
		if (held) event.preventDefault();
	};
	canvas.addEventListener("wheel", wheel, { passive: false });
	canvas.addEventListener("touchend", lift, { passive: false });
	return () => {
		canvas.removeEventListener("wheel", wheel);
		canvas.removeEventListener("touchend", lift);
	};
}

/* A range that is drawn out; with Shift it is one more, beside those that are there. */
interface Drawing {
	to: (event: MouseEvent, t: number) => void;
	moved: () => boolean;
}
function drawRange(begun: MouseEvent, from: number): Drawing {
	const others = begun.shiftKey ? model.ranges.value : [];
	let moved = false;
	return {
		to: (event, to) => {
			moved ||= Math.abs(event.clientX - begun.clientX) >= CLICK_PX;
			if (!moved) return;
			/* A range does not run away while it is drawn out. */
			model.follow.value = false;
			model.setRanges([...others, { from: Math.min(from, to), to: Math.max(from, to) }]);
		},
		moved: () => moved,
	};
}

/* Below: a range is drawn out. Above: the view goes there. */
function handleRuler(canvas: HTMLCanvasElement) {
	let drawing: Drawing | null = null;
	let above = false;
	const x = (event: MouseEvent) => Math.max(0, Math.min(canvas.clientWidth, event.clientX - canvas.getBoundingClientRect().left));
	const time = (at: number) => model.view.value.from + (at / canvas.clientWidth) * (model.view.value.to - model.view.value.from);
	const go = (event: PointerEvent) => {
		const all = model.overview.value;
		if (!all) return;
		const middle = all.from + (x(event) / canvas.clientWidth) * (all.to - all.from);
		model.pan(middle - (model.view.value.from + model.view.value.to) / 2);
	};
	canvas.onpointerdown = (event) => {
		if (event.button) return;
		canvas.setPointerCapture(event.pointerId);
		above = event.clientY - canvas.getBoundingClientRect().top < OVERVIEW;
		drawing = above ? null : drawRange(event, time(x(event)));
		if (above) go(event);
	};
	canvas.onpointermove = (event) => {
		if (!(event.buttons & 1)) return canvas.onpointercancel!(event);
		if (above) go(event);
		else drawing?.to(event, time(x(event)));
	};
	canvas.onpointerup = (event) => {
		if (drawing && !drawing.moved() && !event.shiftKey) model.setRanges([]);
		canvas.onpointercancel!(event);
	};
	canvas.onpointercancel = () => {
		drawing = null;
		above = false;
	};
	const wheel = (event: WheelEvent) => {
		event.preventDefault();
		model.zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 400))), time(x(event)));
	};
	canvas.addEventListener("wheel", wheel, { passive: false });
	return () => canvas.removeEventListener("wheel", wheel);
}

/* What follows ticks even when the clock that it shows does not: all that is drawn is read here. */
function paint(body: HTMLCanvasElement, head: HTMLCanvasElement, inks: Inks) {
	const { width, height } = model.size.value;
	if (!width) return;
	const begun = performance.now();
	const now = scene();
	timed(PAINT, () => {
		figures.lanes = drawLanes(body, inks, now, width, height);
		drawRuler(head, inks, now, width);
	});
	figures.drawMs = performance.now() - begun;
	figures.draws++;
}

function Canvases() {
	const body = useRef<HTMLCanvasElement>(null);
	const head = useRef<HTMLCanvasElement>(null);
	const probe = useRef<HTMLElement>(null);
	const list = useRef<HTMLUListElement>(null);
	const box = useRef<HTMLDivElement>(null);
	useLayoutEffect(() => {
		const inks = new Inks(probe.current!);
		scroller = box.current!;
		let frame = 0;
		const dirty = () => {
			frame ||= requestAnimationFrame(() => {
				frame = 0;
				untracked(() => paint(body.current!, head.current!, inks));
			});
		};
		figures.redraw = dirty;
		const recolour = () => {
			inks.forget();
			dirty();
		};
		const measure = () => {
			const [width, height] = [body.current!.clientWidth, box.current!.clientHeight];
			body.current!.style.blockSize = `${height}px`;
			if (width !== model.size.value.width || height !== model.size.value.height) {
				model.size.value = { width, height };
				model.ensure();
			}
			dirty();
		};
		const schemes = [matchMedia("(prefers-color-scheme: dark)"), matchMedia("(prefers-contrast: more)")];
		for (const scheme of schemes) scheme.addEventListener("change", recolour);
		const sizes = new ResizeObserver(measure);
		sizes.observe(box.current!);
		box.current!.addEventListener("scroll", dirty, { passive: true });
		const stops = [
			handlePointers(body.current!),
			handleRuler(head.current!),
			/* Whatever of these changes is drawn, once a frame. */
			effect(() => {
				scene();
				utc.value;
				dirty();
			}),
			effect(() => {
				theme.value;
				recolour();
			}),
			effect(() => {
				const height = model.total.value;
				list.current!.style.blockSize = `${height}px`;
			}),
			/* Once a second now moves: what is open grows, and the view goes with it if it follows. */
			effect(() => {
				clock.value;
				untracked(() => {
					const { from, to } = model.view.value;
					const now = brokerNow();
					if (model.follow.value) model.tick();
					if (now >= from - 2000 && now <= to + 2000) dirty();
				});
			}),
		];
		measure();
		const stop = model.start();
		return () => {
			stop();
			cancelAnimationFrame(frame);
			sizes.disconnect();
			for (const scheme of schemes) scheme.removeEventListener("change", recolour);
			for (const end of stops) end();
			scroller = null;
		};
	}, []);
	return (
		<>
			<div class="ruler">
				<p class="ruler-name">
					{model.overview.value ? (
						<>
							<span class="desk">All, from </span>
							{moment(model.overview.value.from)}
						</>
					) : null}
				</p>
				<canvas ref={head} role="img" aria-label={rulerWords()} />
			</div>
			<div
				ref={box}
				class="lanes"
				tabIndex={0}
				role="group"
				aria-label="Lanes"
				data-off={model.asTable.value || undefined}
				onContextMenu={menuByKey}
			>
				<Names list={list} />
				<canvas
					ref={body}
					role="img"
					aria-label={`Timeline of ${plural(model.blocks.value.length, "lane")}; the same facts are in the table`}
				/>
				<i ref={probe} class="hidden" aria-hidden="true" />
				<Tip />
			</div>
			<Menu />
		</>
	);
}

/* The menu key has no place of its own: the menu is where the picked span is. */
function menuByKey(event: MouseEvent) {
	const it = model.picked.value;
	if (event.target !== scroller || !it) return;
	const place = model.places(scroller).find(({ lane, t, kind, line }) => lane === it.lane && t === it.span.t && kind === it.span.kind && line === it.span.line);
	if (!place) return;
	event.preventDefault();
	openMenu(it, Math.max(place.x, 0) + 8, place.y + place.height);
}

function rulerWords(): string {
	const ranges = model.ranges.value.map(({ from, to }) => `${clockTime(from)} to ${clockTime(to)}`);
	return ranges.length
		? `Overview and ruler; ${ranges.length > 1 ? "ranges" : "range"} ${ranges.join(", ")}`
		: "Overview and ruler; no range";
}

/* --- The same facts as a table --- */

function Table() {
	const ranges = model.ranges.value;
	const within = ranges.length ? ranges : [model.view.value];
	const [from, to] = [within[0]!.from, within.at(-1)!.to];
	const found = model.answer.value;
	const rows: Picked[] = [];
	for (const { id } of model.blocks.value)
		for (const span of found?.lanes.get(id)?.spans ?? [])
			if (within.some((it) => span.t < it.to && span.end > it.from)) rows.push({ lane: id, span });
	const shown = rows.slice(0, TABLE_ROWS);
	return (
		<div class="as-table" tabIndex={0} role="group" aria-label="Spans in the view">
			<LaneTable />
			<table class="figures">
				<caption class="quiet">
					{stretchWords(from, to)}: {plural(rows.length, "span")}
					{rows.length > shown.length ? `, the first ${shown.length} here` : ""}. What is shorter than a
					column, {spanTime((to - from) / Math.max(1, model.size.value.width))}, is in the report.
				</caption>
				<thead>
					<tr>
						<th scope="col">What</th>
						<th scope="col">Kind</th>
						<th scope="col">Lane</th>
						<th scope="col">From</th>
						<th scope="col">To</th>
						<th scope="col">How it went</th>
					</tr>
				</thead>
				<tbody>
					{shown.map(({ lane, span }) => (
						<tr key={`${lane} ${span.t} ${span.kind} ${span.line}`}>
							<th scope="row">
								<a class="link" href={routeTo(lane, span.row || null)}>
									<SpanName span={span} />
								</a>
							</th>
							<td>{kindWords(span.kind)}</td>
							<td>
								<LaneName id={lane} />
							</td>
							<td>{clockTime(span.t)}</td>
							<td>{span.end === Number.POSITIVE_INFINITY ? "open" : clockTime(span.end)}</td>
							<td>{outcome(lane, span)}</td>
						</tr>
					))}
				</tbody>
			</table>
		</div>
	);
}

/* --- The range, and what the time went into in it --- */

function Strip() {
	const ranges = model.ranges.value;
	const report = model.rangeReport.value;
	const failed = model.rangeFailed.value;
	if (!ranges.length) return null;
	const several = ranges.length > 1;
	const all = report ? whole(report.total) : 0;
	const busy = report?.lanes.filter((lane) => lane.model + lane.tool + lane.you > 0).length ?? 0;
	return (
		<section class="strip" aria-label={several ? "Report of the ranges" : "Report of the range"}>
			<div>
				<p class="strip-head">
					<b>{length(ranges.reduce((ms, { from, to }) => ms + to - from, 0))}</b>
					{several ? <span class="quiet">in {ranges.length} ranges</span> : null}
					<span class="quiet desk">
						{report ? `${plural(busy, "busy lane")}, ${sum(all)} in all` : ""}
					</span>
					{failed ? null : (
						<a class="link" href={`#/report?${rangeQuery(ranges, model.only())}`}>
							{several ? (
								<>
									Report<span class="desk"> of these ranges</span>
								</>
							) : (
								"Report of this range"
							)}
						</a>
					)}
				</p>
				{failed ? (
					<p class="quiet" role="status">
						{failed}
					</p>
				) : null}
				{report ? (
					<>
						<TimeBar times={report.total} />
						<ul class="legend">
							{KINDS.map(([kind, word]) => (
								<li key={kind}>
									<span class="swatch" data-time={kind} />
									{word}
									<span class="number">{sums(report.total)[kind]}</span>
									<span class="number">{percent(report.total[kind], all)}</span>
								</li>
							))}
						</ul>
					</>
				) : null}
			</div>
			{report ? (
				<table class="figures">
					<thead>
						<tr>
							<th scope="col">{several ? "Longest in the ranges" : "Longest in range"}</th>
							<th scope="col">count</th>
							<th scope="col" aria-sort="descending">
								self ↓
							</th>
							<th scope="col">share</th>
							<th scope="col">p50</th>
							<th scope="col">p95</th>
						</tr>
					</thead>
					<tbody>
						{report.rows
							.filter(({ time, more }) => !more && time !== "model" && time !== "idle")
							.slice(0, 5)
							.map((row) => (
								<tr key={`${row.time} ${row.name}`}>
									<td>{exact(row.name ?? "")}</td>
									<td>{row.count}</td>
									<td>{sum(row.self)}</td>
									<td>{percent(row.self, all)}</td>
									<td>{row.p50 === undefined ? "" : spanTime(row.p50)}</td>
									<td>{row.p95 === undefined ? "" : spanTime(row.p95)}</td>
								</tr>
							))}
					</tbody>
				</table>
			) : null}
		</section>
	);
}

/* --- Keys --- */

function showTable() {
	model.asTable.value = !model.asTable.value;
	model.keep();
}

function takeKey(event: KeyboardEvent, key: string): boolean {
	const target = event.target as HTMLElement;
	const wide = model.view.value.to - model.view.value.from;
	const code = event.code;
	if (code === "Comma" || code === "Period" || ((key === "ArrowLeft" || key === "ArrowRight") && model.picked.value)) {
		const by = code === "Period" || key === "ArrowRight" ? 1 : -1;
		model.neighbour(by, event.altKey ? "name in lane" : event.shiftKey ? "name" : "row");
		return true;
	}
	if (laneKey(event, key)) return true;
	if (event.altKey) return false;
	switch (key) {
		case "w":
		case "s":
			model.zoom(key === "w" ? 0.8 : 1.25);
			return true;
		case "a":
		case "d":
			model.pan((key === "a" ? -1 : 1) * wide * 0.1);
			return true;
	}
	if (event.repeat) return false;
	switch (key) {
		case " ":
			if (target.closest("a, button, summary")) return false;
			model.setFollow(!model.follow.value);
			return true;
		case "Home":
			model.fit();
			return true;
		case "f":
			model.centre();
			return true;
		case "r":
			model.pickedToRange();
			return true;
		case "v":
			showTable();
			return true;
		case "Escape":
			model.clear();
			return true;
		case "Enter":
			if (!model.picked.value || target.closest("a, button, summary")) return false;
			openRow(model.picked.value);
			return true;
	}
	return false;
}

/* --- For tests and for whoever wants to know how it does --- */

function publish() {
	const perch = ((window as { __perch?: Record<string, unknown> }).__perch ??= {});
	perch["timeline"] = {
		get draws() {
			return figures.draws;
		},
		get drawMs() {
			return figures.drawMs;
		},
		get lanes() {
			return figures.lanes;
		},
		get overviews() {
			return overviews();
		},
		get requests() {
			return model.asked.requests;
		},
		get view() {
			return model.view.value;
		},
		/* From the first to the last of the ranges. */
		get range() {
			const all = model.ranges.value;
			return all.length ? { from: all[0]!.from, to: all.at(-1)!.to } : null;
		},
		get ranges() {
			return model.ranges.value;
		},
		get follow() {
			return model.follow.value;
		},
		get picked() {
			return model.picked.value;
		},
		get like() {
			return model.like.value;
		},
		get answer() {
			const { from, to, width } = model.answer.value ?? {};
			return { from, to, width };
		},
		/* Where the spans in sight are, in the window. */
		spans: () => model.places(scroller),
	};
	return () => {
		delete perch["timeline"];
	};
}

export function Timeline({ query }: { query: string }) {
	useLayoutEffect(() => model.readQuery(query), [query]);
	useLayoutEffect(() => {
		screenKeys.take = takeKey;
		screenKeys.goToLane = goToLane;
		const unpublish = publish();
		return () => {
			screenKeys.take = screenKeys.goToLane = null;
			unpublish();
		};
	}, []);
	return (
		<main class="timeline" data-table={model.asTable.value || undefined}>
			<h1 class="hidden">Timeline</h1>
			<div class="toolbar">
				<input
					class="field"
					type="search"
					aria-label="Filter lanes"
					placeholder="Filter lanes"
					value={arrangement.value.filter}
					onInput={(event) => model.arrange({ ...arrangement.value, filter: event.currentTarget.value }, true)}
					onKeyDown={(event) => {
						if (event.key === "Escape") event.currentTarget.blur();
					}}
				/>
				<span class="quiet lane-count">
					{model.blocks.value.length} of {plural(laneCount.value, "lane")}
				</span>
				{/* A phone has no room for the field. */}
				<button class="button find-lane" type="button" title="Ctrl P" onClick={() => (palette.value = "lanes")}>
					Find
				</button>
				{hiddenCount.value ? (
					<button class="button" data-weight="bare" type="button" title="Shift H" onClick={showHidden}>
						Show {hiddenCount.value} hidden
					</button>
				) : null}
				<span class="hidden" role="status">
					{said.value}
				</span>
				<button
					class="button"
					type="button"
					aria-pressed={model.follow.value}
					onClick={() => model.setFollow(!model.follow.value)}
				>
					Follow <kbd>Space</kbd>
				</button>
				<button class="button" type="button" onClick={model.fit}>
					Fit <kbd>Home</kbd>
				</button>
				<button
					class="button"
					data-weight={model.asTable.value ? undefined : "bare"}
					type="button"
					aria-pressed={model.asTable.value}
					onClick={showTable}
				>
					As table <kbd>V</kbd>
				</button>
				{model.failed.value ? (
					<span class="warning" role="alert">
						{model.failed.value}
					</span>
				) : null}
				<ViewWords />
			</div>
			<Canvases />
			{model.asTable.value ? <Table /> : null}
			<Strip />
		</main>
	);
}

function ViewWords() {
	const { from, to } = model.view.value;
	const { width } = model.size.value;
	const found = model.answer.value;
	const pixel = (to - from) / Math.max(1, width);
	return (
		<span class="span">
			{found && found.completeFrom > from ? `complete from ${moment(found.completeFrom)} · ` : ""}
			{stretchWords(from, to)}, {utc.value ? "UTC" : "local"} · 1 px is{" "}
			{pixel < 1000 ? `${pixel.toFixed(pixel < 1 ? 2 : pixel < 10 ? 1 : 0)} ms` : length(pixel)}
		</span>
	);
}
