/* The bar on top: what runs, what needs you, and the health of the whole path. */

import { clockTime, fullTime, now, Tick, utc } from "./clock";
import { agents, health, known, lanes, link, nameOf, tally, waiting } from "./store";
import { nextTheme, themeName } from "./ui";
import { age, plural, running } from "./words";

function Tally() {
	const { working, stalled, failed } = tally.value;
	const needs = waiting.value;
	if (known.value && !lanes.ids.value.length)
		return (
			<p class="tally quiet" role="status">
				{agents.ids.value.length ? "no session yet" : "no agents"}
			</p>
		);
	return (
		<p class="tally" role="status">
			<span class="state" data-state="working" title="Agents whose turn is running">
				{working}
				<span class="desk">working</span>
				<span class="hidden"> working</span>
			</span>
			{stalled ? (
				<span
					class="state"
					data-state="stalled"
					title="Working, but a rule says: not getting on"
				>
					{stalled}
					<span class="desk">stalled</span>
				</span>
			) : null}
			{failed ? (
				<span
					class="state"
					data-state="failed"
					title="Agents whose turn or process failed"
				>
					{failed}
					<span class="desk">failed</span>
				</span>
			) : null}
			{needs ? (
				<span
					class="state"
					data-state="needs-you"
					title="Permissions that wait for your answer"
				>
					{needs}
					<span class="desk">{needs === 1 ? "needs you" : "need you"}</span>
				</span>
			) : null}
		</p>
	);
}

const STATE_WORDS = { asked: "asked for", coming: "on their way", gone: "gone for good" };

/* What is wrong with the path, or nothing. */
function Trouble() {
	const way = link.value;
	if (way.state === "gone")
		return (
			<b title="This page reads from perch observer on your machine">
				broker gone <Tick text={() => running(Date.now() - way.sinceMs)} />
				<span class="desk">
					, trying again in{" "}
					<Tick
						text={() =>
							`${Math.max(0, Math.ceil((now.value && way.retryAtMs - Date.now()) / 1000))} s`
						}
					/>
				</span>
			</b>
		);
	if (way.state === "connecting" && !known.value) return <span>asking the broker</span>;
	const { relay, missing } = health.value;
	if (relay && relay.state !== "ready") {
		const { reason, retryAtMs } = relay;
		return (
			<b title={[relay.url, reason].filter(Boolean).join(": ")}>
				relay {relay.state === "down" ? "gone" : "connecting"}
				<span class="desk">{reason ? `: ${reason}` : ""}</span>
				{retryAtMs ? (
					<span class="desk">
						, trying again in{" "}
						<Tick
							text={(ms) =>
								`${Math.max(0, Math.ceil((retryAtMs - ms) / 1000))} s`
							}
						/>
					</span>
				) : null}
			</b>
		);
	}
	const gap = missing?.find(({ state }) => state !== "gone");
	if (gap)
		return (
			<b title="Frames that were numbered but are not here">
				{plural(gap.frames, "frame")} missing
				<span class="desk">
					{" "}
					from {nameOf(agents.get(gap.agent), gap.agent)},{" "}
					{STATE_WORDS[gap.state]}
				</span>
			</b>
		);
	return null;
}

function Health() {
	const { relay, frameAtMs, completeMs } = health.value;
	const trouble = Trouble();
	const level =
		link.value.state === "gone" ||
		(relay && relay.state !== "ready") ||
		health.value.missing?.some(({ state }) => state !== "gone")
			? "warn"
			: "ok";
	return (
		<p class="health" data-level={level}>
			{trouble ?? (
				<>
					{relay?.rttMs != null ? (
						<span class="wide" title="Round trip to the relay and back">
							relay <b>{relay.rttMs} ms</b>
						</span>
					) : null}
					{frameAtMs ? (
						<span class="wide" title="Age of the newest frame of any agent">
							frame{" "}
							<b>
								<Tick text={(ms) => age(ms - frameAtMs)} />
							</b>
						</span>
					) : (
						<span title="Frames of any agent since the observer started">
							listening, <b>no frame yet</b>
						</span>
					)}
				</>
			)}
			{completeMs ? (
				<span
					class={trouble ? "wide" : ""}
					title={`Nothing that was sent before this moment is missing here: ${fullTime(completeMs)}`}
				>
					<span class="desk">complete through </span>
					<b>
						<time dateTime={new Date(completeMs).toISOString()}>
							{clockTime(completeMs)}
							{utc.value ? " UTC" : ""}
						</time>
					</b>
				</span>
			) : null}
		</p>
	);
}

export type ScreenName = "fleet" | "agent" | "timeline" | "report" | "none";

/* aria-current: this screen, or the one that it belongs to. */
function Screens({ screen }: { screen: ScreenName }) {
	return (
		<nav class="screens" aria-label="Screens">
			<a
				href="#/"
				aria-current={
					screen === "fleet" ? "page" : screen === "agent" ? "true" : undefined
				}
				title="g f"
			>
				Fleet
			</a>
			<a
				href="#/timeline"
				aria-current={screen === "timeline" ? "page" : undefined}
				title="g t"
			>
				Timeline
			</a>
			<a
				href="#/report"
				aria-current={screen === "report" ? "page" : undefined}
				title="g r"
			>
				Report
			</a>
		</nav>
	);
}

export function Frame({ screen }: { screen: ScreenName }) {
	return (
		<header class="frame">
			<a class="brand" href="#/" aria-label="perch: the fleet">
				perch
			</a>
			{screen === "none" ? (
				<span class="health" />
			) : (
				<>
					<Tally />
					<Screens screen={screen} />
					<Health />
				</>
			)}
			<button
				class="button wide"
				data-weight="bare"
				type="button"
				title="Theme: the system's, light or dark"
				onClick={nextTheme}
			>
				{themeName}
			</button>
		</header>
	);
}
