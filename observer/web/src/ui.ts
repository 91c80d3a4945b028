/* What the reader has set, as opposed to what the broker said. */

import { computed, effect, signal } from "@preact/signals";
import { control } from "./api";
import { route } from "./session";
import { tray } from "./store";
import type { Card, Option } from "./types";

const THEMES = ["", "light", "dark"] as const;
export const theme = signal(localStorage.getItem("perch.theme") ?? "");
export const themeName = computed(
	() => ({ light: "Light", dark: "Dark" })[theme.value] ?? "System",
);

export function setTheme(to: string) {
	theme.value = to;
	localStorage.setItem("perch.theme", to);
}
export const nextTheme = () =>
	setTheme(THEMES[(THEMES.indexOf(theme.value as "") + 1) % THEMES.length]!);

export function openUi() {
	effect(() => {
		if (theme.value) document.documentElement.dataset.theme = theme.value;
		else delete document.documentElement.dataset.theme;
	});
}

export const helpOpen = signal(false);
/* What is to be found by its words: a lane, or a command of the page. */
export const palette = signal<"" | "lanes" | "commands">("");

/* How this browser tells of a request that waits: words of "notification sound". */
export type Alert = "notification" | "sound";
const ALERTS = "perch.alerts";
const readAlerts = () => (localStorage.getItem(ALERTS) ?? "").split(" ").filter(Boolean);
export const alerts = signal(readAlerts());
export const alertsOpen = signal(false);
export function setAlert(which: Alert, on: boolean) {
	alerts.value = [...alerts.peek().filter((it) => it !== which), ...(on ? [which] : [])];
	localStorage.setItem(ALERTS, alerts.value.join(" "));
}
/* What one tab was told holds for all. */
addEventListener("storage", ({ key }) => {
	if (key === ALERTS) alerts.value = readAlerts();
});
/* Where times are looked at the tray begins as one line. */
const folds = signal({ times: true, rest: false });
const trayPlace = () =>
	route.value.screen === "timeline" || route.value.screen === "report"
		? "times"
		: "rest";
export const trayFolded = computed(() => folds.value[trayPlace()]);
export function foldTray(folded: boolean) {
	folds.value = { ...folds.peek(), [trayPlace()]: folded };
}
export const fleetFocus = signal<string | null>(null);

/* The keys of a screen that has its own; what it takes it says by true. */
export const screenKeys: {
	take: ((event: KeyboardEvent, key: string) => boolean) | null;
	/* Shows a lane where the screen has it. */
	goToLane?: ((id: string) => void) | null;
} = { take: null };
/* What the keys do in the transcript that is open. */
export const reader: {
	current: null | {
		move(by: number): void;
		newest(): void;
		open(): void;
		stop(): void;
		zoom(by: number): void;
		timeline(): void;
	};
} = { current: null };
/* Those that would answer a card elsewhere. */
const TAKEN: Record<string, RegExp> = { timeline: /[ad]/i, report: /[1-9]/ };
export const answersBy = (key: string) => !TAKEN[route.value.screen]?.test(key);

/* One sentence about the last thing that failed here, until the next action. */
export const notice = signal("");

/* --- The tray --- */

/* What was picked here and is not yet in the stream, and why it failed if it did. */
export const picks = signal<ReadonlyMap<string, { option: string; failed?: string }>>(
	new Map(),
);
const setPick = (id: string, pick: { option: string; failed?: string }) => {
	picks.value = new Map(picks.value).set(id, pick);
};

export const answerable = (card: Card) => card.state === "pending" && card.actionable;
export const pickable = (card: Card, option: Option) =>
	answerable(card) &&
	(card.bodyReady !== false || !option.kind.startsWith("allow")) &&
	(picks.value.get(card.id) === undefined ||
		picks.value.get(card.id)!.failed !== undefined);

/* Allow once, deny, the others: by kind, in the order offered. */
export function inOrder(options: readonly Option[]): Option[] {
	const allow = options.find(({ kind }) => kind === "allow_once");
	const deny = denial(options);
	return [
		...(allow ? [allow] : []),
		...(deny ? [deny] : []),
		...options.filter((o) => o !== allow && o !== deny),
	];
}
export const denial = (options: readonly Option[]) =>
	options.find(({ kind }) => kind === "reject_once") ??
	options.find(({ kind }) => kind === "reject_always");

export async function pick(card: Card, option: Option) {
	if (!pickable(card, option)) return;
	setPick(card.id, { option: option.id });
	try {
		await control({
			agent: card.agent,
			channel: card.lane.split("/")[1]!,
			type: "permission_decision",
			card: card.id,
			option: option.id,
		});
	} catch (error) {
		setPick(card.id, { option: option.id, failed: (error as Error).message });
	}
}

/* The focused card's answer; a number is its place among the options. */
export function decide(which: "allow" | "deny" | number, pressedAt: number) {
	const card = focusedCard(pressedAt);
	if (!card) return;
	const option =
		which === "allow"
			? card.options.find(({ kind }) => kind === "allow_once")
			: which === "deny"
				? denial(card.options)
				: inOrder(card.options)[which - 1];
	if (option) void pick(card, option);
}

export async function fetchBody(card: Card) {
	try {
		notice.value = "";
		await control({
			agent: card.agent,
			channel: card.lane.split("/")[1]!,
			type: "fetch_body",
			card: card.id,
		});
	} catch (error) {
		notice.value = `Not fetched: ${(error as Error).message}.`;
	}
}

const chosenCard = signal<string | null>(null);
/* The card that the keys press: the one chosen, else the oldest that waits for an answer. */
export const focusCard = computed(() => {
	const open = tray.value.filter(
		(card) =>
			answerable(card) &&
			(!picks.value.has(card.id) || picks.value.get(card.id)!.failed),
	);
	return open.find(({ id }) => id === chosenCard.value)?.id ?? open[0]?.id ?? null;
});

/* When the focus moves by itself a key already on its way must not answer the next card. */
const FOCUS_REST_MS = 500;
let restUntil = 0;
let last: string | null = null;
effect(() => {
	if (last !== null && focusCard.value !== last && focusCard.value !== chosenCard.value)
		restUntil = performance.now() + FOCUS_REST_MS;
	last = focusCard.value;
});

export function chooseCard(id: string) {
	chosenCard.value = id;
	restUntil = 0;
}
export function nextCard() {
	const open = tray.value.filter(answerable);
	const at = open.findIndex(({ id }) => id === focusCard.value);
	if (open.length > 1) chooseCard(open[(at + 1) % open.length]!.id);
}
/* For a key of this moment: when it was pressed, however late a busy page hears of it. */
export function focusedCard(pressedAt: number): Card | null {
	if (pressedAt < restUntil) return null;
	return tray.value.find(({ id }) => id === focusCard.value) ?? null;
}

effect(() => {
	/* Cards that are gone leave nothing here. */
	const here = new Set(tray.value.map(({ id }) => id));
	const kept = [...picks.peek()].filter(([id]) => here.has(id));
	if (kept.length !== picks.peek().size) picks.value = new Map(kept);
});
