/* What the page knows, as signals: one for each agent, lane and card, so that an upsert
 * touches the nodes of that one thing. */

import { batch, computed, type Signal, signal } from "@preact/signals";
import { applyRows, forgetRows } from "./rows";
import type { Agent, Card, Control, Health, Lane, LaneState, Message } from "./types";

/* The way from this page to the broker. */
export type Link =
	| { state: "connecting" }
	| { state: "live" }
	| { state: "gone"; sinceMs: number; retryAtMs: number };

class Table<T> {
	readonly #of: (thing: T) => string;
	readonly #cells = new Map<string, Signal<T>>();
	/* Changes when a thing comes or goes, not when one changes. */
	readonly ids = signal<readonly string[]>([]);

	constructor(of: (thing: T) => string) {
		this.#of = of;
	}
	/* Who reads a thing is told when it changes, comes or goes. */
	get(id: string): T | undefined {
		return this.ids.value && this.#cells.get(id)?.value;
	}
	all(): T[] {
		return this.ids.value.map((id) => this.#cells.get(id)!.value);
	}
	replace(things: readonly T[]) {
		const kept = new Set(things.map(this.#of));
		this.remove([...this.#cells.keys()].filter((id) => !kept.has(id)));
		this.upsert(things);
	}
	upsert(things: readonly T[]) {
		let grown = false;
		for (const thing of things) {
			const id = this.#of(thing);
			const cell = this.#cells.get(id);
			if (cell) {
				cell.value = thing;
			} else {
				this.#cells.set(id, signal(thing));
				grown = true;
			}
		}
		if (grown) this.ids.value = [...this.#cells.keys()];
	}
	remove(ids: readonly string[]) {
		let shrunk = false;
		for (const id of ids) shrunk = this.#cells.delete(id) || shrunk;
		if (shrunk) this.ids.value = [...this.#cells.keys()];
	}
}

export const agents = new Table<Agent>((agent) => agent.id);
export const lanes = new Table<Lane>((lane) => lane.id);
export const cards = new Table<Card>((card) => card.id);
export const controls = new Table<Control>((control) => control.requestId);
export const health = signal<Health>({});
export const owner = signal<NonNullable<Message["owner"]>>({});
export const link = signal<Link>({ state: "connecting" });
/* A snapshot has come: what is not here does not exist. */
export const known = signal(false);
export let cursor: string | null = null;

/* The broker's clock minus ours, so that ages are right on another machine too. */
let skewMs = 0;
export const brokerNow = () => Date.now() + skewMs;

/* Controls have no removal of their own: an answered one is old news after a minute. */
const CONTROL_KEEP_MS = 60_000;

export function apply(message: Message) {
	batch(() => {
		if (message.now) skewMs = message.now - Date.now();
		cursor = message.cursor ?? cursor;
		if (message.snapshot) {
			agents.replace(message.agents ?? []);
			lanes.replace(message.lanes ?? []);
			cards.replace(message.cards ?? []);
			controls.replace(message.controls ?? []);
			forgetRows();
			known.value = true;
		} else {
			agents.upsert(message.agents ?? []);
			lanes.upsert(message.lanes ?? []);
			cards.upsert(message.cards ?? []);
			if (message.controls) {
				controls.upsert(message.controls);
				const old = brokerNow() - CONTROL_KEEP_MS;
				controls.remove(
					controls
						.all()
						.filter(
							({ state, atMs }) =>
								(state === "answered" || state === "expired") &&
								(atMs ?? 0) < old,
						)
						.map(({ requestId }) => requestId),
				);
			}
		}
		cards.remove(message.removedCards ?? []);
		if (message.health) health.value = message.health;
		if (message.owner) owner.value = message.owner;
		applyRows(message.rows ?? [], message.removedRows ?? []);
	});
}

/* What a tab that opened later gets in place of the broker's snapshot. */
export function snapshot(): Message {
	return {
		snapshot: true,
		now: brokerNow(),
		...(cursor ? { cursor } : {}),
		health: health.value,
		owner: owner.value,
		agents: agents.all(),
		lanes: lanes.all(),
		cards: cards.all(),
		controls: controls.all(),
	};
}

export const agentOf = (lane: { agent: string }) => agents.get(lane.agent);
export const nameOf = (agent: Agent | undefined, id: string) =>
	agent?.name || id.slice(0, 8);
export const channelOf = (lane: Lane) => lane.channelName || lane.channel.slice(0, 8);

/* Cards in the order of the tray: oldest first, always. */
export const tray = computed(() =>
	cards.all().sort((a, b) => a.askedMs - b.askedMs || (a.id < b.id ? -1 : 1)),
);
export const waiting = computed(
	() => tray.value.filter(({ state }) => state !== "over").length,
);

export type Group = "needs-you" | "working" | "failed" | "finished" | "offline";
const GROUP_OF: Record<LaneState, Group> = {
	"needs-you": "needs-you",
	working: "working",
	stalled: "working",
	failed: "failed",
	finished: "finished",
	idle: "finished",
	offline: "offline",
};
const RANK: Record<LaneState, number> = {
	"needs-you": 0,
	stalled: 1,
	working: 2,
	failed: 3,
	finished: 4,
	idle: 5,
	offline: 6,
};

/* Blocked first, then working (stalled before the rest), failed, finished, offline. In a group
 * by when it began, so that a row keeps its place while its state lasts. */
function byUrgency(a: Lane, b: Lane): number {
	const resting = RANK[a.state] >= RANK.finished;
	const since = (a.sinceMs ?? 0) - (b.sinceMs ?? 0);
	return (
		RANK[a.state] - RANK[b.state] ||
		(resting ? -since : since) ||
		(a.id < b.id ? -1 : 1)
	);
}

/* As text, so that what shows the order is drawn again only when the order changes. */
const order = computed(() =>
	lanes
		.all()
		.sort(byUrgency)
		.map((lane) => `${GROUP_OF[lane.state]} ${lane.id}`)
		.join("\n"),
);

export const groups = computed(() => {
	const sorted = new Map<Group, string[]>();
	for (const line of order.value ? order.value.split("\n") : []) {
		const [group, id] = line.split(" ") as [Group, string];
		sorted.set(group, [...(sorted.get(group) ?? []), id]);
	}
	return sorted;
});
export const laneOrder = computed(() => [...groups.value.values()].flat());

export const tally = computed(() => {
	const count = { working: 0, stalled: 0, failed: 0 };
	for (const { state } of lanes.all())
		if (state in count) count[state as keyof typeof count]++;
	return count;
});
