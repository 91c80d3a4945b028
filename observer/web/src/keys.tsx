/* The keyboard: what works where, shown at the foot and under "?". */

import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { toggleUtc } from "./clock";
import { Palette } from "./later";
import { routeTo } from "./session";
import { laneOrder, tray } from "./store";
import {
	alertsOpen,
	decide,
	fleetFocus,
	focusedCard,
	foldTray,
	helpOpen,
	nextCard,
	answersBy,
	palette,
	reader,
	screenKeys,
	trayFolded,
} from "./ui";
import { copyNth, playDemo } from "./welcome";

export type Where = "fleet" | "agent" | "timeline" | "report" | "search" | "self" | "first-run";

/* G and then a letter, within a second: of when they were pressed, not of when there was time for them. */
const GO: Record<string, string> = { f: "#/", t: "#/timeline", r: "#/report", s: "#/search", p: "#/self" };
const GO_MS = 1000;
let goUntil = 0;

function visit(by: number) {
	const order = laneOrder.value;
	if (!order.length) return;
	const at = fleetFocus.value ? order.indexOf(fleetFocus.value) : -1;
	const id = order[at < 0 ? 0 : Math.max(0, Math.min(order.length - 1, at + by))]!;
	fleetFocus.value = id;
	document
		.querySelector<HTMLElement>(`.fleet-row[data-lane="${id}"]`)
		?.focus({ preventScroll: true });
}

function openCard(pressedAt: number) {
	const card = focusedCard(pressedAt) ?? tray.value[0];
	if (card) location.hash = routeTo(card.lane, card.row);
}

