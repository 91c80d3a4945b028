/* The names of lanes beside the canvas, and what can be done with a lane: pin, hide, move. */

import { signal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { State } from "./parts";
import { routeTo } from "./session";
import { lanes } from "./store";
import { type Block, blockAt, BYTES, COST, hasValue, type Lines, TOKENS, VALUE_KINDS } from "./timeline_data";
import { arrangement, everyLane, hide, isHidden, isPinned, move, moveBy, pin, pinnedCount, shownIds, showAll } from "./timeline_lanes";
import * as model from "./timeline_model";
import { LaneName, laneWords } from "./times";
import { bytes, money, tokens } from "./words";

const CLICK_PX = 4;

/* Said to those who do not see the lanes move. */
export const said = signal("");

/* The lane that a key means: the one whose name has the focus, else that of the picked span. */
function meant(): string | null {
	const focused = document.activeElement?.closest<HTMLElement>("[data-id]");
	return focused?.dataset["id"] ?? model.picked.value?.lane ?? null;
}
/* Who had the focus in a lane's name or row keeps it, wherever that goes. */
function refocus(id: string | undefined, from: Element | null) {
	const part = from?.closest("tr") ? "tr" : "li";
	const button = from?.getAttribute("data-do");
	if (!from?.closest("[data-id]") || !id) return;
	requestAnimationFrame(() => {
		const row = [...document.querySelectorAll<HTMLElement>(`.timeline ${part}[data-id]`)].find(({ dataset }) => dataset["id"] === id);
		/* The buttons of a name are there when something of it has the focus. */
		row?.querySelector<HTMLElement>("a")?.focus();
		if (button) row?.querySelector<HTMLElement>(`[data-do="${button}"]:enabled`)?.focus();
	});
}

export type Deed = "pin" | "hide" | "up" | "down";

export function doTo(id: string, deed: Deed) {
	const shown = shownIds.value;
	const at = shown.indexOf(id);
	const focused = document.activeElement;
	const name = laneWords(id);
	if (deed === "pin") {
		said.value = `${name}: ${isPinned(id) ? "no longer pinned" : "pinned on top"}`;
		model.arrange(pin(id));
	} else if (deed === "hide") {
		said.value = `${name}: ${isHidden(id) ? "shown again" : "hidden"}`;
		model.arrange(hide(id));
	} else {
		const next = moveBy(id, deed === "up" ? -1 : 1);
		said.value = next ? `${name}: moved ${deed}` : `${name}: cannot go further ${deed}`;
		model.arrange(next);
	}
	const stays = deed !== "hide" || focused?.closest("tr");
	refocus(stays ? id : (shown[at + 1] ?? shown[at - 1]), focused);
}

export function showHidden() {
	said.value = "All lanes are shown";
	model.arrange(showAll());
}

/* J and K: from name to name. */
function visit(by: number) {
	const shown = shownIds.value;
	const focused = document.activeElement?.closest<HTMLElement>("li[data-id]")?.dataset["id"];
	const at = focused ? shown.indexOf(focused) + by : 0;
	const id = shown[Math.max(0, Math.min(shown.length - 1, at))];
	if (id) focusName(id);
}
function focusName(id: string) {
	const block = model.blocks.value.find((it) => it.id === id);
	const box = document.querySelector<HTMLElement>(".lanes");
	if (!block || !box) return;
	/* Names out of sight are not in the page: it scrolls there first. */
	const pinned = model.pinnedHeight.value;
	if (block.top >= pinned) {
		if (block.top < box.scrollTop + pinned) box.scrollTop = block.top - pinned;
		const low = block.top + block.height - box.clientHeight;
		if (low > box.scrollTop) box.scrollTop = low;
	}
	requestAnimationFrame(() => {
		[...box.querySelectorAll<HTMLElement>("li[data-id]")].find(({ dataset }) => dataset["id"] === id)?.querySelector<HTMLElement>("a")?.focus({ preventScroll: true });
	});
}
/* Wherever it is: hidden, left out by the filter, or behind the table. */
export function goToLane(id: string) {
	if (isHidden(id)) model.arrange(hide(id));
	if (!shownIds.value.includes(id)) model.arrange({ ...arrangement.value, filter: "" });
	if (model.asTable.value) {
		model.asTable.value = false;
		model.keep();
	}
	/* The names are there after the next frame. */
	requestAnimationFrame(() => focusName(id));
}

export function laneKey(event: KeyboardEvent, key: string): boolean {
	if (event.altKey && (key === "ArrowUp" || key === "ArrowDown")) {
		const id = meant();
		if (id) doTo(id, key === "ArrowUp" ? "up" : "down");
		return id !== null;
	}
	if (event.altKey) return false;
	if (key === "j" || key === "k") {
		visit(key === "j" ? 1 : -1);
		return true;
	}
	if (event.repeat) return false;
	if (key === "/") {
		document.querySelector<HTMLInputElement>(".timeline .toolbar input")?.focus();
		return true;
	}
	if (key === "h" && event.shiftKey) {
		showHidden();
		return true;
	}
	if (key !== "p" && key !== "h") return false;
	const id = meant();
	if (id) doTo(id, key === "p" ? "pin" : "hide");
	return id !== null;
}

/* --- Names --- */

/* Values, as blocks are written over when lanes lie elsewhere. */
interface Place extends Lines {
	id: string;
	top: number;
	height: number;
	pinned: boolean;
}
const placeOf = ({ id, top, height, lines }: Block, pinned: boolean): Place => ({ id, top, height, pinned, ...lines });

/* Over whose name the dragged one is. */
const over = signal<string | null>(null);

function dragName(id: string, event: PointerEvent) {
	if (event.button || event.pointerType === "touch" || (event.target as Element).closest("button")) return;
	const link = event.currentTarget as HTMLElement;
	let dragged = false;
	const onMove = (moving: PointerEvent) => {
		if (!dragged && Math.abs(moving.clientY - event.clientY) < CLICK_PX) return;
		dragged = true;
		const under = document.elementsFromPoint(moving.clientX, moving.clientY).map((it) => it.closest<HTMLElement>("li[data-id]")).find(Boolean);
		over.value = under?.dataset["id"] ?? null;
	};
	const onEnd = (ending: PointerEvent) => {
		removeEventListener("pointermove", onMove);
		removeEventListener("pointerup", onEnd);
		removeEventListener("pointercancel", onEnd);
		const to = over.value;
		over.value = null;
		if (!dragged) return;
		/* A drag ends in a click, which would open the lane. */
		link.addEventListener("click", (click) => click.preventDefault(), { once: true, capture: true });
		if (ending.type === "pointerup" && to && to !== id) {
			said.value = `${laneWords(id)}: moved`;
			model.arrange(move(id, to));
		}
	};
	addEventListener("pointermove", onMove);
	addEventListener("pointerup", onEnd);
	addEventListener("pointercancel", onEnd);
}

const VALUE_WORDS = ["Bytes/s", "Tokens", "Cost"];
const VALUE_TITLES = ["Bytes of its events a second; here the most in view and around it", "Tokens in its context, at the newest", "Cost so far, as it says"];

export function valueWords(id: string, kind: number, value: number): string {
	if (kind === BYTES) return `${bytes(value)}/s`;
	if (kind === TOKENS) return tokens(value);
	return money({ amount: value / 1000, currency: lanes.get(id)?.usage?.cost?.currency ?? "USD" });
}
function ValueAt({ id, kind }: { id: string; kind: number }) {
	const series = model.answer.value?.lanes.get(id)?.values.find((it) => it.kind === kind);
	const last = series?.pieces.at(-1);
	if (!series || !last) return <>–</>;
	return <>{kind === BYTES ? `≤ ${valueWords(id, kind, series.most)}` : valueWords(id, kind, last.value)}</>;
}

function Name({ id, top, height, pinned, ...lines }: Place) {
	const element = useRef<HTMLLIElement>(null);
	useLayoutEffect(() => {
		element.current?.style.setProperty("inset-block-start", `${top}px`);
		element.current?.style.setProperty("block-size", `${height}px`);
	}, [top, height]);
	const lane = lanes.still(id);
	const rows: string[] = [
		...(lines.turns ? ["Turns"] : []),
		...Array.from({ length: lines.calls }, (_, i) => (i ? "" : "Tools")),
		...Array.from({ length: lines.parts }, (_, i) => (i ? "" : "Parts")),
	];
	return (
		<li ref={element} data-id={id} data-over={over.value === id || undefined}>
			<div class="lane" data-lane="state">
				<a href={routeTo(id)} draggable={false} onPointerDown={(event) => dragName(id, event)}>
					<State of={lane?.state ?? "offline"} />
					<LaneName id={id} />
				</a>
				<span class="deeds">
					<button type="button" class="link" data-do="pin" aria-pressed={pinned} title="Stays on top (P)" onClick={() => doTo(id, "pin")}>
						{pinned ? "Unpin" : "Pin"}
					</button>
					<button type="button" class="link" data-do="hide" title="Leaves this lane out (H)" onClick={() => doTo(id, "hide")}>
						Hide
					</button>
				</span>
			</div>
			{rows.map((word, i) => (
				<span key={i} class="lane" aria-hidden={word ? undefined : "true"}>
					{word}
				</span>
			))}
			{VALUE_KINDS.map((kind) =>
				hasValue(lines, kind) ? (
					<span key={`v${kind}`} class="lane" data-lane="value" title={VALUE_TITLES[kind]}>
						{VALUE_WORDS[kind]}
						<span class="value">
							<ValueAt id={id} kind={kind} />
						</span>
					</span>
				) : null,
			)}
		</li>
	);
}

/* Only lanes in sight have names in the page. */
export function Names({ list }: { list: { current: HTMLUListElement | null } }) {
	const head = useRef<HTMLUListElement>(null);
	const blocks = model.blocks.value;
	const pinned = pinnedCount.value;
	const high = model.pinnedHeight.value;
	const top = model.scrollTop.value;
	const height = model.size.value.height || 1000;
	const first = Math.max(high ? pinned : 0, blockAt(blocks, top + high) - 2);
	const shown = blocks.slice(first, blockAt(blocks, top + height) + 3);
	useLayoutEffect(() => {
		const box = list.current?.parentElement;
		if (!box) return;
		const read = () => {
			model.scrollTop.value = box.scrollTop;
		};
		read(); /* it may know another's */
		box.addEventListener("scroll", read, { passive: true });
		return () => box.removeEventListener("scroll", read);
	}, []);
	useLayoutEffect(() => {
		head.current?.style.setProperty("block-size", `${high}px`);
	}, [high]);
	return (
		<>
			<ul ref={head} class="pinned" hidden={!high} aria-label="Pinned lanes">
				{high ? blocks.slice(0, pinned).map((block) => <Name key={block.id} {...placeOf(block, true)} />) : null}
			</ul>
			<ul ref={list} aria-label="Lanes">
				{shown.map((block, i) => (
					<Name key={block.id} {...placeOf(block, first + i < pinned)} />
				))}
			</ul>
		</>
	);
}

/* --- The same for those who read the table: hidden lanes too --- */

export function LaneTable() {
	const shown = shownIds.value;
	const hidden = everyLane.value.filter(isHidden);
	const deeds: [Deed, (id: string, at: number) => string][] = [
		["pin", (id) => (isPinned(id) ? "Unpin" : "Pin")],
		["hide", (id) => (isHidden(id) ? "Show" : "Hide")],
		["up", () => "Up"],
		["down", () => "Down"],
	];
	const stuck = (id: string, at: number, deed: Deed) => {
		if (deed !== "up" && deed !== "down") return false;
		const other = shown[at + (deed === "up" ? -1 : 1)];
		return isHidden(id) || other === undefined || isPinned(other) !== isPinned(id);
	};
	return (
		<table class="figures">
			<caption class="quiet">Lanes, in their order{arrangement.value.filter ? "; the filter leaves out others" : ""}</caption>
			<thead>
				<tr>
					<th scope="col">Lane</th>
					<th scope="col">State</th>
					<th scope="col">Place</th>
					<th scope="col">Bytes/s, most</th>
					<th scope="col">Tokens</th>
					<th scope="col">Cost</th>
					<th scope="col">Change</th>
				</tr>
			</thead>
			<tbody>
				{[...shown, ...hidden].map((id, at) => (
					<tr key={id} data-id={id}>
						<th scope="row">
							<a class="link" href={routeTo(id)}>
								<LaneName id={id} />
							</a>
						</th>
						<td>
							<State of={lanes.get(id)?.state ?? "offline"} /> {lanes.get(id)?.state.replace("-", " ") ?? "offline"}
						</td>
						<td>{isHidden(id) ? "hidden" : isPinned(id) ? `${at + 1}, pinned` : at + 1}</td>
						{[BYTES, TOKENS, COST].map((kind) => (
							<td key={kind}>
								<ValueAt id={id} kind={kind} />
							</td>
						))}
						<td class="deeds">
							{deeds.map(([deed, word]) => (
								<button key={deed} type="button" class="link" data-do={deed} disabled={stuck(id, at, deed)} onClick={() => doTo(id, deed)}>
									{word(id, at)}
									<span class="hidden"> {laneWords(id)}</span>
								</button>
							))}
						</td>
					</tr>
				))}
			</tbody>
		</table>
	);
}
