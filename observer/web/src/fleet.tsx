/* One row for each agent slot and channel, in the order they matter. */

import { useEffect, useRef } from "preact/hooks";
import { clockTime, Tick } from "./clock";
import { exact, readable } from "./plain";
import { Outcome, shape, State } from "./parts";
import { routeTo } from "./session";
import { agentOf, agents, channelOf, groups, type Group, lanes, nameOf } from "./store";
import type { Lane, LaneState } from "./types";
import { fleetFocus } from "./ui";
import { age, capital, money, plural, running, tokens } from "./words";

const TITLES: [Group, string][] = [
	["needs-you", "Needs you"],
	["working", "Working"],
	["failed", "Failed"],
	["finished", "Finished"],
	["offline", "Offline"],
];
/* Frames come once a second; one that is this late is worth a colour while its agent works. */
const FRAME_LATE_MS = 20_000;

/* A text that runs in its lane's own words: waiting 0:42, 6 min ago, last seen 13:40:02. */
export function Since({ lane, short }: { lane: Lane; short?: boolean }) {
	const since = lane.sinceMs;
	if (!since) return null;
	switch (lane.state) {
		case "offline":
			return short ? (
				<Tick text={(ms) => age(ms - since)} />
			) : (
				<>last seen {clockTime(agentOf(lane)?.seenMs ?? lane.lastMs ?? since)}</>
			);
		case "finished":
		case "idle":
			return (
				<Tick
					text={(ms) =>
						`${age(ms - since).replace(/\.\d/, "")}${short ? "" : " ago"}`
					}
				/>
			);
		case "needs-you":
			return (
				<>
					{short ? "" : "waiting "}
					<Tick text={(ms) => running(ms - since)} />
				</>
			);
		default:
			return <Tick text={(ms) => running(ms - since)} />;
	}
}

/* Twelve strokes, five seconds each; the resting line shows where nothing came. */
function Spark({ lane }: { lane: Lane }) {
	const counts = lane.activity ?? [];
	const top = Math.max(4, ...counts);
	let busy = "";
	let rest = "";
	counts.forEach((count, i) => {
		const stroke = `M${i * 5 + 1.5} 18v-${count ? Math.max(2, Math.round((16 * count) / top)) : 1}`;
		if (count) busy += stroke;
		else rest += stroke;
	});
	return (
		<svg class="spark" viewBox="0 0 61 18" aria-hidden="true">
			<path class="rest" d={rest} />
			<path class={lane.state === "needs-you" ? "wait" : ""} d={busy} />
		</svg>
	);
}

const PROSE = new Set<LaneState>(["finished", "failed", "idle", "offline"]);
/* A line of a message, without the marks that would make it Markdown. */
const unmarked = (text: string) => text.replace(/\*\*|`|^#+ /g, "");

/* What an agent does is done to a command or a file; what it did last is said in its own words. */
function sentence(lane: Lane) {
	const { verb, object, outcome } = lane;
	if (!verb && !object && !outcome)
		return lane.state === "offline" ? "Gone without a word" : "Nothing yet";
	const prose = PROSE.has(lane.state) || verb === "Wrote";
	return (
		<>
			{verb ? readable(capital(verb)) : null}
			{object ? (
				prose ? (
					<>
						{verb ? ": " : ""}
						{readable(unmarked(object))}
					</>
				) : (
					<>
						{" "}
						<code>{exact(object)}</code>
					</>
				)
			) : null}
			{outcome ? (
				<>
					{" "}
					<Outcome text={outcome} />
				</>
			) : null}
		</>
	);
}

function Row({ id, focused }: { id: string; focused: boolean }) {
	const element = useRef<HTMLAnchorElement>(null);
	useEffect(() => {
		if (focused) element.current?.scrollIntoView({ block: "nearest" });
	}, [focused]);
	const lane = lanes.get(id);
	if (!lane) return null;
	const { lastMs, usage } = lane;
	const agent = agentOf(lane);
	const two =
		lane.state !== "finished" && lane.state !== "idle" && lane.state !== "offline";
	const used = usage?.used ?? usage?.input;
	const late = lane.state === "working" || lane.state === "stalled";
	const login = agent?.needsLogin?.text;
	return (
		<li>
			<a
				ref={element}
				class="fleet-row"
				data-lane={id}
				data-state={shape(lane.state)}
				data-focus={focused || undefined}
				href={routeTo(id)}
				onFocus={() => {
					fleetFocus.value = id;
				}}
			>
				<State of={lane.state} />
				<b class="who">{exact(nameOf(agent, lane.agent))}</b>
				<span class="where">{exact(channelOf(lane))}</span>
				<span class="what">
					<span class="sentence">
						{lane.stalled ? <>Stalled: {readable(lane.stalled)} · </> : null}
						{sentence(lane)}
					</span>
					{two && (login || lane.aim) ? (
						<span class="aim">{readable(login || lane.aim!)}</span>
					) : null}
				</span>
				<time class="since">
					<Since lane={lane} />
				</time>
				<Spark lane={lane} />
				<span class="frame-age right" title="Age of its newest event">
					{lastMs ? <Tick text={(ms) => age(ms - lastMs)} /> : "–"}
					{late && lastMs ? <Late lastMs={lastMs} /> : null}
				</span>
				<span class="number right" title="Tokens in its context">
					{used != null ? tokens(used) : "–"}
				</span>
				<span class="number right" title="Cost so far, as it says">
					{usage?.cost ? money(usage.cost) : "–"}
				</span>
			</a>
		</li>
	);
}

function Late({ lastMs }: { lastMs: number }) {
	return (
		<span class="late">
			<Tick text={(ms) => (ms - lastMs > FRAME_LATE_MS ? " late" : "")} />
		</span>
	);
}

function GroupOf({
	group,
	title,
	ids,
}: {
	group: Group;
	title: string;
	ids: readonly string[];
}) {
	const stalled =
		group === "working"
			? ids.filter((id) => lanes.get(id)?.state === "stalled").length
			: 0;
	return (
		<section aria-labelledby={`group-${group}`}>
			<h2 class="group-head" id={`group-${group}`}>
				{title}{" "}
				<span class="count">
					{ids.length}
					{stalled ? `, ${stalled} stalled` : ""}
				</span>
			</h2>
			<ol>
				{ids.map((id) => (
					<Row key={id} id={id} focused={id === fleetFocus.value} />
				))}
			</ol>
		</section>
	);
}

export function Fleet() {
	const machines = new Set(
		agents
			.all()
			.map(({ host }) => host)
			.filter(Boolean),
	).size;
	const sorted = groups.value;
	return (
		<main class="fleet">
			<h1 class="hidden">Fleet</h1>
			<div class="fleet-columns" aria-hidden="true">
				<span>
					{plural(agents.ids.value.length, "agent")}
					{machines ? ` on ${plural(machines, "machine")}` : ""}
				</span>
				<span class="right">since</span>
				<span>last min</span>
				<span class="right wide">frame</span>
				<span class="right wide">tokens</span>
				<span class="right wide">cost</span>
			</div>
			{sorted.size
				? null
				: agents.all().map((agent) => (
						<p key={agent.id} class="quiet waiting">
							{exact(nameOf(agent, agent.id))}:{" "}
							{agent.needsLogin
								? readable(agent.needsLogin.text ?? "wants a login")
								: "no session yet"}
						</p>
					))}
			{TITLES.map(([group, title]) => {
				const ids = sorted.get(group);
				return ids ? (
					<GroupOf key={group} group={group} title={title} ids={ids} />
				) : null;
			})}
		</main>
	);
}
