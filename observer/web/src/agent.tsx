/* One agent in one channel: the others at the left, its transcript, what is true now. */

import { Fragment } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { effect, untracked } from "@preact/signals";
import { clockTime, moment, Tick } from "./clock";
import { Composer, Pickers, stopKey } from "./composer";
import { Since } from "./fleet";
import { offline } from "./offline";
import { exact, plain, readable } from "./plain";
import { Counts, shape, State } from "./parts";
import { type LaneRows, rowsOf, showRows } from "./rows";
import { route, routeTo } from "./session";
import { agentOf, agents, channelOf, channelWords, known, laneNow, laneOrder, lanes, nameOf } from "./store";
import { Transcript, type View, viewOf } from "./transcript";
import type { Lane, RowOf } from "./types";
import { reader } from "./ui";
import { narrow } from "./viewport";
import { nextZoom, setZoom, type Zoom, zoom, ZOOMS } from "./zoom";
import { age, money, running, tokens, took } from "./words";

/* How far back a link to one row is looked for, in pages. */
const FIND_PAGES = 10;

function Others({ current }: { current: string }) {
	return (
		<nav class="others" aria-label="Agents">
			{laneOrder.value.map((id) => (
				<Other key={id} id={id} current={id === current} />
			))}
		</nav>
	);
}

function Other({ id, current }: { id: string; current: boolean }) {
	const lane = lanes.still(id);
	if (!lane) return null;
	return (
		<a href={routeTo(id)} aria-current={current || undefined}>
			<State of={lane.state} />
			<b>{exact(nameOf(agentOf(lane), lane.agent))}</b>
			<span class="where">{exact(channelOf(lane))}</span>
			<time title="How long it has been so">
				<Since lane={lane} short />
			</time>
		</a>
	);
}

function StateWords({ lane }: { lane: Lane }) {
	const words = {
		"needs-you": "waiting for you",
		working: "working",
		stalled: lane.stalled ? `stalled: ${lane.stalled}` : "stalled",
		failed: "failed",
		finished: "finished",
		idle: "idle",
		offline: "offline",
	}[lane.state];
	return (
		<span class="state desk" data-state={shape(lane.state)} role="status">
			{readable(words)}{" "}
			{lane.state === "offline" ? null : (
				<time aria-hidden="true" title="How long it has been so">
					<Since lane={lane} short />
				</time>
			)}
		</span>
	);
}

/* A share of a whole, set on the element: the page has no inline styles. */
function Share({
	of,
	name,
	children,
	...rest
}: {
	of: number;
	name: "span" | "div";
	children?: never;
	class?: string;
	role?: "img";
	"data-time"?: string;
	"aria-label"?: string;
}) {
	const element = useRef<HTMLElement>(null);
	useEffect(() => element.current?.style.setProperty("--share", String(of)), [of]);
	return name === "span" ? (
		<span ref={element as never} {...rest} />
	) : (
		<div ref={element as never} {...rest} />
	);
}

const ZOOM_WORDS: Record<Zoom, [string, string]> = {
	story: ["Story", "One sentence a row"],
	detail: ["Detail", "Messages, diffs, output"],
	raw: ["Raw", "The lines as they were sent, either way"],
};

function Zooms() {
	return (
		<div class="choice" role="group" aria-label="Zoom">
			{ZOOMS.map((of) => (
				<button
					key={of}
					type="button"
					title={`${ZOOM_WORDS[of][1]} (z)`}
					aria-pressed={zoom.value === of}
					onClick={() => setZoom(of)}
				>
					{ZOOM_WORDS[of][0]}
				</button>
			))}
		</div>
	);
}

const KINDS = [
	["model", "Model"],
	["tool", "Tools"],
	["you", "You"],
	["idle", "Idle"],
] as const;

const SPENT = {
	model: "While the model thought and wrote",
	tool: "While tools ran",
	you: "While it waited for you",
	idle: "While nothing went on",
};

