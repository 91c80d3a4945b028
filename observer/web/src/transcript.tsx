/* The rows of a lane, of which only those near the view have DOM.
 *
 * Heights are measured once drawn and guessed before. In READING the first visible row and its
 * offset are the anchor that every change of height leaves where it is; in FOLLOW it is the
 * bottom. Rows under the selection stay in the document wherever the view goes. */

import { signal } from "@preact/signals";
import type { ComponentChild } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { Entry } from "./entry";
import { type Follow, type FollowEvent, FOLLOWING, step } from "./follow";
import { Raw } from "./raw";
import type { LaneRows } from "./rows";
import { asks, joins } from "./story";
import { Story } from "./told";
import type { Row } from "./types";
import { type Zoom, zoom } from "./zoom";

const GUESS_PX = 30;
const OVERSCAN_PX = 600;
/* Two ranges closer than this are one: a spacer costs a node too. */
const MERGE_ROWS = 20;
/* Rounding of scroll positions on scaled screens. */
const AT_BOTTOM_PX = 4;
/* As in perch.css: the line above the oldest row while there is more, and the air around. */
const MORE_PX = 32;
const ABOVE_PX = 12;
const BELOW_PX = 24;
const OLDER_WITHIN_ROWS = 30;

type Range = [from: number, to: number];

const views = new WeakMap<LaneRows, View>();

/* Where a lane was left is where it is found again. */
export function viewOf(rows: LaneRows): View {
	const view = views.get(rows) ?? new View(rows);
	views.set(rows, view);
	return view;
}

export class View {
	readonly rows: LaneRows;
	readonly follow = signal<Follow>(FOLLOWING);
	readonly current = signal<string | null>(null);
	/* Asks for another drawing: the range no longer covers the view. */
	readonly redraw = signal(0);
	scroller: HTMLElement | null = null;
	list: HTMLElement | null = null;
	ranges: Range[] = [];
	#heights = new Map<string, number>();
	#tops = new Float64Array(1);
	#joins = new Uint8Array();
	#joinsOf = -1;
	/* What the heights are of. */
	#zoom: Zoom = "detail";
	#anchor: { id: string; offset: number } | null = null;
	/* Where the view stood when we last looked or put it there: elsewhere is the reader's doing. */
	#placed = 0;
	#scrolled: { toBottom: boolean } | null = null;
	#settled = true;

