/* One clock for the whole page. It ticks once a second, only while somebody can see it, and
 * what shows it is a text node: no component is drawn again because time passes. What nobody
 * counts along with goes in steps of five seconds, all of it at once: each frame that a browser
 * draws costs about the same however little of it is new. */

import { batch, computed, signal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { brokerNow, releaseDue } from "./store";
import { STEP_MS } from "./words";

export const now = signal(Date.now());
/* The same in steps: up to so much behind. */
export const calm = signal(now.peek());
/* How often each of them moved: on window.__perch.clock. */
const figures = { ticks: 0, steps: 0 };

export function openClock() {
	Object.assign(((window as { __perch?: object }).__perch ??= {}), { clock: figures });
	let timer = 0;
	const tick = () => {
		const ms = brokerNow();
		const step = Math.floor(ms / STEP_MS) !== Math.floor(calm.peek() / STEP_MS);
		batch(() => {
			releaseDue(step);
			now.value = ms;
			if (step) calm.value = ms;
		});
		figures.ticks++;
		if (step) figures.steps++;
		timer = setTimeout(tick, 1000 - (Date.now() % 1000));
	};
	const run = () => {
		clearTimeout(timer);
		if (!document.hidden) tick();
	};
	document.addEventListener("visibilitychange", run);
	run();
}

type Text = { text: (nowMs: number) => string };
export function Tick({ text }: Text) {
	const value = useMemo(() => computed(() => text(now.value)), [text]);
	return <>{value}</>;
}
export function Step({ text }: Text) {
	const value = useMemo(() => computed(() => text(calm.value)), [text]);
	return <>{value}</>;
}

export const utc = signal(localStorage.getItem("perch.utc") === "1");
export function toggleUtc() {
	utc.value = !utc.value;
	localStorage.setItem("perch.utc", utc.value ? "1" : "0");
}

/* So many milliseconds the times that are shown are ahead of UTC. */
export const zoneMs = (ms: number) =>
	utc.value ? 0 : -60_000 * new Date(ms).getTimezoneOffset();
export const dayStart = (ms: number) =>
	utc.value ? ms - (ms % 86_400_000) : new Date(ms).setHours(0, 0, 0, 0);
/* 2026-12-01. */
export const isoDay = (ms: number) => new Date(ms + zoneMs(ms)).toISOString().slice(0, 10);

const format = computed(
	() =>
		new Intl.DateTimeFormat("en-GB", {
			hour: "2-digit",
			minute: "2-digit",
			second: "2-digit",
			...(utc.value ? { timeZone: "UTC" } : {}),
		}),
);

export const clockTime = (ms: number) => format.value.format(ms);
/* 13:40:02, or "28 Nov, 13:40" of what is so long ago that the day is not clear. */
const CLEAR_MS = 12 * 3_600_000;
const dayFormat = computed(
	() =>
		new Intl.DateTimeFormat("en-GB", {
			day: "numeric",
			month: "short",
			hour: "2-digit",
			minute: "2-digit",
			...(utc.value ? { timeZone: "UTC" } : {}),
		}),
);
export const moment = (ms: number) =>
	calm.value - ms < CLEAR_MS ? clockTime(ms) : dayFormat.value.format(ms);
const onlyDay = computed(
	() => new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", ...(utc.value ? { timeZone: "UTC" } : {}) }),
);
/* 1 Dec. */
export const dayOf = (ms: number) => onlyDay.value.format(ms);
/* 13:40:02 – 13:45:02; with the days where one time could mean two, with milliseconds where
 * seconds are too coarse. */
export function stretchWords(from: number, to: number): string {
	if (to - from >= CLEAR_MS) return `${dayFormat.value.format(from)} – ${dayFormat.value.format(to)}`;
	const fine = (ms: number) =>
		to - from < 2000 ? `${clockTime(ms)}.${String(Math.floor(ms % 1000)).padStart(3, "0")}` : clockTime(ms);
	return `${fine(from)} – ${fine(to)}`;
}
export const fullTime = (ms: number) =>
	utc.value
		? new Date(ms).toISOString()
		: `${new Date(ms).toString().replace(/ \(.*/, "")}`;