/* Answers are given on purpose: never by a key that is held, a chord, or while a text is typed. */
function onKey(event: KeyboardEvent, where: Where) {
	const target = event.target as HTMLElement;
	if (event.defaultPrevented || event.isComposing || alertsOpen.value) return;
	if ((event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === "p") {
		/* Not the browser's: on paper this page is nothing. */
		event.preventDefault();
		if (!helpOpen.value) palette.value = event.shiftKey ? "commands" : "lanes";
		return;
	}
	if (event.ctrlKey || event.metaKey || palette.value) return;
	const typing = target.matches?.("textarea, input, select");
	if (event.key === "Escape") {
		if (helpOpen.value) {
			helpOpen.value = false;
		} else if (where === "agent" && !event.repeat) {
			if (typing) target.blur(); /* the other keys are within reach again */
			reader.current?.stop();
		} else if (!typing) {
			screenKeys.take?.(event, "Escape");
		}
		return;
	}
	if (typing || (helpOpen.value && event.key !== "?")) return;
	const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
	const go = event.timeStamp < goUntil && !event.altKey ? GO[key] : undefined;
	if (!event.repeat) goUntil = 0;
	if (go) {
		location.hash = go;
		event.preventDefault();
		return;
	}
	if (!helpOpen.value && screenKeys.take?.(event, key)) {
		event.preventDefault();
		return;
	}
	if (event.altKey) return;
	const moves = key === "j" || key === "k";
	if (event.repeat && !moves) return;
	if (key >= "1" && key <= "9") {
		if (where === "first-run") copyNth(Number(key));
		else if (answersBy(key)) decide(Number(key), event.timeStamp);
		return;
	}
	switch (key) {
		case "?":
			helpOpen.value = !helpOpen.value;
			break;
		case "a":
			if (answersBy(key)) decide("allow", event.timeStamp);
			break;
		case "d":
			if (answersBy(key)) decide("deny", event.timeStamp);
			break;
		case "o":
			openCard(event.timeStamp);
			break;
		case "n":
			nextCard();
			break;
		case "t":
			foldTray(!trayFolded.value);
			break;
		case "u":
			toggleUtc();
			break;
		case "/":
			location.hash = "#/search";
			break;
		case "b":
			location.hash = "#/";
			break;
		case "j":
		case "k":
			if (where === "agent") reader.current?.move(key === "j" ? 1 : -1);
			else if (where === "fleet") visit(key === "j" ? 1 : -1);
			break;
		case "g":
			goUntil = event.timeStamp + GO_MS;
			if (where === "agent") reader.current?.newest();
			break;
		case "l":
			if (where === "agent") reader.current?.timeline();
			break;
		case "z":
			if (where === "agent") reader.current?.zoom(event.shiftKey ? -1 : 1);
			break;
		case "p":
			if (where === "first-run") void playDemo();
			break;
		case "i":
			document.querySelector<HTMLTextAreaElement>(".composer textarea")?.focus();
			break;
		case "Enter":
			if (target.closest("a, button, summary")) return;
			if (where === "agent") reader.current?.open();
			else if (where === "fleet" && fleetFocus.value) location.hash = routeTo(fleetFocus.value);
			break;
		default:
			return;
	}
	event.preventDefault();
}

const FOOT: Record<Where, [string[], string][]> = {
	fleet: [
		[["J", "K"], "move"],
		[["Enter"], "open"],
		[["A"], "allow once"],
		[["D"], "deny"],
		[["T"], "fold the tray"],
		[["/"], "search"],
	],
	agent: [
		[["J", "K"], "move"],
		[["Enter"], "open"],
		[["G"], "newest"],
		[["Z"], "zoom"],
		[["I"], "prompt"],
		[["A"], "allow once"],
		[["D"], "deny"],
		[["Esc", "Esc"], "stop"],
		[["B"], "fleet"],
	],
	timeline: [
		[["W", "A", "S", "D"], "zoom, pan"],
		[["Space"], "follow"],
		[["Home"], "fit"],
		[[",", "."], "neighbours"],
		[["F"], "centre"],
		[["R"], "selection to range"],
		[["P"], "pin"],
		[["H"], "hide"],
		[["Esc"], "clear"],
	],
	report: [
		[["1", "…", "5"], "views"],
		[["J", "K"], "move"],
		[["Enter"], "open"],
		[["C"], "copy as table"],
	],
	self: [
		[["W", "S"], "zoom"],
		[["Space"], "follow, stand still"],
		[["B"], "fleet"],
	],
	search: [
		[["/"], "words"],
		[["J", "K"], "move"],
		[["Enter"], "open"],
		[["A"], "allow once"],
		[["D"], "deny"],
		[["B"], "fleet"],
	],
	"first-run": [
		[["1", "2", "3"], "copy a command"],
		[["P"], "play the demo"],
	],
};

const ALL: [string[], string][] = [
	[["A"], "allow the focused request once"],
	[["D"], "deny it"],
	[["1", "…", "9"], "pick its option of that number"],
	[["O"], "open its place in the transcript"],
	[["N"], "focus the next request"],
	[["T"], "fold the tray to one line, unfold it"],
	[["J", "K"], "move down, up"],
	[["Enter"], "open the agent, or unfold the row"],
	[["B"], "back to the fleet"],
	[["G"], "to the newest row, and follow"],
	[["L"], "the agent in the timeline"],
	[["Z"], "story, detail, raw lines; Shift the other way"],
	[["I"], "write a prompt"],
	[["Ctrl", "Enter"], "send it (⌘ Enter too)"],
	[["Esc", "Esc"], "stop the turn; its queue is held"],
	[["G", "F"], "fleet; G T timeline, G R report, G S search, G P self"],
	[["/"], "search everything"],
	[["W", "A", "S", "D"], "timeline: zoom in, earlier, zoom out, later"],
	[["Space"], "timeline: follow now; Home shows all"],
	[[",", "."], "the span before, after; Shift: same name; Alt: same name, same agent"],
	[["F"], "timeline: bring the selected span to the middle; again: all of it in view"],
	[["R"], "timeline: the selected span becomes the range; Shift and a drag on the ruler add to it"],
	[["Menu"], "timeline: what can be done with the selected span; the right button too"],
	[["P", "H"], "timeline: pin, hide the lane of the focused name or the selected span; Shift H: show all"],
	[["Alt", "↑", "↓"], "timeline: move that lane; J and K go from name to name, / filters"],
	[["V"], "timeline: the same as a table"],
	[["1", "…", "5"], "report: its views; C copies the table"],
	[["↑", "↓", "←", "→"], "report, flame: from frame to frame; Enter zooms in, Esc out"],
	[["Ctrl", "P"], "find a lane (⌘ P too)"],
	[["Ctrl", "Shift", "P"], "find a command (⌘ Shift P too)"],
	[["U"], "times in UTC, or local again"],
	[["?"], "these keys"],
];

export function Keys({ where }: { where: Where }) {
	/* What can be seen can be pressed. */
	useLayoutEffect(() => {
		const listener = (event: KeyboardEvent) => onKey(event, where);
		addEventListener("keydown", listener);
		return () => removeEventListener("keydown", listener);
	}, [where]);
	return (
		<>
			<footer class="keys">
				{FOOT[where].map(([caps, words]) => (
					<span key={words}>
						{caps.map((cap, i) => (
							<kbd key={i}>{cap}</kbd>
						))}{" "}
						{words}
					</span>
				))}
				<button
					type="button"
					class="all-keys"
					onClick={() => {
						helpOpen.value = true;
					}}
				>
					<kbd>?</kbd> all keys
				</button>
			</footer>
			<Palette where={where} />
		</>
	);
}

export function Help() {
	const dialog = useRef<HTMLDialogElement>(null);
	useEffect(() => {
		if (helpOpen.value) {
			dialog.current?.showModal();
			/* Its only control, which it focuses, is below the last key. */
			dialog.current?.scrollTo(0, 0);
		} else dialog.current?.close();
	}, [helpOpen.value]);
	return (
		<dialog
			ref={dialog}
			class="help"
			aria-labelledby="help-title"
			onClose={() => {
				helpOpen.value = false;
			}}
			onClick={(event) => {
				if (event.target === dialog.current) helpOpen.value = false;
			}}
		>
			<div class="help-body">
				<h2 id="help-title">Keys</h2>
				<dl>
					{ALL.map(([caps, words]) => (
						<div key={words}>
							<dt>
								{caps.map((cap, i) => (
									<kbd key={i}>{cap}</kbd>
								))}
							</dt>
							<dd>{words}</dd>
						</div>
					))}
				</dl>
				<button
					class="button"
					type="button"
					onClick={() => {
						helpOpen.value = false;
					}}
				>
					Close <kbd>Esc</kbd>
				</button>
			</div>
		</dialog>
	);
}
