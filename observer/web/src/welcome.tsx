/* The screens of a page with nothing to show: no token, no broker, no agent. */

import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { request } from "./api";
import { health, owner } from "./store";

const RELAY = "ws://127.0.0.1:7447"; /* what commands use unless told */

/* perch up attaches to what runs; the others are told where it is. */
const ways = (to: string) => [
	{
		title: "An agent",
		text: "Anything that speaks ACP: claude, codex, gemini, opencode. Start it in its project's folder.",
		command: "perch up --name claude -- claude-agent-acp",
	},
	{
		title: "An agent in your editor",
		text: "Put this where the editor has its agent command. The editor keeps answering permissions.",
		command: `perch proxy ${to}-- gemini --experimental-acp`,
	},
	{
		title: "Any command",
		text: "A build, a test run, a script. It behaves as before and exits with its own status.",
		command: `perch run ${to}-- make test`,
	},
];

/* No other machine reaches it. */
const isHere = (relay?: string | null) =>
	!relay || /^wss?:\/\/(127\.|localhost|\[::1\])/.test(relay);

/* So long the demo agent may take to show up; our choice. */
const DEMO_WAIT_MS = 15_000;
const demo = signal<"" | "asked" | "late" | Error>("");

export async function playDemo() {
	if (demo.value === "asked") return;
	demo.value = "asked";
	try {
		await request("/api/demo", {
			method: "POST",
			headers: { "Content-Type": "application/json" },
			body: "{}",
		});
		setTimeout(() => {
			demo.value = "late";
		}, DEMO_WAIT_MS);
	} catch (error) {
		demo.value = error as Error;
	}
}

function Demo() {
	const said = demo.value;
	return (
		<div class="demo">
			<button
				class="button"
				data-weight="filled"
				type="button"
				disabled={said === "asked"}
				onClick={() => void playDemo()}
			>
				Play the demo agent <kbd>P</kbd>
			</button>
			<p role="status">
				{said === "asked"
					? "It starts, and shows up here by itself."
					: said === "late"
						? "It did not show up. In a terminal, perch doctor says what is wrong."
						: said
							? `Not started: ${said.message}.`
							: "Scripted, on this machine, no account. It asks for one permission."}
			</p>
		</div>
	);
}

function Command({ text }: { text: string }) {
	const [said, setSaid] = useState("Copy");
	const copy = async () => {
		try {
			await navigator.clipboard.writeText(text);
			setSaid("Copied");
		} catch {
			setSaid("Select it"); /* the browser keeps its clipboard to itself */
		}
	};
	return (
		<div class="command">
			<code tabIndex={0}>{text}</code>
			<button
				class="button"
				type="button"
				data-copy
				onClick={() => void copy()}
				aria-label={`${said}: ${text}`}
			>
				{said}
			</button>
		</div>
	);
}

export function FirstRun() {
	const { words } = owner.value;
	const relay = health.value.relay?.url;
	return (
		<main class="first-run">
			<header>
				<h1>No agent yet</h1>
				<p>
					Start one in a terminal. It shows up here by itself, about a second
					after its first line.
				</p>
			</header>
			<ol class="ways">
				{ways(relay && relay !== RELAY ? `--relay ${relay} ` : "").map(({ title, text, command }) => (
					<li key={title}>
						<h2>{title}</h2>
						<p>{text}</p>
						<Command text={command} />
					</li>
				))}
			</ol>
			<Demo />
			{words ? (
				<section class="owner" aria-label="Your key">
					<h2>Your key</h2>
					<p class="words">{words}</p>
					<p>
						Another machine shows the same words when it has joined as yours, over
						a relay that both reach:
					</p>
					<Command
						text={`perch invite laptop${isHere(relay) ? " --relay wss://relay.example" : ""}`}
					/>
				</section>
			) : null}
		</main>
	);
}

export function copyNth(n: number) {
	document.querySelectorAll<HTMLButtonElement>("[data-copy]")[n - 1]?.click();
}

export function NoToken() {
	return (
		<main class="first-run">
			<header>
				<h1>This tab may not read your agents</h1>
				<p>
					The address that opens the page holds a token, and this one has none
					that is valid. In a terminal:
				</p>
			</header>
			<div class="ways">
				<Command text="perch open" />
			</div>
		</main>
	);
}
