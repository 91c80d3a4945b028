/* One row for each agent slot and channel, in the order they matter. */

import { computed } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { calm, fullTime, moment, Step, Tick } from "./clock";
import { exact, plain, readable } from "./plain";
import { Outcome, shape, State } from "./parts";
import { routeTo } from "./session";
import { agentOf, agents, brokerNow, channelOf, groups, type Group, lanes, nameOf } from "./store";
import type { Lane } from "./types";
import { fleetFocus } from "./ui";
import { age, capital, money, plural, roundAge, running, tokens, unmarked } from "./words";

const TITLES: [Group, string][] = [
	["needs-you", "Needs you"],
	["working", "Working"],
	["failed", "Failed"],
	["finished", "Finished"],
	["offline", "Offline"],
];
/* Frames come once a second; one that is this late is worth a colour while its agent works. */
const FRAME_LATE_MS = 20_000;

/* A text that runs in its lane's own words: waiting 0:42, 6 min ago, last seen 13:40:02. By the
 * second only where somebody waits. */
export function Since({ lane, short }: { lane: Lane; short?: boolean }) {
	const since = lane.sinceMs;
	if (!since) return null;
	switch (lane.state) {
		case "offline":
			return short ? (
				<Step text={(ms) => age(ms - since)} />
			) : (
				<Step
					text={() =>
						`last seen ${moment(agents.get(lane.agent)?.seenMs ?? lane.lastMs ?? since)}`
					}
				/>
			);
		case "finished":
		case "idle":
			return (
				<Step
					text={(ms) =>
						`${roundAge(ms - since)}${short ? "" : " ago"}`
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
			return <Step text={(ms) => running(ms - since)} />;
	}
}

/* Sixty strokes, ten seconds each; the resting line shows where nothing came, the
 * amber one where you are waited for. */
const STROKE_MS = 10_000;
const stroke = computed(() => Math.floor(calm.value / STROKE_MS));
/* Those that a lane has counted, moved on to now. */
function recent({ activity = [], activityMs }: Lane): number[] {
	const passed = activityMs ? Math.max(0, stroke.value - Math.floor(activityMs / STROKE_MS)) : 0;
	return [...activity.slice(passed), ...Array<number>(Math.min(passed, activity.length)).fill(0)];
}
function strokes(lane: Lane | undefined) {
	const counts = lane ? recent(lane) : [];
	const top = Math.max(4, ...counts);
	const waits =
		lane?.state === "needs-you" && lane.sinceMs
			? counts.length - Math.ceil((brokerNow() - lane.sinceMs) / STROKE_MS)
			: counts.length;
	const d = { busy: "", rest: "", wait: "" };
	counts.forEach((count, i) => {
		const at = `M${i * 2 + 0.5} 18v-`;
		/* Always the same, for the others cover it. */
		d.rest += `${at}1`;
		if (i >= waits) d.wait += `${at}5`;
		else if (count) d.busy += `${at}${Math.max(2, Math.round((16 * count) / top))}`;
	});
	return d;
}
function Spark({ id }: { id: string }) {
	const [rest, busy, wait] = useMemo(() => {
		const d = computed(() => strokes(lanes.get(id)));
		return (["rest", "busy", "wait"] as const).map((of) => computed(() => d.value[of]));
	}, [id]);
	return (
		<span class="spark-cell">
			<svg class="spark" viewBox="0 0 121 18" aria-hidden="true">
				<path class="rest" d={rest} />
				<path d={busy} />
				<path class="wait" d={wait} />
			</svg>
		</span>
	);
}

/* Of what a broker says these are about words, not about a command or a file. */
const PROSE = new Set(["Wrote", "Finished", "Stopped", "Failed", "Crashed", "Ended"]);

/* What an agent does is done to a command or a file; what it did last is said in its own words. */
function sentence(lane: Lane) {
	const { verb, object, outcome } = lane;
	if (!verb && !object && !outcome)
		return lane.state === "offline" ? "Gone without a word" : "Nothing yet";
	const prose = PROSE.has(verb ?? "");
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
					{verb && !object && /^[\w"'‘“]/.test(outcome) && !lane.verb?.startsWith("Plan") ? ": " : " "}
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
	/* Its lane moved to another group, or the reader came back: the focus was on it. */
	useEffect(() => {
		if (focused && document.activeElement === document.body)
			element.current?.focus({ preventScroll: true });
	}, []);
	const lane = lanes.still(id);
	if (!lane) return null;
	const { usage } = lane;
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
				<b class="who" title={plain(nameOf(agent, lane.agent))}>
					{exact(nameOf(agent, lane.agent))}
				</b>
				<span class="where" title={plain(channelOf(lane))}>
					{exact(channelOf(lane))}
				</span>
				<span class="what">
					<span class="sentence">
						{lane.stalled ? <>Stalled: {readable(lane.stalled)} · </> : null}
						{sentence(lane)}
					</span>
					{two && (login || lane.aim) ? (
						<span class="aim">{readable(login || lane.aim!)}</span>
					) : null}
				</span>
				<time
					class="since"
					title={lane.sinceMs ? `In this state since ${fullTime(lane.sinceMs)}` : ""}
				>
					<span class="tick">
						<Since lane={lane} />
					</span>
				</time>
				<Spark id={id} />
				<span class="frame-age right" title="Age of its newest event">
					<span class="tick">
						<FrameAge id={id} late={late} />
					</span>
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

/* Its newest event comes with every frame: the row is not drawn again for it. */
function FrameAge({ id, late }: { id: string; late: boolean }) {
	const [old, word] = useMemo(() => {
		const since = (ms: number) => ms - (lanes.get(id)?.lastMs ?? ms);
		return [
			(ms: number) => (lanes.get(id)?.lastMs ? roundAge(since(ms)) : "–"),
			(ms: number) => (since(ms) > FRAME_LATE_MS ? " late" : ""),
		] as const;
	}, [id]);
	return (
		<>
			<Step text={old} />
			{late ? (
				<span class="late">
					<Step text={word} />
				</span>
			) : null}
		</>
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
			? ids.filter((id) => lanes.still(id)?.state === "stalled").length
			: 0;
	return (
		<section aria-labelledby={`group-${group}`}>
			<h2 class="group-head" id={`group-${group}`}>
				{title}{" "}
				<span class="count" title="Channels in this state">
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
			.stills()
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
				<span>last 10 min</span>
				<span class="right wide">frame</span>
				<span class="right wide">tokens</span>
				<span class="right wide">cost</span>
			</div>
			{sorted.size
				? null
				: agents.stills().map((agent) => (
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
