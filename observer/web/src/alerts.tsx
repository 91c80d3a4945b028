/* Being told that an agent waits when nobody looks: a notification of the browser and a sound,
 * each by choice. The tab's title counts what waits whatever is chosen (main.tsx).
 *
 * Only what comes while the page is open is told, not what it found: a snapshot or a replay
 * rings nobody. Each tab hears of every request; the one that reads the stream for all shows
 * the notification, the one that was first allowed to make a sound makes it. */

import { effect, signal, untracked } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { toggleUtc, utc } from "./clock";
import { plain } from "./plain";
import { routeTo } from "./session";
import { agentOf, cards, channelOf, known, lanes, nameOf } from "./store";
import { leads } from "./stream";
import type { Card } from "./types";
import { alerts, alertsOpen, answerable, chooseCard, setAlert, setTheme, theme, trayFolded } from "./ui";

/* What a rule answers at once rings nobody. */
const PENDING_MS = 400;
const WORDS_MAX = 160;
const LOOKS = "perch-looks";
const SOUND = "perch-sound";

interface Ring {
	timer: number;
	notification?: Notification;
}

const rings = new Map<string, Ring>();

/* A lock that this tab has, or not: others can see whether anybody has it. */
class Held {
	readonly name: string;
	readonly mode: LockMode;
	has = false;
	#release: (() => void) | null = null;
	#wanted = false;

