/* Full text over the whole archive, all agents. */

import { batch, computed, signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { getJson } from "./api";
import { clockTime, fullTime, utc } from "./clock";
import { learnNames, type Names } from "./names";
import { exact, readable } from "./plain";
import { keepQuery, route, routeTo } from "./session";
import { Asker, LaneName } from "./times";
import type { Row } from "./types";
import { screenKeys } from "./ui";
import { plural } from "./words";

interface Hit extends Names {
	id: string;
	lane: string;
	row: string;
	pos: string;
	t: number;
	type: Row["type"];
	title?: string;
	/* Text, match, text, match… */
	snippet: string[];
}
interface Answer {
	hits: Hit[];
	more: boolean;
	before?: string;
	indexing: boolean;
	incomplete?: boolean;
}

/* So long nothing is typed before it is asked for. */
const REST_MS = 200;
const PAGE = 50;

const TYPES: Partial<Record<Row["type"], string>> = {
	prompt: "Prompt",
	message: "Message",
	thought: "Thought",
	plan: "Plan",
	tool: "Tool",
	permission: "Permission",
	turn: "Turn",
	output: "Output",
	note: "Note",
	lifecycle: "Agent",
	error: "Error",
	raw: "Raw",
};
/* What people and models write; the rest is commands, paths and output. */
const PROSE = new Set<Row["type"]>(["prompt", "message", "thought", "plan", "note"]);

/* --- What is asked and found; it outlives the screen, so that "back" finds it as it was --- */

const text = signal("");
const answer = signal<(Answer & { of: string }) | null>(null);
const failed = signal("");
const asking = signal(false);
/* The hit that was opened, or that the keys stand on. */
let current: string | null = null;
let timer = 0;

const asker = new Asker<Answer>((error) =>
	batch(() => {
		failed.value = error.message;
		asking.value = false;
	}),
);

function ask(words: string, before?: string) {
	const query = new URLSearchParams({ limit: String(PAGE) });
	if (before) query.set("before", before);
	asking.value = true;
	asker.ask(
		/* A plus would be one: encoded by hand. */
		() => getJson<Answer>(`/api/search?q=${encodeURIComponent(words)}&${query}`),
		(found) =>
			batch(() => {
				for (const hit of found.hits) learnNames(hit.lane, hit);
				const had = before ? (answer.value?.hits ?? []) : [];
				answer.value = { ...found, hits: [...had, ...found.hits], of: words };
				failed.value = "";
				asking.value = false;
			}),
	);
}

/* What stands in the address was meant: the next words are a step on, and "back" leads here. */
let settled = true;

function look(words: string, settle = false) {
	clearTimeout(timer);
	const was = new URLSearchParams(location.hash.split("?")[1]).get("q") ?? "";
	if (words !== was) {
		keepQuery(
			"search",
			new URLSearchParams(words ? { q: words } : {}),
			settled && was !== "",
		);
		settled = false;
	}
	settled ||= settle;
	if (words.trim()) return ask(words);
	asker.forget();
	batch(() => {
		answer.value = null;
		failed.value = "";
		asking.value = false;
	});
}

function type(words: string) {
	text.value = words;
	clearTimeout(timer);
	timer = setTimeout(() => look(words), words.trim() ? REST_MS : 0);
}

/* --- Groups: what one agent did on one day, as long as no other comes between --- */

const day = computed(
	() =>
		new Intl.DateTimeFormat("en-GB", {
			weekday: "short",
			day: "numeric",
			month: "short",
			year: "numeric",
			...(utc.value ? { timeZone: "UTC" } : {}),
		}),
);

interface GroupOf {
	lane: string;
	day: string;
	hits: Hit[];
}
function grouped(hits: readonly Hit[]): GroupOf[] {
	const groups: GroupOf[] = [];
	for (const hit of hits) {
		const on = day.value.format(hit.t);
		const last = groups.at(-1);
		if (last?.lane === hit.lane && last.day === on) last.hits.push(hit);
		else groups.push({ lane: hit.lane, day: on, hits: [hit] });
	}
	return groups;
}

function Snippet({ hit }: { hit: Hit }) {
	const show = PROSE.has(hit.type) ? readable : exact;
	const pieces: ComponentChildren[] = hit.snippet.map((piece, i) =>
		i % 2 ? <mark key={i}>{show(piece)}</mark> : show(piece),
	);
	return (
		<span class={PROSE.has(hit.type) ? "hit-text" : "hit-text hit-code"}>
			{hit.title ? <span class="hit-title">{exact(hit.title)} … </span> : null}
			{pieces}
		</span>
	);
}

function HitLine({ hit }: { hit: Hit }) {
	return (
		<li>
			<a
				class="hit"
				href={routeTo(hit.lane, hit.row, hit.pos)}
				data-hit={hit.id}
				onFocus={() => {
					current = hit.id;
				}}
				onClick={() => {
					current = hit.id;
					settled = true;
				}}
			>
				<time dateTime={new Date(hit.t).toISOString()} title={fullTime(hit.t)}>
					{clockTime(hit.t)}
				</time>
				<span class="hit-type">{TYPES[hit.type] ?? hit.type}</span>
				<Snippet hit={hit} />
			</a>
		</li>
	);
}

function Hits({ hits }: { hits: readonly Hit[] }) {
	return (
		<>
			{grouped(hits).map((group) => (
				<section key={group.hits[0]!.id}>
					<h2 class="group-head">
						<LaneName id={group.lane} />
						<span class="count" title="The day of these hits">
							{group.day}
						</span>
					</h2>
					<ol>
						{group.hits.map((hit) => (
							<HitLine key={hit.id} hit={hit} />
						))}
					</ol>
				</section>
			))}
		</>
	);
}

/* --- Sentences --- */

/* The last word, if it is one that could go on. */
const beginning = (words: string) => /(?:^|\s)([^\s"*:]+)$/.exec(words)?.[1];

function Nothing({ words }: { words: string }) {
	const word = beginning(words);
	return (
		<p class="quiet">
			Nothing has all of these words.{" "}
			{word ? (
				<button
					class="link"
					type="button"
					onClick={() => {
						text.value = `${words}*`;
						look(text.value, true);
					}}
				>
					Also find words that begin with {exact(word)}
				</button>
			) : null}
		</p>
	);
}

const WAYS: [string, string][] = [
	["rate limit", "rows that have both words"],
	['"rate limit"', "these words in a row"],
	["limit*", "words that begin so"],
	["agent:claude", "what this agent did"],
	["kind:tool", "tool calls; prompt, message, thought, output, error…"],
	["since:7d", "of the last seven days; 12h, or 2026-11-30T08:00:00Z"],
];

function Ways() {
	return (
		<dl class="search-ways">
			{WAYS.map(([words, meaning]) => (
				<div key={words}>
					<dt>
						<code>{words}</code>
					</dt>
					<dd>{meaning}</dd>
				</div>
			))}
		</dl>
	);
}

function Said() {
	const found = answer.value;
	if (!text.value.trim()) return <>What any agent said, thought, ran or printed.</>;
	if (!found) return <>{failed.value ? "" : "Searching"}</>;
	const count = plural(found.hits.length, "hit");
	return (
		<>
			{found.more
				? `The ${found.hits.length} newest hits; there are more`
				: found.hits.length
					? count
					: "No hit"}
			{found.indexing
				? ". What is older is still being indexed, so there may be more soon"
				: ""}
			{found.incomplete
				? ". It took too long and was ended: say more words, or since:7d"
				: ""}
		</>
	);
}

/* --- Keys --- */

const links = () => [...document.querySelectorAll<HTMLElement>(".search .hit")];

function move(by: number) {
	const all = links();
	const at = all.indexOf(document.activeElement as HTMLElement);
	const next = at < 0 ? (by > 0 ? 0 : all.length - 1) : at + by;
	if (next < 0) return document.querySelector<HTMLElement>(".search .field")?.focus();
	all[Math.min(next, all.length - 1)]?.focus();
}

function takeKey(_event: KeyboardEvent, key: string): boolean {
	if (key === "/") {
		const field = document.querySelector<HTMLInputElement>(".search .field");
		field?.focus();
		field?.select();
	} else if (key === "j" || key === "ArrowDown") {
		move(1);
	} else if (key === "k" || key === "ArrowUp") {
		move(-1);
	} else {
		return false;
	}
	return true;
}

/* A keyboard that comes up by itself hides what was found. */
const isTouch = () => matchMedia("(pointer: coarse)").matches;

export function SearchScreen({ query }: { query: string }) {
	const at = route.value;
	const field = useRef<HTMLInputElement>(null);
	useLayoutEffect(() => {
		screenKeys.take = takeKey;
		return () => {
			screenKeys.take = null;
			clearTimeout(timer);
		};
	}, []);
	/* Another address: a link, "back", or the first time. */
	useLayoutEffect(() => {
		const words = new URLSearchParams(query).get("q") ?? "";
		settled = true;
		if (words !== text.peek() || answer.peek()?.of !== words) {
			text.value = words;
			if (words.trim()) ask(words);
			else look("");
		}
		const opened = links().find(({ dataset }) => dataset.hit === current);
		if (opened) opened.focus();
		else if (!isTouch()) field.current?.focus();
	}, [at]);
	const found = answer.value;
	return (
		<main class="search" data-asked={asker.asked} data-dropped={asker.dropped}>
			<header class="search-head">
				<h1>Search</h1>
				<input
					ref={field}
					class="field"
					type="search"
					aria-label="Search everything"
					placeholder="Words, &quot;words in a row&quot;, begin*"
					autocomplete="off"
					spellcheck={false}
					maxLength={1000}
					value={text.value}
					onInput={(event) => type(event.currentTarget.value)}
					onKeyDown={(event) => {
						if (event.isComposing) return;
						if (event.key === "Enter") look(text.value, true);
						else if (event.key === "ArrowDown") move(1);
						else if (event.key === "Escape") event.currentTarget.blur();
						else return;
						event.preventDefault();
					}}
				/>
			</header>
			<p class="quiet search-said" role="status">
				<Said />
			</p>
			{failed.value ? (
				<p class="warning" role="alert">
					Not searched: {failed.value}.{" "}
					<button class="link" type="button" onClick={() => look(text.value)}>
						Try again
					</button>
				</p>
			) : null}
			{!text.value.trim() ? <Ways /> : null}
			<div class="search-hits" aria-busy={asking.value}>
				{found ? <Hits hits={found.hits} /> : null}
				{found && !found.hits.length && !failed.value ? (
					<Nothing words={found.of} />
				) : null}
				{found?.more ? (
					<button
						class="button"
						type="button"
						disabled={asking.value}
						onClick={() => ask(found.of, found.before)}
					>
						Earlier hits
					</button>
				) : null}
			</div>
		</main>
	);
}
