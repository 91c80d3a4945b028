/* Which lanes the timeline shows, and in which order: as the reader set it, else by name. */

import { computed, signal } from "@preact/signals";
import { lanes } from "./store";
import { laneWords } from "./times";

/* What the reader set, as names of lanes that an address has room for. */
export interface Arrangement {
	filter: string;
	pinned: readonly string[];
	hidden: readonly string[];
	order: readonly string[];
}
export const PLAIN: Arrangement = { filter: "", pinned: [], hidden: [], order: [] };
export const arrangement = signal<Arrangement>(PLAIN);

/* Lanes that only an answer knows: their agent is gone from the fleet. */
export const others = signal<readonly string[]>([]);

/* Eight letters of the agent and eight of the channel; where two lanes share them, all of it. */
const names = new Map<string, string>();
const taken = new Map<string, string>();
export function nameOfLane(id: string): string {
	let name = names.get(id);
	if (!name) {
		const slash = id.indexOf("/");
		const short = `${id.slice(0, 8)}.${encodeURIComponent(id.slice(slash + 1, slash + 9))}`;
		name = taken.has(short) ? encodeURIComponent(id) : short;
		taken.set(name, id);
		names.set(id, name);
	}
	return name;
}

/* A list that holds the same is the same list, so that nothing is made anew because of it. */
function steady(list: () => readonly string[]) {
	let was: readonly string[] = [];
	return computed(() => {
		const now = list();
		if (now.length !== was.length || now.some((id, i) => id !== was[i])) was = now;
		return was;
	});
}

/* By name, as nothing that the agents do changes that; those that were moved before them. */
const sorted = steady(() => {
	const { order } = arrangement.value;
	const place = new Map(order.map((name, i) => [name, i]));
	return [...new Set([...lanes.ids.value, ...others.value])]
		.map((id) => [place.get(nameOfLane(id)) ?? order.length, laneWords(id), id] as const)
		.sort((a, b) => a[0] - b[0] || (a[1] < b[1] ? -1 : a[1] > b[1] ? 1 : a[2] < b[2] ? -1 : 1))
		.map(([, , id]) => id);
});
export const everyLane = sorted;
export const laneCount = computed(() => sorted.value.length);

const matching = computed(() => {
	const wanted = arrangement.value.filter.toLowerCase().split(/\s+/).filter(Boolean);
	if (!wanted.length) return sorted.value;
	return sorted.value.filter((id) => {
		const words = laneWords(id).toLowerCase();
		return wanted.some((word) => words.includes(word));
	});
});
export const isHidden = (id: string) => arrangement.value.hidden.includes(nameOfLane(id));
export const isPinned = (id: string) => arrangement.value.pinned.includes(nameOfLane(id));
export const hiddenCount = computed(() => (arrangement.value.hidden.length ? sorted.value.filter(isHidden).length : 0));

/* Pinned lanes first, whatever the filter. */
export const shownIds = steady(() => {
	const { pinned, hidden } = arrangement.value;
	const first = pinned.length ? sorted.value.filter(isPinned) : [];
	return [...first, ...matching.value.filter((id) => !(pinned.length && isPinned(id)) && !(hidden.length && isHidden(id)))];
});
export const pinnedCount = computed(() => (arrangement.value.pinned.length ? shownIds.value.filter(isPinned).length : 0));

/* --- What the reader does; each answers the next arrangement, or null if nothing changes --- */

const without = (list: readonly string[], name: string) => list.filter((it) => it !== name);

export function pin(id: string): Arrangement {
	const at = arrangement.value;
	const name = nameOfLane(id);
	return at.pinned.includes(name)
		? { ...at, pinned: without(at.pinned, name) }
		: { ...at, pinned: [...at.pinned, name], hidden: without(at.hidden, name) };
}
export function hide(id: string): Arrangement {
	const at = arrangement.value;
	const name = nameOfLane(id);
	return at.hidden.includes(name)
		? { ...at, hidden: without(at.hidden, name) }
		: { ...at, hidden: [...at.hidden, name], pinned: without(at.pinned, name) };
}
export const showAll = (): Arrangement => ({ ...arrangement.value, hidden: [] });

/* Before or behind another of the shown lanes; among pinned ones, or among the others. */
export function move(id: string, to: string): Arrangement | null {
	const shown = shownIds.value;
	const [from, at] = [shown.indexOf(id), shown.indexOf(to)];
	if (from < 0 || at < 0 || from === at || isPinned(id) !== isPinned(to)) return null;
	/* All lanes up to the last one that was moved have their place now. */
	const list = sorted.value.filter((it) => it !== id);
	list.splice(list.indexOf(to) + (at > from ? 1 : 0), 0, id);
	const was = sorted.value;
	let last = list.length - 1;
	while (last > 0 && list[last] === was[last]) last--;
	const known = arrangement.value.order.length;
	return { ...arrangement.value, order: list.slice(0, Math.max(last + 1, known)).map(nameOfLane) };
}
export function moveBy(id: string, by: 1 | -1): Arrangement | null {
	const to = shownIds.value[shownIds.value.indexOf(id) + by];
	return to ? move(id, to) : null;
}

/* --- The address --- */

const LISTS = { pin: "pinned", hide: "hidden", order: "order" } as const;
const NAMES_MAX = 1000; /* as many as are read from an address */

export function writeArrangement(query: URLSearchParams) {
	const at = arrangement.value;
	if (at.filter) query.set("q", at.filter);
	for (const [key, list] of Object.entries(LISTS))
		if (at[list].length) query.set(key, at[list].join(","));
}
export function readArrangement(query: URLSearchParams): Arrangement {
	const list = (key: string) => [...new Set((query.get(key) ?? "").split(",").filter(Boolean))].slice(0, NAMES_MAX);
	return { filter: query.get("q") ?? "", pinned: list("pin"), hidden: list("hide"), order: list("order") };
}
