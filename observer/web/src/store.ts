/* What the page knows, as signals: one for each agent, lane and card, so that an upsert
 * touches the nodes of that one thing. */

import { batch, computed, type Signal, signal } from "@preact/signals";
import { told } from "./names";
import { offline } from "./offline";
import { applyRows, forgetRows } from "./rows";
import type { Agent, Card, Control, Health, Lane, LaneState, Message } from "./types";

/* The way from this page to the broker. */
export type Link =
	| { state: "connecting" }
	| { state: "live" }
	| { state: "gone"; sinceMs: number; retryAtMs: number };

/* Whether two things say the same but for @pulse, what moves with every frame: when it was last
 * heard of. Not that it was never heard of. */
function alike(a: unknown, b: unknown, pulse: ReadonlySet<PropertyKey>): boolean {
	if (a === b) return true;
	if (!a || !b || typeof a !== "object" || typeof b !== "object" || Array.isArray(a) !== Array.isArray(b))
		return false;
	const [x, y] = [a, b] as Record<string, unknown>[];
	for (const key in x)
		if (pulse.has(key) ? !x[key] !== !y![key] : !alike(x[key], y![key], pulse)) return false;
	for (const key in y)
		if (!(key in x!) && (pulse.has(key) ? y[key] : y[key] !== undefined)) return false;
	return true;
}

interface Cell<T> {
	whole: Signal<T>;
	/* Follows the other when more than the pulse is different. */
	still: Signal<T>;
}

class Table<T extends object> {
	readonly #of: (thing: T) => string;
	readonly #pulse: ReadonlySet<PropertyKey>;
	readonly #cells = new Map<string, Cell<T>>();
	/* Changes when a thing comes or goes, not when one changes. */
	readonly ids = signal<readonly string[]>([]);

	constructor(of: (thing: T) => string, pulse: readonly string[] = []) {
		this.#of = of;
		this.#pulse = new Set(pulse);
	}
	/* Who reads a thing is told when it changes, comes or goes. */
	get(id: string): T | undefined {
		return this.ids.value && this.#cells.get(id)?.whole.value;
	}
	/* The same, but not told of its pulse, which may be old here. */
	still(id: string): T | undefined {
		return this.ids.value && this.#cells.get(id)?.still.value;
	}
	all(): T[] {
		return this.ids.value.map((id) => this.#cells.get(id)!.whole.value);
	}
	stills(): T[] {
		return this.ids.value.map((id) => this.#cells.get(id)!.still.value);
	}
	/* Whether all of these are here and only their pulse is new. */
	onlyPulse(things: readonly T[]): boolean {
		return things.every((thing) => {
			const cell = this.#cells.get(this.#of(thing));
			return cell !== undefined && alike(cell.still.peek(), thing, this.#pulse);
		});
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
				cell.whole.value = thing;
				if (!alike(cell.still.peek(), thing, this.#pulse)) cell.still.value = thing;
			} else {
				this.#cells.set(id, { whole: signal(thing), still: signal(thing) });
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

export const agents = new Table<Agent>((agent) => agent.id, ["seenMs", "completeMs"]);
export const lanes = new Table<Lane>((lane) => lane.id, ["lastMs", "activity", "activityMs", "timeMs"]);
export const cards = new Table<Card>((card) => card.id);
export const controls = new Table<Control>((control) => control.requestId);
export const health = signal<Health>({});
/* The same without its pulse. */
export const stillHealth = signal<Health>({});
const HEALTH_PULSE = new Set<PropertyKey>(["frameAtMs", "completeMs"]);
export const owner = signal<NonNullable<Message["owner"]>>({});
export const link = signal<Link>({ state: "connecting" });
/* A snapshot has come: what is not here does not exist. */
export const known = signal(false);
export let cursor: string | null = null;

/* The broker's clock minus ours, so that ages are right on another machine too. */
let skewMs = 0;
/* A replay's time stands still. */
export const brokerNow = () => offline.is?.now ?? Date.now() + skewMs;

/* Controls have no removal of their own: an answered one is old news after a minute. */
const CONTROL_KEEP_MS = 60_000;

/* A frame of an agent that only lives moves nothing but pulses: those wait for the clock's next
 * step, so that the page is drawn as often however many agents there are; and for the next second
 * only if one of them does something. */
const held = {
	soon: false,
	agents: new Map<string, Agent>(),
	lanes: new Map<string, Lane>(),
	health: null as Health | null,
};

function isPulse(message: Message): boolean {
	for (const [member, value] of Object.entries(message))
		if (!["cursor", "now", "health", "agents", "lanes"].includes(member) && !(Array.isArray(value) && !value.length))
			return false;
	return (
		(!message.health || alike(stillHealth.peek(), message.health, HEALTH_PULSE)) &&
		agents.onlyPulse(message.agents ?? []) &&
		lanes.onlyPulse(message.lanes ?? [])
	);
}

/* More in its newest stroke than the one sign of life in ten seconds. */
const does = ({ activity }: Lane) => (activity?.at(-1) ?? 0) > 1;

function setHealth(next: Health) {
	health.value = next;
	if (!alike(stillHealth.peek(), next, HEALTH_PULSE)) stillHealth.value = next;
}

export function release() {
	if (!held.health && !held.agents.size && !held.lanes.size) return;
	batch(() => {
		agents.upsert([...held.agents.values()]);
		lanes.upsert([...held.lanes.values()]);
		if (held.health) setHealth(held.health);
	});
	held.agents.clear();
	held.lanes.clear();
	held.health = null;
	held.soon = false;
}
/* The clock has ticked. */
export function releaseDue(step: boolean) {
	if (step || held.soon) release();
}

export function apply(message: Message) {
	batch(() => {
		if (message.now) skewMs = message.now - Date.now();
		cursor = message.cursor ?? cursor;
		if (isPulse(message)) {
			for (const agent of message.agents ?? []) held.agents.set(agent.id, agent);
			for (const lane of message.lanes ?? []) held.lanes.set(lane.id, lane);
			held.health = message.health ?? held.health;
			held.soon ||= message.lanes?.some(does) ?? false;
			return;
		}
		release();
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
		lanes.remove(message.removedLanes ?? []);
		agents.remove(message.removedAgents ?? []);
		if (message.health) setHealth(message.health);
		if (message.owner) owner.value = message.owner;
		applyRows(message.rows ?? [], message.removedRows ?? []);
	});
}

/* What a tab that opened later gets in place of the broker's snapshot. */
export function snapshot(): Message {
	release();
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

export const agentOf = (lane: { agent: string }) => agents.still(lane.agent);
export const nameOf = (agent: Agent | undefined, id: string) =>
	agent?.name || told.value.get(id) || id.slice(0, 8);
export const channelOf = (lane: Lane) =>
	lane.channelName || told.value.get(lane.id) || lane.channel.slice(0, 8);
/* Of a lane that the fleet may not have. */
export const channelWords = (lane: Lane | undefined, id: string) =>
	lane ? channelOf(lane) : told.value.get(id) || id.slice(65, 73);

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
		.stills()
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
	for (const { state } of lanes.stills())
		if (state in count) count[state as keyof typeof count]++;
	return count;
});

/* Until when what goes on in a lane is known to go on: of an agent that is gone, when that was
 * last heard. */
export function laneNow(lane: string, ms: number): number {
	const agent = agents.still(lane.slice(0, lane.indexOf("/")));
	return agent && !agent.online ? Math.min(ms, agent.seenMs ?? ms) : ms;
}
