/* Every command of the page, and every lane, found by their words. */

import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { toggleUtc } from "./clock";
import { offline } from "./offline";
import { State } from "./parts";
import { routeTo } from "./session";
import { laneOrder, lanes, tray } from "./store";
import { LaneName, laneWords } from "./times";
import { alertsOpen, answersBy, decide, nextTheme, palette, screenKeys, themeName } from "./ui";
import type { Where } from "./keys";

interface Entry {
	id: string;
	words: string;
	caps?: readonly string[];
	show?: ComponentChildren;
	run: () => void;
}
/* A key of the page, pressed for the reader, and what it does. */
type Pressed = [words: string, key: string, caps: string[], more?: KeyboardEventInit];

const MOVES: Pressed[] = [
	["Next row", "j", ["J"]],
	["Row before", "k", ["K"]],
];
const KEYS: Partial<Record<Where, Pressed[]>> = {
	fleet: MOVES,
	agent: [
		["Newest row, and follow", "g", ["G"]],
		...MOVES,
		["Zoom: story, detail, raw", "z", ["Z"]],
		["Zoom the other way", "Z", ["Shift", "Z"], { shiftKey: true }],
		["Write a prompt", "i", ["I"]],
		["Show this agent in the timeline", "l", ["L"]],
	],
	timeline: [
		["Zoom in", "w", ["W"]],
		["Zoom out", "s", ["S"]],
		["Earlier", "a", ["A"]],
		["Later", "d", ["D"]],
		["Follow now", " ", ["Space"]],
		["Fit all that there is", "Home", ["Home"]],
		["Next span", ".", ["."], { code: "Period" }],
		["Span before", ",", [","], { code: "Comma" }],
		["Next span of this name", ".", ["Shift", "."], { code: "Period", shiftKey: true }],
		["Next span of this name, same agent", ".", ["Alt", "."], { code: "Period", altKey: true }],
		["Bring the span to the middle; again: fit it", "f", ["F"]],
		["Make the span the range", "r", ["R"]],
		["Clear range, selection and marks", "Escape", ["Esc"]],
		["Filter lanes", "/", ["/"]],
		["Next lane", "j", ["J"]],
		["Lane before", "k", ["K"]],
		["Pin the lane", "p", ["P"]],
		["Hide the lane", "h", ["H"]],
		["Show hidden lanes", "H", ["Shift", "H"], { shiftKey: true }],
		["Move the lane up", "ArrowUp", ["Alt", "↑"], { altKey: true }],
		["Move the lane down", "ArrowDown", ["Alt", "↓"], { altKey: true }],
		["Show as a table, or as lanes", "v", ["V"]],
	],
	report: [
		["Flat", "1", ["1"]],
		["Top-down", "2", ["2"]],
		["Bottom-up", "3", ["3"]],
		["Live", "4", ["4"]],
		["Flame", "5", ["5"]],
		...MOVES,
		["Copy as a table", "c", ["C"]],
	],
	search: [["Search words", "/", ["/"]], ...MOVES],
	self: [
		["Zoom in", "w", ["W"]],
		["Zoom out", "s", ["S"]],
		["Follow now", " ", ["Space"]],
	],
};
const SCREENS: [string, string, string[]][] = [
	["Fleet", "#/", ["G", "F"]],
	["Timeline", "#/timeline", ["G", "T"]],
	["Report", "#/report", ["G", "R"]],
	["Search everything", "#/search", ["G", "S"]],
	["Self", "#/self", ["G", "P"]],
];

/* To who has the focus, as if a finger had done it. */
function press(key: string, more: KeyboardEventInit = {}) {
	(document.activeElement ?? document.body).dispatchEvent(
		new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...more }),
	);
}
const pressed = ([words, key, caps, more]: Pressed): Entry => ({ id: words, words, caps, run: () => press(key, more) });

function commands(where: Where): Entry[] {
	const list: Entry[] = (KEYS[where] ?? []).map(pressed);
	list.push({ id: "find", words: "Find a lane", caps: ["Ctrl", "P"], run: () => (palette.value = "lanes") });
	if (tray.value.length && !offline.is) {
		const [allow, deny] = [answersBy("a") ? ["A"] : [], answersBy("d") ? ["D"] : []];
		list.push(
			{ id: "allow", words: "Request: allow the focused one once", caps: allow, run: () => decide("allow", performance.now()) },
			{ id: "deny", words: "Request: deny the focused one", caps: deny, run: () => decide("deny", performance.now()) },
			pressed(["Request: open its place in the transcript", "o", ["O"]]),
			pressed(["Request: focus the next one", "n", ["N"]]),
			pressed(["Fold or unfold the tray", "t", ["T"]]),
		);
	}
	for (const [words, to, caps] of SCREENS)
		list.push({ id: to, words: `Go to: ${words}`, caps, run: () => (location.hash = to) });
	list.push({ id: "utc", words: "Times in UTC, or local again", caps: ["U"], run: toggleUtc });
	list.push({ id: "theme", words: `Theme: now ${themeName.value.toLowerCase()}; the next one`, run: nextTheme });
	if (!offline.is) list.push({ id: "alerts", words: "Alerts", run: () => (alertsOpen.value = true) });
	list.push(pressed(["All keys", "?", ["?"]]));
	return list;
}

