/* The keyboard: what works where, shown at the foot and under "?". */

import { useEffect, useRef } from "preact/hooks";
import { shownView } from "./agent";
import { toggleUtc } from "./clock";
import { stopKey } from "./composer";
import { route, routeTo } from "./session";
import { laneOrder, lanes, tray } from "./store";
import {
	denial,
	fleetFocus,
	focusedCard,
	foldTray,
	helpOpen,
	inOrder,
	nextCard,
	answersBy,
	pick,
	screenKeys,
	trayFolded,
} from "./ui";
import { copyNth } from "./welcome";

type Where = "fleet" | "agent" | "timeline" | "report" | "first-run";

/* G and then a letter, within a second. */
const GO: Record<string, string> = { f: "#/", t: "#/timeline", r: "#/report" };
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

function decide(which: "allow" | "deny" | number) {
	const card = focusedCard();
	if (!card) return;
	const option =
		which === "allow"
			? card.options.find(({ kind }) => kind === "allow_once")
			: which === "deny"
				? denial(card.options)
				: inOrder(card.options)[which - 1];
	if (option) void pick(card, option);
}

function openCard() {
	const card = focusedCard() ?? tray.value[0];
	if (card) location.hash = routeTo(card.lane, card.row);
}

function openRow() {
	const id = shownView?.current.value;
	if (id)
		[...document.querySelectorAll<HTMLElement>("[data-row]")]
			.find((row) => row.dataset.row === id)
			?.querySelector<HTMLElement>("summary, button.link")
			?.click();
}

/* Answers are given on purpose: never by a key that is held, a chord, or while a text is typed. */
function onKey(event: KeyboardEvent, where: Where) {
	const target = event.target as HTMLElement;
	if (
		event.defaultPrevented ||
		event.isComposing ||
		event.ctrlKey ||
		event.metaKey
	)
		return;
	const typing = target.matches?.("textarea, input, select");
	if (event.key === "Escape") {
		if (helpOpen.value) {
			helpOpen.value = false;
		} else if (where === "agent" && !event.repeat) {
			const lane =
				route.value.screen === "agent" ? lanes.get(route.value.lane) : undefined;
			if (lane) stopKey(lane);
		} else if (!typing) {
			screenKeys.take?.(event, "Escape");
		}
		return;
	}
	if (typing || (helpOpen.value && event.key !== "?")) return;
	const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
	const go = performance.now() < goUntil && !event.altKey ? GO[key] : undefined;
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
		else if (answersBy(key)) decide(Number(key));
		return;
	}
	switch (key) {
		case "?":
			helpOpen.value = !helpOpen.value;
			break;
		case "a":
			if (answersBy(key)) decide("allow");
			break;
		case "d":
			if (answersBy(key)) decide("deny");
			break;
		case "o":
			openCard();
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
		case "b":
			location.hash = "#/";
			break;
		case "j":
		case "k":
			if (where === "agent") shownView?.move(key === "j" ? 1 : -1);
			else if (where === "fleet") visit(key === "j" ? 1 : -1);
			break;
		case "g":
			goUntil = performance.now() + GO_MS;
			if (where === "agent") shownView?.did({ type: "newest" });
			break;
		case "i":
			document.querySelector<HTMLTextAreaElement>(".composer textarea")?.focus();
			break;
		case "Enter":
			if (target.closest("a, button, summary")) return;
			if (where === "agent") openRow();
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
	],
	agent: [
		[["J", "K"], "move"],
		[["Enter"], "open"],
		[["G"], "newest"],
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
		[["Esc"], "clear"],
	],
	report: [
		[["1", "…", "4"], "views"],
		[["J", "K"], "move"],
		[["Enter"], "open"],
		[["C"], "copy as table"],
	],
	"first-run": [[["1", "2", "3"], "copy a command"]],
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
	[["I"], "write a prompt"],
	[["Ctrl", "Enter"], "send it (⌘ Enter too)"],
	[["Esc", "Esc"], "stop the turn; its queue is held"],
	[["G", "F"], "fleet; G T timeline, G R report"],
	[["W", "A", "S", "D"], "timeline: zoom in, earlier, zoom out, later"],
	[["Space"], "timeline: follow now; Home shows all"],
	[[",", "."], "the span before, after; Shift: same name; Alt: same name, same agent"],
	[["F"], "timeline: bring the selected span to the middle"],
	[["R"], "timeline: the selected span becomes the range"],
	[["1", "…", "4"], "report: its views; C copies the table"],
	[["U"], "times in UTC, or local again"],
	[["?"], "these keys"],
];

export function Keys({ where }: { where: Where }) {
	useEffect(() => {
		const listener = (event: KeyboardEvent) => onKey(event, where);
		addEventListener("keydown", listener);
		return () => removeEventListener("keydown", listener);
	}, [where]);
	return (
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
	);
}

export function Help() {
	const dialog = useRef<HTMLDialogElement>(null);
	useEffect(() => {
		if (helpOpen.value) dialog.current?.showModal();
		else dialog.current?.close();
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
