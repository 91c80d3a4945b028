/* What the owner says to an agent: prompts with their states, stop, mode and model. */

import { signal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { control, type ControlBody } from "./api";
import { now } from "./clock";
import { plain, readable } from "./plain";
import { agentOf, channelOf, controls, nameOf } from "./store";
import type { Agent, Choice, Control, Lane, Queued } from "./types";
import { notice } from "./ui";
import { narrow } from "./viewport";
import { ordinal } from "./words";

/* Drafts outlive a look at another agent. */
const drafts = new Map<string, string>();
const sending = signal(false);

/* Esc once asks, twice stops. */
const STOP_WITHIN_MS = 2000;
export const stopAsked = signal(0);
let stopTimer = 0;

/* How long the answer to a control stays in sight. */
const ANSWER_SHOWN_MS = 8000;

export async function ask(
	lane: Lane,
	body: Omit<ControlBody, "agent" | "channel">,
): Promise<boolean> {
	notice.value = "";
	try {
		await control({ agent: lane.agent, channel: lane.channel, ...body });
		return true;
	} catch (error) {
		notice.value = `Not sent: ${(error as Error).message}.`;
		return false;
	}
}

export const running = (lane: Lane) => lane.turn?.state === "running";

export function stopKey(lane: Lane) {
	if (!running(lane) || refusal(agentOf(lane), "approve")) return;
	clearTimeout(stopTimer);
	if (stopAsked.value) {
		stopAsked.value = 0;
		void ask(lane, { type: "cancel_turn" });
		return;
	}
	stopAsked.value = now.value;
	stopTimer = setTimeout(() => {
		stopAsked.value = 0;
	}, STOP_WITHIN_MS);
}

/* Why this agent takes no such control, or nothing. */
function refusal(agent: Agent | undefined, need: "approve" | "full"): string | null {
	if (!agent) return "This agent is not known yet.";
	const name = nameOf(agent, agent.id);
	if (agent.mode === "proxy")
		return `${name} is driven by its editor: prompt and stop it there.`;
	if (agent.mode === "run") return `${name} is a command: it takes no prompts.`;
	if (agent.control === "none" || (need === "full" && agent.control === "approve"))
		return `${name} takes ${agent.control === "none" ? "nothing" : "only answers and stops"} from here (--control ${agent.control}).`;
	return null;
}

function QueuedPrompt({ item }: { item: Queued }) {
	const bad = item.state === "refused" || item.state === "expired";
	const where = {
		sent: "sent, waiting for the relay",
		relayed: "relayed, waiting for its answer",
		queued: `${item.position ? `${ordinal(item.position)} in line` : "in line"}`,
		started: "",
		refused: "refused",
		expired: "not delivered in time",
	}[item.state];
	return (
		<li class="queued" data-prompt={item.state}>
			<span class="state" data-state={bad ? "failed" : "finished"}>
				{bad ? "Not taken" : item.state === "started" ? "Started" : "Queued"}
			</span>
			<span class="words">{readable(item.text)}</span>
			<span class="number" title="How far it has come">
				{where}
				{item.detail && item.detail !== item.state ? (
					<>: {readable(item.detail)}</>
				) : null}
			</span>
		</li>
	);
}

const ASKED: Record<string, string> = {
	cancel_turn: "Stop",
	release_queue: "Release",
	set_mode: "Mode",
	switch_model: "Model",
	fetch_body: "Fetch",
};
const FINE = new Set(["ok", "applied", "cancelled", "started", "switched", "sent"]);
/* A result in words where its own word would mislead: "sent" is said of a stop by the harness. */
const RESULTS: Record<string, string> = {
	sent: "passed on to the agent",
	no_active_turn: "no turn was running",
};

function Asked({ item, name }: { item: Control; name: string }) {
	const what = ASKED[item.type]!;
	const words = {
		sent: `${what} sent`,
		relayed: `${what} relayed, waiting for ${name}`,
		expired: `${what}: ${name} did not answer in time`,
		answered: `${what}: ${RESULTS[item.status ?? ""] ?? item.status?.replaceAll("_", " ") ?? "answered"}${item.detail ? `, ${item.detail}` : ""}`,
	}[item.state];
	const bad =
		item.state === "expired" ||
		(item.state === "answered" && !!item.status && !FINE.has(item.status));
	return <span class={bad ? "warning" : ""}>{readable(words)}</span>;
}

/* The newest control of each kind, while its answer is fresh. */
function Answers({ lane, name }: { lane: Lane; name: string }) {
	const newest = new Map<string, Control>();
	for (const item of controls.all())
		if (
			item.lane === lane.id &&
			item.type in ASKED &&
			(newest.get(item.type)?.atMs ?? 0) <= (item.atMs ?? 0)
		)
			newest.set(item.type, item);
	const shown = [...newest.values()].filter(
		({ state, atMs }) =>
			state === "sent" ||
			state === "relayed" ||
			(atMs ?? 0) > now.value - ANSWER_SHOWN_MS,
	);
	return (
		<p class="answers" role="status">
			{shown.map((item) => (
				<Asked key={item.requestId} item={item} name={name} />
			))}
			{notice.value ? <span class="warning">{notice.value}</span> : null}
			{stopAsked.value ? <span>Esc again to stop</span> : null}
		</p>
	);
}

/* A picker shows the value in force; what was asked for stands in the answers until it is. */
function Picker({
	label,
	choice,
	disabled,
	onPick,
}: {
	label: string;
	choice?: Choice | null;
	disabled: boolean;
	onPick: (id: string) => void;
}) {
	if (!choice?.available.length) return null;
	const offered = choice.available.some(({ id }) => id === choice.current);
	return (
		<span class="picker">
			<select
				class="button"
				data-weight="bare"
				aria-label={`${label} in force`}
				title={`${label} in force, as it says`}
				value={choice.current}
				disabled={disabled}
				onChange={(event) => {
					const asked = event.currentTarget.value;
					event.currentTarget.value = choice.current;
					onPick(asked);
				}}
			>
				{offered ? null : (
					<option value={choice.current}>{choice.current}</option>
				)}
				{choice.available.map(({ id, name }) => (
					<option key={id} value={id}>
						{name || id}
					</option>
				))}
			</select>
		</span>
	);
}

export function Pickers({ lane }: { lane: Lane }) {
	const disabled = !!refusal(agentOf(lane), "full");
	return (
		<>
			<Picker
				label="Model"
				choice={lane.models}
				disabled={disabled}
				onPick={(model) => void ask(lane, { type: "switch_model", model })}
			/>
			<Picker
				label="Mode"
				choice={lane.modes}
				disabled={disabled}
				onPick={(mode) => void ask(lane, { type: "set_mode", mode })}
			/>
		</>
	);
}

const mac = /Mac|iP(hone|ad)/.test(navigator.userAgent);

export function Composer({ lane, onSent }: { lane: Lane; onSent: () => void }) {
	const field = useRef<HTMLTextAreaElement>(null);
	const agent = agentOf(lane);
	const name = nameOf(agent, lane.agent);
	const noPrompt = refusal(agent, "full");
	const noStop = refusal(agent, "approve");
	useLayoutEffect(() => {
		field.current!.value = drafts.get(lane.id) ?? "";
		stopAsked.value = 0;
		notice.value = "";
	}, [lane.id]);
	const send = async () => {
		const text = field.current!.value.trim();
		if (!text || noPrompt || sending.value) return;
		sending.value = true;
		const sent = await ask(lane, { type: "prompt", text });
		sending.value = false;
		/* What was not taken stays in the field. */
		if (!sent) return;
		drafts.delete(lane.id);
		if (field.current) field.current.value = "";
		onSent();
	};
	/* A prompt that started is in the transcript; its turn over, it is no news here. */
	const queue = (lane.queue ?? []).filter(
		({ state }) => state !== "started" || running(lane),
	);
	const offline = agent && agent.online === false;
	return (
		<form
			class="composer"
			onSubmit={(event) => {
				event.preventDefault();
				void send();
			}}
		>
			{queue.length ? (
				<ul class="queue" aria-label="Prompts in line">
					{queue.map((item) => (
						<QueuedPrompt key={item.requestId} item={item} />
					))}
				</ul>
			) : null}
			{lane.held ? (
				<p class="queued held">
					<span class="state" data-state="stalled">
						Held
					</span>
					<span class="words">
						Its prompts wait since you stopped it. A new prompt starts them
						too.
					</span>
					<button
						class="link"
						type="button"
						onClick={() => void ask(lane, { type: "release_queue" })}
					>
						Release
					</button>
				</p>
			) : null}
			{agent?.needsLogin ? (
				<p class="queued">
					<span class="state" data-state="needs-you">
						Wants a login
					</span>
					<span class="words">{readable(agent.needsLogin.text ?? "")}</span>
				</p>
			) : null}
			<Answers lane={lane} name={name} />
			<div class="composer-box">
				<textarea
					ref={field}
					rows={1}
					disabled={!!noPrompt}
					aria-label={plain(`Prompt for ${name} in ${channelOf(lane)}`)}
					placeholder={
						noPrompt ??
						plain(
							offline
								? `${name} is offline: a prompt waits a minute for it`
								: running(lane) && !narrow.value
									? `Prompt ${name}; it waits its turn`
									: `Prompt ${name}`,
						)
					}
					onInput={(event) => drafts.set(lane.id, event.currentTarget.value)}
					onKeyDown={(event) => {
						if (event.key === "Enter" && (event.metaKey || event.ctrlKey)) {
							event.preventDefault();
							void send();
						}
					}}
				/>
				<div class="composer-tools">
					{narrow.value ? null : <Pickers lane={lane} />}
					<button
						class="button stop"
						data-weight="bare"
						type="button"
						disabled={!running(lane) || !!noStop}
						title={noStop ?? "Stops the turn and holds its queue"}
						onClick={() => void ask(lane, { type: "cancel_turn" })}
					>
						Stop <kbd>Esc</kbd>
						<kbd>Esc</kbd>
					</button>
					<button
						class="button send"
						type="submit"
						disabled={!!noPrompt || sending.value}
					>
						Send <kbd>{mac ? "⌘" : "Ctrl"} Enter</kbd>
					</button>
				</div>
			</div>
		</form>
	);
}
