/* The screens of a page with nothing to show: no token, no broker, no agent. */

import { useState } from "preact/hooks";
import { owner } from "./store";

const WAYS = [
	{
		title: "An agent",
		text: "Anything that speaks ACP: claude, codex, gemini, opencode. Start it in its project's folder.",
		command: "perch up --name claude -- claude-agent-acp",
	},
	{
		title: "An agent with a task",
		text: "It works on the prompt and exits. You still answer its permissions here.",
		command: 'perch agent --prompt "Run the tests" -- opencode acp',
	},
	{
		title: "The demo agent",
		text: "Scripted, on this machine, no account. It asks for one permission.",
		command: "perch up --demo",
	},
];

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
				{WAYS.map(({ title, text, command }) => (
					<li key={title}>
						<h2>{title}</h2>
						<p>{text}</p>
						<Command text={command} />
					</li>
				))}
			</ol>
			{words ? (
				<section class="owner" aria-label="Your key">
					<h2>Your key</h2>
					<p class="words">{words}</p>
					<p>
						Another machine shows the same words when it has joined as yours.
					</p>
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