	constructor(rows: LaneRows) {
		this.rows = rows;
		rows.spare = () =>
			this.follow.peek().following
				? Number.POSITIVE_INFINITY
				: Math.max(0, (this.ranges[0]?.[0] ?? 0) - MERGE_ROWS);
	}
	leave() {
		this.scroller = this.list = null;
		this.#placed = 0;
		this.#scrolled = null;
		this.current.value = null;
	}
	get newest(): string | null {
		return this.rows.list.at(-1)?.id ?? null;
	}
	get unseen(): number {
		const { following, seen } = this.follow.value;
		const row = seen ? this.rows.get(seen) : undefined;
		return following || !row ? 0 : this.rows.list.length - 1 - this.rows.indexOf(row);
	}
	did(event: FollowEvent) {
		const next = step(this.follow.peek(), event);
		if (next === this.follow.peek()) return;
		if (!next.following) this.#takeAnchor();
		this.follow.value = next;
		if (next.following) this.redraw.value++;
	}
	toNewest() {
		this.rows.rejoin();
		this.did({ type: "newest" });
	}
	#head(): number {
		return ABOVE_PX + (this.rows.more ? MORE_PX : 0);
	}
	/* A row may be told by one before it, in a story more of them: it has no place of its own.
	 * Found once for each version of the rows. */
	#joined(index: number): boolean {
		const { list } = this.rows;
		if (this.#zoom === "raw") return false;
		const join = this.#zoom === "story" ? joins : asks;
		const version = this.rows.version.peek();
		if (this.#joins.length !== list.length || this.#joinsOf !== version) {
			this.#joins = Uint8Array.from(list, (row, i) =>
				Number(i > 0 && join(list[i - 1]!, row)),
			);
			this.#joinsOf = version;
		}
		return this.#joins[index] === 1;
	}
	/* The row that tells this one. */
	lead(index: number): number {
		while (this.#joined(index)) index--;
		return index;
	}
	/* Behind the rows that this one tells. */
	behind(index: number): number {
		do index++;
		while (this.#joined(index));
		return index;
	}
	/* What the reader stands on, as it is drawn: of a row that another tells, that one. */
	get lit(): Row | undefined {
		const row = this.current.value ? this.rows.get(this.current.value) : undefined;
		return row && this.rows.list[this.lead(this.rows.indexOf(row))];
	}
	/* The same row in the same place, whatever its height is now: the current one, or the first. */
	#takeZoom() {
		if (this.#zoom === zoom.peek()) return;
		if (this.scroller && !this.follow.peek().following) {
			const { scrollTop, clientHeight } = this.scroller;
			const row = this.lit;
			const offset = row ? scrollTop - this.top(this.rows.indexOf(row)) : 1;
			if (row && offset <= 0 && -offset < clientHeight)
				this.#anchor = { id: row.id, offset };
			else {
				this.#takeAnchor();
				if (this.#anchor) this.#anchor.offset = Math.min(0, this.#anchor.offset);
			}
		}
		this.#heights.clear();
		this.#joinsOf = -1;
		this.#zoom = zoom.peek();
	}
	layout() {
		const { list } = this.rows;
		if (this.#heights.size > 2 * list.length + 1000)
			this.#heights = new Map(
				list.flatMap(({ id }) =>
					this.#heights.has(id) ? [[id, this.#heights.get(id)!]] : [],
				),
			);
		const tops = new Float64Array(list.length + 1);
		for (let i = 0, top = this.#head(); i <= list.length; i++) {
			tops[i] = top;
			if (i < list.length && !this.#joined(i))
				top += this.#heights.get(list[i]!.id) ?? GUESS_PX;
		}
		this.#tops = tops;
	}
	top(index: number): number {
		return this.#tops[Math.min(index, this.#tops.length - 1)]!;
	}
	/* Where the last row ends. */
	get height(): number {
		return this.#tops.at(-1)!;
	}
	/* The row at this height of the list. */
	at(y: number): number {
		let low = 0;
		let high = this.rows.list.length;
		while (low < high) {
			const middle = (low + high) >> 1;
			if (this.#tops[middle + 1]! <= y) low = middle + 1;
			else high = middle;
		}
		return low;
	}
	#takeAnchor() {
		if (!this.scroller) return;
		const row = this.rows.list[this.at(this.scroller.scrollTop)];
		this.#anchor = row
			? {
					id: row.id,
					offset: this.scroller.scrollTop - this.top(this.rows.indexOf(row)),
				}
			: null;
	}
	/* The browser scrolls before it says so: a drawing in between must not undo it. To be
	 * called while the layout is still that of the document. */
	#catchUp() {
		if (!this.scroller || Math.abs(this.scroller.scrollTop - this.#placed) < 1)
			return;
		this.#placed = this.scroller.scrollTop;
		this.#scrolled = { toBottom: this.atBottom };
		this.#takeAnchor();
	}
	#tellScrolled() {
		const scrolled = this.#scrolled;
		this.#scrolled = null;
		if (scrolled) this.did({ type: "scrolled", ...scrolled, newest: this.newest });
	}
	/* Where the view is to be. */
	#wanted(): number {
		const bottom = Math.max(
			0,
			this.height + BELOW_PX - (this.scroller?.clientHeight ?? 0),
		);
		if (this.#scrolled ? this.#scrolled.toBottom : this.follow.peek().following)
			return bottom;
		const row = this.#anchor && this.rows.get(this.#anchor.id);
		if (!row) return Math.min(this.scroller?.scrollTop ?? 0, bottom);
		return Math.max(
			0,
			this.top(this.lead(this.rows.indexOf(row))) + this.#anchor!.offset,
		);
	}
	#index(node: Node | null): number | null {
		const entry = (
			node instanceof Element ? node : node?.parentElement
		)?.closest<HTMLElement>("[data-row]");
		const row =
			entry && this.list?.contains(entry)
				? this.rows.get(entry.dataset.row!)
				: undefined;
		return row ? this.rows.indexOf(row) : null;
	}
	#selected(): Range | null {
		const selection = document.getSelection();
		if (!selection || selection.isCollapsed) return null;
		const ends = [
			this.#index(selection.anchorNode),
			this.#index(selection.focusNode),
		].filter((i) => i !== null);
		return ends.length ? [Math.min(...ends), Math.max(...ends) + 1] : null;
	}
	choose(): Range[] {
		this.#catchUp();
		this.#takeZoom();
		this.layout();
		const wanted = this.#wanted();
		const view: Range = [
			this.at(wanted - OVERSCAN_PX),
			Math.min(
				this.rows.list.length,
				this.at(wanted + (this.scroller?.clientHeight ?? 900) + OVERSCAN_PX) + 1,
			),
		];
		const all: Range[] = [view];
		const selected = this.#selected();
		if (selected) all.push(selected);
		const current = this.current.peek()
			? this.rows.get(this.current.peek()!)
			: undefined;
		if (current)
			all.push([this.rows.indexOf(current), this.rows.indexOf(current) + 1]);
		for (const range of all) range[0] = this.lead(range[0]);
		all.sort((a, b) => a[0] - b[0]);
		const merged: Range[] = [];
		for (const range of all) {
			const last = merged.at(-1);
			if (last && range[0] <= last[1] + MERGE_ROWS)
				last[1] = Math.max(last[1], range[1]);
			else merged.push([...range]);
		}
		this.ranges = merged;
		return merged;
	}
	/* Sets the heights of what stands for the rows that are not drawn. */
	#space() {
		const spacers = this.list!.querySelectorAll<HTMLElement>(":scope > .spacer");
		let end = 0;
		this.ranges.forEach(([from, to], i) => {
			spacers[i]!.style.height =
				`${this.top(from) - (i ? this.top(end) : this.#head())}px`;
			end = to;
		});
		spacers[this.ranges.length]!.style.height = `${this.height - this.top(end)}px`;
	}
	/* After drawing: takes the real heights and puts the view where it belongs. What the browser
	 * did to the scroll position in between, because rows went, is not the reader's doing. */
	settle() {
		const { scroller, list } = this;
		if (!scroller || !list) return;
		this.#space();
		this.#tellScrolled();
		for (const element of list.querySelectorAll<HTMLElement>(":scope > [data-row]"))
			this.#heights.set(
				element.dataset.row!,
				element.getBoundingClientRect().height,
			);
		this.layout();
		this.#space();
		const wanted = this.#wanted();
		if (Math.abs(scroller.scrollTop - wanted) >= 1) scroller.scrollTop = wanted;
		this.#placed = scroller.scrollTop;
		this.#cover();
	}
	#cover() {
		const { scroller } = this;
		if (!scroller || !this.rows.list.length) return;
		const from = this.at(scroller.scrollTop);
		const to = this.at(scroller.scrollTop + scroller.clientHeight - 1);
		const covered = this.ranges.some(
			(range) =>
				range[0] <= from && Math.min(to, this.rows.list.length - 1) < range[1],
		);
		if (!covered && this.#settled) {
			this.#settled = false;
			queueMicrotask(() => {
				this.#settled = true;
				this.redraw.value++;
			});
		}
		if (from < OLDER_WITHIN_ROWS && !this.follow.peek().following)
			void this.rows.older();
	}
	get atBottom(): boolean {
		const { scroller } = this;
		return (
			!scroller ||
			scroller.scrollHeight - scroller.clientHeight - scroller.scrollTop <=
				AT_BOTTOM_PX
		);
	}
	onScroll = () => {
		this.#catchUp();
		if (!this.#scrolled) return;
		this.#tellScrolled();
		this.#cover();
	};
	/* A row's place under the top edge, whatever is being followed. */
	show(row: Row, fromTop: number) {
		this.did({ type: "away", newest: this.newest });
		this.#anchor = { id: row.id, offset: -fromTop };
		this.redraw.value++;
	}
	move(by: number) {
		const { list } = this.rows;
		if (!list.length || !this.scroller) return;
		const was = this.current.peek() ? this.rows.get(this.current.peek()!) : undefined;
		const index = was ? this.rows.indexOf(was) : 0;
		const at = was
			? by > 0
				? this.behind(index)
				: this.lead(index) - 1
			: this.at(
					this.scroller.scrollTop +
						(by > 0 ? 0 : this.scroller.clientHeight - 1),
				);
		const row = list[this.lead(Math.max(0, Math.min(list.length - 1, at)))]!;
		this.current.value = row.id;
		const top = this.top(this.rows.indexOf(row)) - this.scroller.scrollTop;
		const bottom =
			this.top(this.behind(this.rows.indexOf(row))) - this.scroller.scrollTop;
		if (top < 0 || bottom > this.scroller.clientHeight)
			this.show(
				row,
				by > 0
					? Math.max(0, this.scroller.clientHeight - (bottom - top) - 40)
					: 40,
			);
		else this.did({ type: "away", newest: this.newest });
	}
}