	constructor(name: string, mode: LockMode) {
		this.name = name;
		this.mode = mode;
	}
	want(wanted: boolean) {
		if (wanted === this.#wanted) return;
		this.#wanted = wanted;
		if (!wanted) return this.#release?.();
		void navigator.locks.request(this.name, { mode: this.mode }, () => {
			if (!this.#wanted) return undefined;
			this.has = true;
			return new Promise<void>((resolve) => {
				this.#release = () => {
					this.has = false;
					this.#release = null;
					resolve();
				};
			});
		});
	}
}

/* Somebody has a tab before them, with its requests in sight. */
const looks = new Held(LOOKS, "shared");
async function somebodyLooks(): Promise<boolean> {
	const { held } = await navigator.locks.query();
	return !!held?.some(({ name }) => name === LOOKS);
}

/* --- sound --- */

const sound = new Held(SOUND, "exclusive");
let audio: AudioContext | null = null;

/* A browser lets a tab be heard once it was touched. */
function openAudio() {
	if (!alerts.value.includes("sound")) return;
	audio ??= new AudioContext();
	void audio.resume().then(() => sound.want(true));
}

function note(context: AudioContext, hertz: number, at: number) {
	const tone = context.createOscillator();
	const volume = context.createGain();
	tone.frequency.value = hertz;
	volume.gain.setValueAtTime(0, at);
	volume.gain.linearRampToValueAtTime(0.12, at + 0.01);
	volume.gain.linearRampToValueAtTime(0, at + 0.14);
	tone.connect(volume).connect(context.destination);
	tone.start(at);
	tone.stop(at + 0.15);
}

function play() {
	if (!audio) return;
	note(audio, 660, audio.currentTime);
	note(audio, 880, audio.currentTime + 0.15);
}

/* --- notifications --- */

const supported = "Notification" in window;
const allowed = () => supported && Notification.permission === "granted";

function show(card: Card): Notification | undefined {
	const lane = lanes.get(card.lane);
	const who = nameOf(agentOf(card), card.agent);
	const words = plain(`${card.verb ?? "asks you"} ${card.text ?? card.title ?? ""}`);
	try {
		const out = new Notification(
			plain(lane ? `${who} · ${channelOf(lane)}` : who),
			{
				body: words.length > WORDS_MAX ? `${words.slice(0, WORDS_MAX)}…` : words,
				tag: card.id,
				requireInteraction: true,
			},
		);
		out.onclick = () => {
			window.focus();
			chooseCard(card.id);
			location.hash = routeTo(card.lane, card.row);
			out.close();
		};
		return out;
	} catch {
		return undefined; /* some browsers have them for installed pages only */
	}
}

async function ring(id: string) {
	const entry = rings.get(id);
	const card = cards.get(id);
	if (!entry || !card || (await somebodyLooks())) return;
	/* It may have been answered meanwhile. */
	if (rings.get(id) !== entry) return;
	if (alerts.value.includes("sound") && sound.has) play();
	if (alerts.value.includes("notification") && allowed() && leads())
		entry.notification = show(card);
}

function end(id: string) {
	const entry = rings.get(id);
	if (!entry) return;
	clearTimeout(entry.timer);
	entry.notification?.close();
	rings.delete(id);
}

let watching = false;

/* From now on. */
export function watch() {
	if (watching) return;
	watching = true;
	let seen: ReadonlySet<string> | null = null;
	effect(() => {
		if (!known.value) return;
		const all = cards.all();
		untracked(() => {
			const before = seen;
			seen = new Set(all.map(({ id }) => id));
			const open = new Set(all.filter(answerable).map(({ id }) => id));
			for (const id of [...rings.keys()]) if (!open.has(id)) end(id);
			if (!before) return;
			for (const id of open)
				if (!before.has(id))
					rings.set(id, {
						timer: setTimeout(() => void ring(id), PENDING_MS),
					});
		});
	});
	const look = () =>
		looks.want(
			document.hasFocus() &&
				document.visibilityState === "visible" &&
				!trayFolded.value,
		);
	effect(look);
	for (const type of ["focus", "blur"]) addEventListener(type, look);
	document.addEventListener("visibilitychange", look);
	for (const type of ["pointerdown", "keydown"])
		addEventListener(type, openAudio, { passive: true });
	/* What this tab showed it cannot take back once it is gone. */
	addEventListener("pagehide", () => [...rings.keys()].forEach(end));
}

/* --- the choice --- */

const said = signal("");

async function chooseNotification(on: boolean) {
	said.value = "";
	if (!on) return setAlert("notification", false);
	if (!supported) {
		said.value = "This browser has no notifications.";
		return;
	}
	const answer = await Notification.requestPermission();
	if (answer === "granted") return setAlert("notification", true);
	said.value =
		answer === "denied"
			? "This browser blocks notifications of this page: allow them in its site settings."
			: "The browser was not told yes: try again.";
}

export function AlertsDialog() {
	const dialog = useRef<HTMLDialogElement>(null);
	useEffect(() => {
		if (alertsOpen.value) dialog.current?.showModal();
		else dialog.current?.close();
	}, [alertsOpen.value]);
	const close = () => {
		alertsOpen.value = false;
	};
	return (
		<dialog
			ref={dialog}
			class="help alerts"
			aria-labelledby="alerts-title"
			onClose={close}
			onClick={(event) => {
				if (event.target === dialog.current) close();
			}}
		>
			<div class="help-body">
				<h2 id="alerts-title">When an agent asks you</h2>
				<p class="quiet">
					The tab's title always counts the requests that wait. For one that
					still waits after {PENDING_MS / 1000} s while you look at no tab of
					this page, there can be:
				</p>
				<label>
					<input
						type="checkbox"
						checked={alerts.value.includes("notification") && allowed()}
						onChange={(event) => {
							const { checked } = event.currentTarget;
							event.currentTarget.checked =
								alerts.value.includes("notification") && allowed();
							void chooseNotification(checked);
						}}
					/>
					A browser notification
				</label>
				<label>
					<input
						type="checkbox"
						checked={alerts.value.includes("sound")}
						onChange={(event) => {
							setAlert("sound", event.currentTarget.checked);
							openAudio();
							if (event.currentTarget.checked) play();
							else sound.want(false);
						}}
					/>
					A sound
				</label>
				<p class="quiet" role="status">
					{said.value}
				</p>
				<h2>This page</h2>
				<label>
					<input type="checkbox" checked={utc.value} onChange={toggleUtc} />
					Times in UTC
				</label>
				<label>
					Theme
					<select
						class="field"
						value={theme.value}
						onChange={(event) => setTheme(event.currentTarget.value)}
					>
						<option value="">as the system</option>
						<option value="light">light</option>
						<option value="dark">dark</option>
					</select>
				</label>
				<button class="button" type="button" onClick={close}>
					Close <kbd>Esc</kbd>
				</button>
			</div>
		</dialog>
	);
}
