/* One clock for the whole page. It ticks once a second, only while somebody can see it, and
 * what shows it is a text node: no component is drawn again because time passes. */

import { computed, signal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { brokerNow } from "./store";

export const now = signal(Date.now());

export function openClock() {
	let timer = 0;
	const tick = () => {
		now.value = brokerNow();
		timer = setTimeout(tick, 1000 - (Date.now() % 1000));
	};
	const run = () => {
		clearTimeout(timer);
		if (!document.hidden) tick();
	};
	document.addEventListener("visibilitychange", run);
	run();
}

export function Tick({ text }: { text: (nowMs: number) => string }) {
	const value = useMemo(() => computed(() => text(now.value)), [text]);
	return <>{value}</>;
}

export const utc = signal(localStorage.getItem("perch.utc") === "1");
export function toggleUtc() {
	utc.value = !utc.value;
	localStorage.setItem("perch.utc", utc.value ? "1" : "0");
}

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
export const fullTime = (ms: number) =>
	utc.value
		? new Date(ms).toISOString()
		: `${new Date(ms).toString().replace(/ \(.*/, "")}`;