function TurnTimes({ lane }: { lane: Lane }) {
	const turn = lanes.get(lane.id)?.turn;
	if (!turn) return null;
	const times = turn.timeMs ?? {};
	const all = KINDS.reduce((sum, [key]) => sum + (times[key] ?? 0), 0);
	const shown = KINDS.filter(([key]) => key !== "idle" || (times.idle ?? 0) > 0);
	return (
		<section>
			<h2>
				{turn.state === "running" ? "This turn" : "Last turn"}{" "}
				<span class="number" title="When it began, and how long it has run">
					{turn.startedMs ? (
						<>
							since {clockTime(turn.startedMs)}
							{turn.state === "running" ? (
								<>
									,{" "}
									<Tick text={(ms) => running(laneNow(lane.id, ms) - turn.startedMs!)} />
								</>
							) : (
								""
							)}
						</>
					) : (
						""
					)}
				</span>
			</h2>
			{all ? (
				<>
					<div
						class="bar"
						role="img"
						aria-label={shown
							.map(([key, word]) => `${word} ${running(times[key] ?? 0)}`)
							.join(", ")}
					>
						{shown.map(([key]) => (
							<Share
								key={key}
								name="span"
								data-time={key}
								of={times[key] ?? 0}
							/>
						))}
					</div>
					<ul class="legend">
						{shown.map(([key, word]) => (
							<li key={key}>
								<span class="swatch" data-time={key} />
								{word}
								<span class="number" title={SPENT[key]}>
									{running(times[key] ?? 0)}
								</span>
								<span class="number" title="Its share of the turn">
									{Math.round((100 * (times[key] ?? 0)) / all)} %
								</span>
							</li>
						))}
					</ul>
				</>
			) : null}
		</section>
	);
}

const TURNS_MAX = 8;

/* The turns that the rows here tell of, newest first. */
function Turns({ rows }: { rows: LaneRows }) {
	void rows.version.value;
	const ends = new Map<string, RowOf<"turn">>();
	const turns: RowOf<"prompt">[] = [];
	for (let i = rows.list.length; i-- > 0 && turns.length < TURNS_MAX;) {
		const row = rows.list[i]!;
		if (row.type === "turn" && row.turn) ends.set(row.turn, row);
		if (row.type === "prompt" && row.turn && row.text) turns.push(row);
	}
	if (!turns.length) return null;
	return (
		<section>
			<h2>
				Turns{" "}
				<span class="number" title="Of the rows that are here">
					{turns.length}
					{turns.length === TURNS_MAX ? " newest" : ""}
				</span>
			</h2>
			<dl class="facts">
				{turns.map((row) => {
					const end = ends.get(row.turn!);
					return (
						<Fragment key={row.id}>
							<dt>
								{clockTime(row.t).slice(0, 5)}{" "}
								<a class="quiet" href={routeTo(rows.lane, row.id)}>
									{readable(firstLine(row.text!))}
								</a>
							</dt>
							<dd class="number">
								{end ? (
									took(end.durationMs ?? end.t - row.t)
								) : (
									<>
										<Tick text={(ms) => running(laneNow(row.lane, ms) - row.t)} />, open
									</>
								)}
							</dd>
						</Fragment>
					);
				})}
			</dl>
		</section>
	);
}

const firstLine = (text: string) => text.trim().split("\n", 1)[0]!.slice(0, 200);