/* On the timeline the lane there, elsewhere its transcript. */
function laneEntries(): Entry[] {
	const ids = [...new Set([...laneOrder.value, ...lanes.ids.value])];
	return ids.map((id) => ({
		id,
		words: laneWords(id),
		show: (
			<>
				<State of={lanes.get(id)?.state ?? "offline"} />
				<LaneName id={id} />
			</>
		),
		run: () => {
			if (screenKeys.goToLane) screenKeys.goToLane(id);
			else location.hash = routeTo(id);
		},
	}));
}

/* --- What is typed, and which entry Enter means --- */

const text = signal("");
const at = signal(0);

/* All words, anywhere; those that begin so before the others. */
function found(list: readonly Entry[]): Entry[] {
	const typed = text.value.trim().toLowerCase();
	const wanted = typed.split(/\s+/);
	const rank = ({ words }: Entry) => (words.toLowerCase().startsWith(typed) ? 0 : 1);
	return list
		.filter(({ words }) => wanted.every((word) => words.toLowerCase().includes(word)))
		.sort((a, b) => rank(a) - rank(b));
}

export default function Palette({ where }: { where: Where }) {
	const dialog = useRef<HTMLDialogElement>(null);
	const list = useRef<HTMLUListElement>(null);
	const mode = palette.value;
	/* Before the dialog tells that it was closed: from one palette into the other. */
	useLayoutEffect(() => {
		text.value = "";
		at.value = 0;
		if (!mode) dialog.current?.close();
		else if (!dialog.current?.open) dialog.current?.showModal();
	}, [mode]);
	const shown = mode ? found(mode === "lanes" ? laneEntries() : commands(where)) : [];
	const current = Math.max(0, Math.min(at.value, shown.length - 1));
	useLayoutEffect(() => list.current?.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" }));
	if (!mode) return <dialog ref={dialog} class="help palette" />;
	/* The dialog gives the focus back first: a key means what has it. */
	const choose = (entry: Entry | undefined) => {
		if (!entry) return;
		palette.value = "";
		dialog.current?.close();
		/* Where nothing had it, it stays in the field, whose keys mean letters. */
		const focused = document.activeElement as HTMLElement | null;
		if (dialog.current?.contains(focused)) focused?.blur();
		entry.run();
	};
	const onKey = (event: KeyboardEvent) => {
		if (event.isComposing) return;
		const to = { ArrowDown: current + 1, ArrowUp: current - 1 }[event.key];
		if (to !== undefined) at.value = shown.length ? (to + shown.length) % shown.length : 0;
		else if (event.key === "Enter") choose(shown[current]);
		else return;
		event.preventDefault();
	};
	const what = mode === "lanes" ? "Find a lane" : "Find a command";
	return (
		<dialog
			ref={dialog}
			class="help palette"
			aria-label={what}
			onClose={() => {
				/* It may have been opened again meanwhile. */
				if (!dialog.current?.open) palette.value = "";
			}}
			onClick={(event) => {
				if (event.target === dialog.current) palette.value = "";
			}}
		>
			<input
				class="field"
				type="text"
				role="combobox"
				aria-expanded="true"
				aria-controls="palette-list"
				aria-autocomplete="list"
				aria-activedescendant={shown.length ? `palette-${current}` : undefined}
				aria-label={what}
				placeholder={what}
				autocomplete="off"
				spellcheck={false}
				maxLength={200}
				value={text.value}
				onInput={(event) => {
					text.value = event.currentTarget.value;
					at.value = 0;
				}}
				onKeyDown={onKey}
			/>
			<ul ref={list} id="palette-list" role="listbox" aria-label={mode === "lanes" ? "Lanes" : "Commands"}>
				{shown.map((entry, i) => (
					<li
						key={entry.id}
						id={`palette-${i}`}
						role="option"
						aria-selected={i === current}
						onClick={() => choose(entry)}
					>
						{entry.show ?? entry.words}
						<span class="caps">
							{entry.caps?.map((cap) => (
								<kbd key={cap}>{cap}</kbd>
							))}
						</span>
					</li>
				))}
			</ul>
			<p class="quiet" role="status">
				{shown.length ? "" : `No ${mode === "lanes" ? "lane" : "command"} has these words.`}
			</p>
		</dialog>
	);
}
