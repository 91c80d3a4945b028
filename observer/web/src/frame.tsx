/* The bar on top: what runs, what needs you, and the health of the whole path. */

import { computed } from "@preact/signals";
import { clockTime, fullTime, moment, now, Step, Tick, utc } from "./clock";
import { offline } from "./offline";
import { agents, health, known, lanes, link, nameOf, stillHealth, tally, waiting } from "./store";
import { AlertsButton } from "./later";
import type { LaneState } from "./types";
import { nextTheme, themeName } from "./ui";
import { plural, roundAge, running } from "./words";

/* On a phone the word is for those who do not see the shape. */
function Count({
	n,
	of,
	word,
	title,
}: {
	n: number;
	of: LaneState;
	word: string;
	title: string;
}) {
	return n ? (
		<span class="state" data-state={of} title={title}>
			{n} <span class="word">{word}</span>
		</span>
	) : null;
}

function Tally() {
	const { working, stalled, failed } = tally.value;
	const needs = waiting.value;
	const some = lanes.ids.value.length > 0;
	return (
		<p class="tally quiet" role="status">
			<Count
				n={working}
				of="working"
				word="working"
				title="Agents whose turn is running"
			/>
			<Count
				n={stalled}
				of="stalled"
				word="stalled"
				title="Working, but a rule says: not getting on"
			/>
			<Count
				n={failed}
				of="failed"
				word="failed"
				title="Agents whose turn or process failed"
			/>
			<Count
				n={needs}
				of="needs-you"
				word={needs === 1 ? "needs you" : "need you"}
				title="Permissions that wait for your answer"
			/>
			{!known.value || working + stalled + failed + needs
				? null
				: some
					? "none working"
					: agents.ids.value.length
						? "no session yet"
						: "no agents"}
		</p>
	);
}

const STATE_WORDS = { missing: "not asked for yet", asked: "asked for", coming: "on their way", gone: "gone for good" };

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
	const { relay, missing, archive } = stillHealth.value;
	if (relay && relay.state !== "ready") {
		const { reason, retryAtMs, sinceMs } = relay;
		/* While it tries again it is as gone as before. */
		const gone = relay.state === "down" || !!reason;
		return (
			<b title={[relay.url, reason].filter(Boolean).join(": ")}>
				relay {gone ? "gone" : "connecting"}
				{gone && sinceMs ? (
					<>
						{" "}
						<Tick text={(ms) => running(ms - sinceMs)} />
					</>
				) : null}
				{gone ? (
					<span class="desk">
						, trying again{" "}
						{retryAtMs ? (
							<>
								in{" "}
								<Tick
									text={(ms) =>
										`${Math.max(0, Math.ceil((retryAtMs - ms) / 1000))} s`
									}
								/>
							</>
						) : (
							"now"
						)}
					</span>
				) : null}
				<span class="desk">{reason ? `: ${reason}` : ""}</span>
			</b>
		);
	}
	if (archive?.state === "failing")
		return (
			<b title={`What comes is shown, but not kept: ${archive.reason}`}>
				archive {archive.inMemory ? "in memory only" : "not written"}
				<span class="desk">: {archive.reason}</span>
			</b>
		);
	const gap = missing?.find(({ state }) => state !== "gone");
	if (gap)
		return (
			<b title="Frames that were numbered but are not here">
				{plural(gap.frames, "frame")} missing
				<span class="desk">
					{" "}
					from {nameOf(agents.still(gap.agent), gap.agent)},{" "}
					{STATE_WORDS[gap.state]}
				</span>
			</b>
		);
	return null;
}

/* In place of the health of a way that there is none of. */
function ReplayOf({ from, to }: { from: number; to: number }) {
	return (
		<p class="health" data-level="ok">
			<b>Replay</b>
			<span class="desk">
				{fullTime(from).slice(0, 24)} to {clockTime(to)}, nothing can be controlled
			</span>
		</p>
	);
}

/* What moves with every frame is set where it stands: the bar is not drawn again. */
const completeMs = computed(() => health.value.completeMs ?? 0);
const completeIso = computed(() => new Date(completeMs.value).toISOString());
const completeWords = computed(() => `${moment(completeMs.value)}${utc.value ? " UTC" : ""}`);
const completeTitle = computed(() => {
	const { gone } = stillHealth.value;
	return `Nothing that was sent before this moment is missing here${gone ? `, but for ${plural(gone, "frame")} gone for good` : ""}: ${fullTime(completeMs.value)}`;
});
const frameAge = (ms: number) => roundAge(ms - (health.value.frameAtMs ?? ms));

function Health() {
	if (offline.is) return <ReplayOf {...offline.is} />;
	const { relay, frameAtMs, completeMs: complete, gone, archive, missing } = stillHealth.value;
	const trouble = Trouble();
	const level =
		link.value.state === "gone" ||
		(relay && relay.state !== "ready") ||
		archive?.state === "failing" ||
		missing?.some(({ state }) => state !== "gone")
			? "warn"
			: "ok";
	return (
		<p class="health" data-level={level}>
			{trouble ?? (
				<>
					{relay?.rttMs != null ? (
						<span class="wide" title="Round trip to the relay and back">
							relay <b>{relay.rttMs ? `${relay.rttMs} ms` : "< 1 ms"}</b>
						</span>
					) : null}
					{frameAtMs ? (
						<span class="wide" title="Age of the newest frame of any agent">
							frame{" "}
							<b class="tick">
								<Step text={frameAge} />
							</b>
						</span>
					) : (
						<span title="Frames of any agent since the observer started">
							listening, <b>no frame yet</b>
						</span>
					)}
				</>
			)}
			{archive?.aside ? (
				<span
					class="wide"
					title={`The archive was broken and was moved to ${archive.aside}; what it had is asked for from the agents`}
				>
					<b>archive begun anew</b>
				</span>
			) : null}
			{complete ? (
				<span
					class={trouble ? "wide" : ""}
					title={completeTitle}
				>
					<span class="desk">complete through </span>
					<b>
						<time class="tick" data-utc={utc.value || undefined} dateTime={completeIso}>
							{completeWords}
						</time>
					</b>
					{gone ? (
						<span class="wide">, {plural(gone, "frame")} gone</span>
					) : null}
				</span>
			) : null}
		</p>
	);
}

export type ScreenName = "fleet" | "agent" | "timeline" | "report" | "search" | "self" | "none";

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
			<a
				href="#/search"
				aria-current={screen === "search" ? "page" : undefined}
				title="/ or g s"
			>
				Search
			</a>
			<a
				href="#/self"
				aria-current={screen === "self" ? "page" : undefined}
				title="g p: how this page, the broker and the harnesses do"
			>
				Self
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
			{screen === "none" || offline.is ? null : <AlertsButton />}
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