function Aside({ lane }: { lane: Lane }) {
	const agent = agentOf(lane);
	const { usage, files } = lane;
	const login = agent?.needsLogin;
	return (
		<aside class="aside" id="now" aria-label="Now">
			{login ? (
				<section class="login">
					<h2>Wants a login</h2>
					{login.text ? <p>{readable(login.text)}</p> : null}
					{login.methods?.map(({ id, name, description }) => (
						<p key={id}>
							<b>{readable(name || id)}</b>{" "}
							{description ? readable(description) : ""}
						</p>
					))}
				</section>
			) : null}
			{narrow.value && !offline.is && (lane.models?.available.length || lane.modes?.available.length) ? (
				/* On a phone, where the composer has no room for them. */
				<section>
					<h2>Model and mode</h2>
					<p class="pickers">
						<Pickers lane={lane} />
					</p>
				</section>
			) : null}
			<TurnTimes lane={lane} />
			{usage && (usage.used != null || usage.input != null || usage.cost) ? (
				<section>
					<h2>
						Context{" "}
						<span class="number" title="Tokens in it, and how many it takes">
							{usage.used != null
								? `${tokens(usage.used)}${usage.size ? ` of ${tokens(usage.size)}` : ""}`
								: ""}
						</span>
					</h2>
					{usage.used != null && usage.size ? (
						<Share
							name="div"
							class="meter"
							role="img"
							of={Math.min(1, usage.used / usage.size)}
							aria-label={`${Math.round((100 * usage.used) / usage.size)} percent`}
						/>
					) : null}
					<dl class="facts">
						{usage.input != null ? (
							<>
								<dt>In, out</dt>
								<dd class="number">
									{tokens(usage.input)}, {tokens(usage.output ?? 0)}
								</dd>
							</>
						) : null}
						{usage.cost ? (
							<>
								<dt>Cost</dt>
								<dd class="number">{money(usage.cost)}</dd>
							</>
						) : null}
					</dl>
				</section>
			) : null}
			{files?.length ? (
				<section>
					<h2>
						Changed files{" "}
						<span class="number" title="That its edits of this session name">
							{files.length}
						</span>
					</h2>
					<ul class="files">
						{files.slice(0, 40).map((file) => (
							<li key={file.path}>
								<code title={plain(file.path)}>{exact(file.path)}</code>
								<span class="number" title="Lines added and removed">
									<Counts added={file.added} removed={file.removed} />
								</span>
							</li>
						))}
					</ul>
				</section>
			) : null}
			<Turns rows={rowsOf(lane.id)} />
			<section>
				<h2>Session</h2>
				<dl class="facts">
					{lane.title ? (
						<>
							<dt>Title</dt>
							<dd class="cut">{readable(lane.title)}</dd>
						</>
					) : null}
					<dt>Machine</dt>
					<dd>
						{agent?.host ? exact(agent.host) : "unknown"}
						{lane.slot != null ? `, slot ${lane.slot}` : ""}
					</dd>
					{agent?.npub ? (
						<>
							<dt>Key</dt>
							<dd>
								<code title={agent.npub}>
									{agent.npub.slice(0, 7)}…{agent.npub.slice(-3)}
								</code>
							</dd>
						</>
					) : null}
					{agent?.control ? (
						<>
							<dt>Control</dt>
							<dd>{agent.control}</dd>
						</>
					) : null}
					{agent?.permissions ? (
						<>
							<dt>Permissions</dt>
							<dd>{agent.permissions}</dd>
						</>
					) : null}
					{agent?.foreign ? (
						<>
							<dt>Feed</dt>
							<dd>foreign, no completeness</dd>
						</>
					) : null}
					{agent?.missing ? (
						<>
							<dt>Missing</dt>
							<dd class="number">{agent.missing} frames</dd>
						</>
					) : null}
					{agent?.gone ? (
						<>
							<dt>Gone for good</dt>
							<dd class="number">{agent.gone} frames</dd>
						</>
					) : null}
					{agent?.completeMs ? (
						<>
							<dt>Complete through</dt>
							<dd class="number">
								<Tick text={() => moment(agents.get(lane.agent)?.completeMs ?? 0)} />
							</dd>
						</>
					) : null}
					{agent?.seenMs ? (
						<>
							<dt>Last frame</dt>
							<dd class="number">
								<Tick text={(ms) => `${age(ms - (agents.get(lane.agent)?.seenMs ?? ms))} ago`} />
							</dd>
						</>
					) : null}
				</dl>
			</section>
		</aside>
	);
}

export function AgentScreen(_: { query: string }) {
	const at = route.value;
	if (at.screen !== "agent") return null;
	if (lanes.still(at.lane)) return <Opened key={at.lane} id={at.lane} row={at.row} pos={at.pos} />;
	return known.value ? (
		<Archived key={at.lane} id={at.lane} row={at.row} pos={at.pos} />
	) : (
		<main class="absent">
			<h1>Asking the broker</h1>
		</main>
	);
}

interface At {
	id: string;
	row: string | null;
	pos: string | null;
}

