/* Screens that are fetched when they are first asked for. */

import { effect, signal } from "@preact/signals";
import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Where } from "./keys";
import { alerts, alertsOpen, palette } from "./ui";

type Screen = ComponentType<{ query: string }>;
export type LaterScreen = keyof typeof SCREENS;

const SCREENS = {
	agent: {
		title: "Agent",
		load: async (): Promise<Screen> => (await import("./agent")).AgentScreen,
	},
	timeline: {
		title: "Timeline",
		load: async (): Promise<Screen> => (await import("./timeline")).Timeline,
	},
	report: {
		title: "Report",
		load: async (): Promise<Screen> => (await import("./report")).ReportScreen,
	},
	self: {
		title: "Self",
		load: async (): Promise<Screen> => (await import("./self")).SelfScreen,
	},
	search: {
		title: "Search",
		load: async (): Promise<Screen> => (await import("./search")).SearchScreen,
	},
};

/* Those that are here: shown without a frame in between. */
const here = new Map<LaterScreen, Screen>();

async function load(screen: LaterScreen) {
	here.set(screen, await SCREENS[screen].load());
}

/* The screen that most clicks lead to, once the first view has what it needs. */
export function loadNext() {
	const next = () => void load("agent").catch(() => {}); /* it is said when it is opened */
	if ("requestIdleCallback" in window) requestIdleCallback(next, { timeout: 3000 });
	else setTimeout(next, 1000);
}

export function Later({ screen, query }: { screen: LaterScreen; query: string }) {
	const [, setLoaded] = useState(false);
	const [failed, setFailed] = useState(0);
	const { title } = SCREENS[screen];
	const Loaded = here.get(screen);
	useEffect(() => {
		/* As it was drawn: loadNext() may have got it since, and tells nobody. */
		if (!Loaded)
			load(screen).then(
				() => setLoaded(true),
				() => setFailed((times) => times + 1),
			);
	}, []);
	if (Loaded) return <Loaded query={query} />;
	return (
		<main class="absent">
			<h1 class={failed ? "" : "hidden"}>{title}</h1>
			{failed ? (
				<>
					<p>
						This screen did not come: the broker is gone, or newer than this
						page.
					</p>
					<button
						class="button"
						type="button"
						onClick={() => location.reload()}
					>
						Load the page again
					</button>
				</>
			) : null}
		</main>
	);
}

/* --- What is told when nobody looks --- */

const dialog = signal<ComponentType | null>(null);

async function loadAlerts() {
	const { AlertsDialog, watch } = await import("./alerts");
	watch();
	dialog.value = AlertsDialog;
}

export function openAlerts() {
	effect(() => {
		if (alerts.value.length) void loadAlerts().catch(() => {}); /* the title counts all the same */
	});
}

export function AlertsButton() {
	const on = alerts.value.length > 0;
	const Dialog = dialog.value;
	return (
		<>
			<button
				class="button alerts-button"
				data-weight="bare"
				type="button"
				title="A notification or a sound when an agent asks you"
				onClick={() => {
					alertsOpen.value = true;
					void loadAlerts().catch(() => {
						alertsOpen.value = false;
					});
				}}
			>
				Alerts <span class="quiet">{on ? "on" : "off"}</span>
			</button>
			{Dialog ? <Dialog /> : null}
		</>
	);
}

/* --- What is found by its words --- */

const found = signal<ComponentType<{ where: Where }> | null>(null);

export function Palette({ where }: { where: Where }) {
	useEffect(() => {
		if (palette.value && !found.value)
			import("./palette").then(
				({ default: loaded }) => {
					found.value = loaded;
				},
				() => {
					palette.value = "";
				},
			);
	}, [palette.value]);
	const Loaded = found.value;
	return Loaded ? <Loaded where={where} /> : null;
}