const SCROLL_KEYS = new Set(["ArrowUp", "PageUp", "Home"]);

export function Transcript({ view, label }: { view: View; label: string }) {
	const scroller = useRef<HTMLDivElement>(null);
	const list = useRef<HTMLOListElement>(null);
	const { rows } = view;
	void rows.version.value;
	void view.redraw.value;
	const near = zoom.value;
	const state = rows.state.value;
	const ranges = view.choose();
	const { lit } = view;

	useLayoutEffect(() => {
		view.scroller = scroller.current;
		view.list = list.current;
		view.settle();
	});
	useLayoutEffect(() => () => view.leave(), [view]);
	useLayoutEffect(() => {
		const element = scroller.current!;
		const away = () => view.did({ type: "away", newest: view.newest });
		const wheel = (event: WheelEvent) => {
			if (event.deltaY < 0 && element.scrollTop > 0) away();
		};
		const key = (event: KeyboardEvent) => {
			if (SCROLL_KEYS.has(event.key)) away();
		};
		/* A click that neither selected nor opened anything leaves the view as it was. */
		const up = () =>
			setTimeout(() => {
				if (
					document.getSelection()?.isCollapsed !== false &&
					view.atBottom &&
					!view.unseen
				)
					view.did({ type: "newest" });
			});
		const observer = new ResizeObserver(() => view.settle());
		observer.observe(element);
		observer.observe(list.current!);
		element.addEventListener("scroll", view.onScroll, { passive: true });
		element.addEventListener("wheel", wheel, { passive: true });
		element.addEventListener("touchmove", away, { passive: true });
		element.addEventListener("pointerdown", away);
		element.addEventListener("pointerup", up);
		element.addEventListener("keydown", key);
		return () => {
			observer.disconnect();
			element.removeEventListener("scroll", view.onScroll);
			element.removeEventListener("wheel", wheel);
			element.removeEventListener("touchmove", away);
			element.removeEventListener("pointerdown", away);
			element.removeEventListener("pointerup", up);
			element.removeEventListener("keydown", key);
		};
	}, [view]);

	const items: ComponentChild[] = [];
	ranges.forEach(([from, to], i) => {
		items.push(
			<li
				key={`spacer ${i}`}
				class="spacer"
				role="presentation"
				aria-hidden="true"
			/>,
		);
		for (let at = view.lead(from); at < to; at = view.behind(at)) {
			const row = rows.list[at]!;
			const current = row === lit;
			items.push(
				near === "story" ? (
					<Story
						key={row.id}
						rows={rows.list.slice(at, view.behind(at))}
						current={current}
					/>
				) : near === "raw" ? (
					<Raw
						key={row.id}
						row={row}
						{...rows.span(at)}
						current={current}
					/>
				) : (
					<Entry
						key={row.id}
						row={row}
						asks={rows.list.slice(at + 1, view.behind(at))[0]}
						current={current}
					/>
				),
			);
		}
	});
	items.push(
		<li key="spacer end" class="spacer" role="presentation" aria-hidden="true" />,
	);
	const unseen = view.unseen;
	return (
		<div class="reader">
			<div
				ref={scroller}
				class="transcript"
				tabIndex={0}
				role="region"
				aria-label={label}
			>
				{rows.more ? (
					<p class="older quiet">
						{state !== "failed" ? (
							"Earlier rows come as you scroll"
						) : (
							<>
								Earlier rows could not be read: {rows.reason}.{" "}
								<button
									class="link"
									type="button"
									onClick={() => void rows.older(true)}
								>
									Try again
								</button>
							</>
						)}
					</p>
				) : null}
				<ol ref={list}>{items}</ol>
				{!rows.list.length ? (
					<p class="empty quiet">
						{state === "loading"
							? "Asking for its rows"
							: state === "failed"
								? `Its rows could not be read: ${rows.reason}.`
								: "Nothing has happened here yet."}
						{state === "failed" ? (
							<>
								{" "}
								<button
									class="link"
									type="button"
									onClick={() => void rows.sync()}
								>
									Try again
								</button>
							</>
						) : null}
					</p>
				) : null}
			</div>
			{rows.apart ? (
				<button
					class="button new-rows"
					type="button"
					title="What came later is not shown here (g)"
					onClick={() => view.toNewest()}
				>
					To the newest ↓
				</button>
			) : unseen ? (
				<button
					class="button new-rows"
					type="button"
					title="To the newest row (g)"
					onClick={() => view.did({ type: "newest" })}
				>
					{unseen} new ↓
				</button>
			) : null}
		</div>
	);
}