/* A start knows the newest lanes again; the archive has what the others did. */
function Archived(at: At) {
	const rows = rowsOf(at.id);
	void rows.version.value;
	if (rows.list.length) return <Opened {...at} />;
	const { value: state } = rows.state;
	return (
		<main class="absent">
			<h1>{state === "loading" ? "Looking in the archive" : "No such agent here"}</h1>
			{state === "loading" ? null : (
				<p>
					{state === "failed"
						? `Not looked for: ${rows.reason}. `
						: "It may have been forgotten. "}
					<a class="link" href="#/">
						To the fleet
					</a>
				</p>
			)}
		</main>
	);
}

/* Its lane above the others. */
const inTimeline = (id: string) => `#/timeline?${new URLSearchParams({ pin: id })}`;

/* Unfolds what the current row has folded; of a story, tells it in detail. */
function openRow(view: View) {
	if (zoom.value === "story") return setZoom("detail");
	[...document.querySelectorAll<HTMLElement>("[data-row]")]
		.find((element) => element.dataset.row === view.lit?.id)
		?.querySelector<HTMLElement>("summary, button.link")
		?.click();
}

/* Only once the stream's snapshot is here: rows asked for before it could miss what came between. */
function Opened({ id, row, pos }: At) {
	const lane = lanes.still(id);
	const rows = rowsOf(id);
	const view = viewOf(rows);
	useLayoutEffect(() => {
		showRows(id);
		reader.current = {
			move: (by) => view.move(by),
			newest: () => view.toNewest(),
			open: () => openRow(view),
			zoom: nextZoom,
			timeline: () => {
				location.hash = inTimeline(id);
			},
			stop: () => {
				const now = lanes.get(id);
				if (now) stopKey(now);
			},
		};
		return () => {
			showRows(null);
			reader.current = null;
		};
	}, [id, view]);
	useEffect(() => {
		if (!row) return;
		let pages = 0;
		let done = false;
		let reached = !pos;
		/* A row that is not here yet is looked for further back. */
		const look = () => {
			const found = rows.get(row);
			if (found) {
				view.current.value = row;
				view.show(found, 80);
			}
			done =
				!!found ||
				(rows.state.value === "ready" &&
					reached &&
					(!rows.more || pages >= (pos ? 0 : FIND_PAGES)));
			if (done || rows.state.value !== "ready") return;
			if (reached) {
				pages++;
				void rows.older();
			} else {
				reached = true;
				void rows.reach(pos!);
			}
		};
		return effect(() => {
			void rows.version.value;
			if (!done) untracked(look);
		});
	}, [view, row, pos]);
	const key = id.slice(0, id.indexOf("/"));
	const name = nameOf(agents.get(key), key);
	const channel = channelWords(lane, id);
	const [now, setNow] = useState(false);
	return (
		<main class="agent" data-now={now || undefined}>
			<Others current={id} />
			<header class="agent-head">
				<a
					class="button back"
					data-weight="bare"
					href="#/"
					aria-label="Back to the fleet"
				>
					‹
				</a>
				<h1>{exact(name)}</h1>
				<span class="quiet where">{exact(channel)}</span>
				{lane ? (
					<StateWords lane={lane} />
				) : (
					<span
						class="state desk"
						data-state="offline"
						title="It is not among the newest, which the fleet has"
					>
						in the archive
					</span>
				)}
				{lane ? (
					<button
						class="button now-button"
						data-weight="bare"
						type="button"
						title="Turn, context, files and session"
						aria-expanded={now}
						aria-controls="now"
						onClick={() => setNow(!now)}
					>
						Now
					</button>
				) : null}
				<Zooms />
				<a class="button desk" data-weight="bare" href={inTimeline(id)}>
					In timeline <kbd>L</kbd>
				</a>
			</header>
			<Transcript
				key={id}
				view={view}
				label={plain(`Transcript of ${name} in ${channel}`)}
			/>
			{offline.is || !lane ? null : (
				<Composer lane={lane} onSent={() => view.toNewest()} />
			)}
			{lane ? <Aside lane={lane} /> : null}
		</main>
	);
}
