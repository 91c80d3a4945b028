/* All pending permissions of all agents, oldest first, outside every scroller. */

import { effect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { clockTime, now, Tick } from "./clock";
import { countUnseen, exact, plain } from "./plain";
import { Counts, DiffTable } from "./parts";
import { routeTo } from "./session";
import { agentOf, channelOf, lanes, nameOf, tray, waiting } from "./store";
import type { Card as CardData, Outcome } from "./types";
import {
	answerable,
	answersBy,
	chooseCard,
	denial,
	fetchBody,
	focusCard,
	foldTray,
	inOrder,
	pick,
	pickable,
	picks,
	trayFolded,
} from "./ui";
import { byteLength, bytes, plural, running } from "./words";

const OUTCOMES: Record<Outcome, string> = {
	applied: "applied",
	timed_out: "over: nobody answered in time, so it was denied",
	cancelled: "over: the turn was stopped",
	rejected: "over: denied by the harness at once",
	allowed: "over: allowed by a rule",
	allow_failed_closed: "the agent did not take the answer: denied",
	uncertain: "answered, but whether it was applied is not known",
	turn_ended: "over: the turn ended",
	restarted: "over: the agent started again",
};

/* A handful of places fit; a hundred would push the buttons out of sight. */
const LOCATIONS_MAX = 2;

/* sent, relayed, applied: only the last lets the card go. */
function Receipt({ card, name }: { card: CardData; name: string }) {
	const local = picks.value.get(card.id);
	const picked = card.picked ?? local?.option;
	const option = card.options.find(({ id }) => id === picked)?.name ?? "Answer";
	if (card.state === "over" && card.outcome !== "applied")
		return (
			<p class="receipt" role="status">
				{OUTCOMES[card.outcome ?? "uncertain"]}
			</p>
		);
	const step =
		card.state === "over"
			? 3
			: card.state === "relayed"
				? 2
				: card.state === "sent"
					? 1
					: 0;
	return (
		<ol class="receipt" aria-label={plain(option)} aria-live="polite">
			<li
				data-done={step > 0 || undefined}
				aria-current={step === 0 ? "step" : undefined}
			>
				{exact(option)} {step ? "sent" : "is being sent"}
			</li>
			{step > 0 ? (
				<li
					data-done={step > 1 || undefined}
					aria-current={step === 1 ? "step" : undefined}
				>
					{step > 1 ? "relayed" : "waiting for the relay"}
				</li>
			) : null}
			{step === 2 ? (
				<li aria-current="step">waiting for {name} to apply it</li>
			) : null}
			{step === 3 ? <li data-done>applied</li> : null}
		</ol>
	);
}

function Notes({ card, name }: { card: CardData; name: string }) {
	const text = card.text ?? "";
	const unseen = countUnseen(text);
	const size = card.bytes ?? byteLength(text);
	const ready = card.bodyReady !== false;
	const cutBy = card.trimmed ? "trimmed" : card.redacted ? "redacted" : null;
	const failed = picks.value.get(card.id)?.failed;
	return (
		<p class="card-note">
			{size ? <span title="How long the text of it is">{bytes(size)}</span> : null}
			{unseen ? (
				<span class="warning">
					{plural(unseen, "character")} that {unseen === 1 ? "does" : "do"} not
					show
				</span>
			) : null}
			{cutBy && !ready ? (
				<span class="warning">Came {cutBy}: fetch it whole to allow it.</span>
			) : null}
			{cutBy && ready ? <span>Came {cutBy}; this is the whole of it.</span> : null}
			{!card.actionable ? (
				<span class="warning">
					{agentOf(card)?.mode === "proxy"
						? "Answer in your editor."
						: `${name} takes no answer from here.`}
				</span>
			) : null}
			{failed ? (
				<span class="warning" role="alert">
					Not sent: {failed}.
				</span>
			) : null}
			{card.locations?.slice(0, LOCATIONS_MAX).map((path) => (
				<span key={path}>in {exact(path)}</span>
			))}
			{(card.locations?.length ?? 0) > LOCATIONS_MAX ? (
				<span>and {card.locations!.length - LOCATIONS_MAX} more places</span>
			) : null}
		</p>
	);
}

function Card({ card, focused }: { card: CardData; focused: boolean }) {
	const element = useRef<HTMLElement>(null);
	const { askedMs, deadlineMs } = card;
	useEffect(
		() =>
			effect(() => {
				const share = deadlineMs
					? (deadlineMs - now.value) / (deadlineMs - askedMs)
					: 1;
				element.current?.style.setProperty(
					"--left",
					Math.max(0, Math.min(1, share)).toFixed(3),
				);
			}),
		[askedMs, deadlineMs],
	);
	useEffect(() => {
		if (focused)
			element.current?.scrollIntoView({ block: "nearest", inline: "nearest" });
	}, [focused]);
	const agent = agentOf(card);
	const name = nameOf(agent, card.agent);
	const lane = lanes.still(card.lane);
	const options = inOrder(card.options);
	const local = picks.value.get(card.id);
	const open = answerable(card) && (!local || local.failed !== undefined);
	const deny = denial(card.options);
	const verb = card.verb || "asks for permission";
	return (
		<article
			ref={element}
			class="card"
			data-card={card.id}
			data-focus={focused || undefined}
			data-over={card.state === "over" || undefined}
			aria-label={plain(`${name} ${verb}${open ? "" : "; answered"}`)}
			onFocusIn={() => chooseCard(card.id)}
			onPointerDown={() => chooseCard(card.id)}
		>
			<header class="card-head">
				<span
					class="state"
					data-state={card.state === "over" ? "finished" : "needs-you"}
				>
					<b>{exact(name)}</b>
				</span>
				<span class="where quiet">{lane ? exact(channelOf(lane)) : ""}</span>
				<span class="verb">{exact(verb)}</span>
				{card.state === "over" ? null : (
					<time
						title={`Asked ${clockTime(askedMs)}${deadlineMs ? `, denied by itself at ${clockTime(deadlineMs)}` : ""}`}
					>
						<span class="desk">
							waiting <Tick text={(ms) => running(ms - askedMs)} />
						</span>
						{deadlineMs ? (
							<>
								<span class="desk"> · </span>
								<Tick text={(ms) => `${running(deadlineMs - ms)} left`} />
							</>
						) : null}
					</time>
				)}
			</header>
			<div
				class="card-body"
				tabIndex={0}
				role="group"
				aria-label="What it asks for"
			>
				{card.text || !card.diffs?.length ? (
					<pre>{exact(card.text || card.title || "It says nothing more.")}</pre>
				) : null}
				{card.diffs?.map((diff, i) => (
					<div key={i}>
						<pre>
							{exact(diff.path ?? "")}{" "}
							<Counts added={diff.added} removed={diff.removed} />
						</pre>
						<DiffTable part={diff} />
						{diff.more ? <p class="quiet more">and more lines</p> : null}
					</div>
				))}
			</div>
			<Notes card={card} name={name} />
			<div class="card-options">
				{open ? (
					options.map((option, i) => {
						const first = option.kind === "allow_once" && i === 0;
						const key = first
							? "A"
							: option === deny
								? "D"
								: i < 9
									? String(i + 1)
									: null;
						return (
							<button
								key={option.id}
								class="button"
								type="button"
								data-weight={
									focused && first && pickable(card, option)
										? "filled"
										: undefined
								}
								disabled={!pickable(card, option)}
								onClick={() => void pick(card, option)}
							>
								{exact(option.name)}
								{focused && key && answersBy(key) ? <kbd>{key}</kbd> : null}
							</button>
						);
					})
				) : card.actionable || card.state !== "pending" ? (
					<Receipt card={card} name={name} />
				) : null}
				{open && card.bodyReady === false ? (
					<button
						class="button"
						type="button"
						onClick={() => void fetchBody(card)}
					>
						Fetch
					</button>
				) : null}
				<a
					class="button"
					data-weight="bare"
					href={routeTo(card.lane, card.row)}
					onClick={() => chooseCard(card.id)}
				>
					Open{focused ? <kbd>O</kbd> : null}
				</a>
			</div>
		</article>
	);
}

export function Tray() {
	const shown = tray.value;
	const count = waiting.value;
	if (!shown.length) return <div class="hidden" role="status" />;
	const label = count
		? `${plural(count, "permission")} ${count === 1 ? "needs" : "need"} you`
		: "Permissions, all answered";
	/* What is answered stays a while for its receipt: it waits no more. */
	const first = shown.find(({ state }) => state !== "over") ?? shown[0]!;
	if (trayFolded.value)
		return (
			<section class="tray" data-folded aria-label={label}>
				<span class="state" data-state={count ? "needs-you" : "finished"}>
					<b>{exact(nameOf(agentOf(first), first.agent))}</b>
				</span>
				<span class="what">
					{exact(first.verb ?? "")}{" "}
					<code>{exact(first.text ?? first.title ?? "")}</code>
				</span>
				{count ? (
					<time title="How long the oldest has waited">
						<Tick text={(ms) => running(ms - first.askedMs)} />
					</time>
				) : (
					<span class="quiet">answered</span>
				)}
				{count > 1 ? <span class="quiet">and {count - 1} more</span> : null}
				<button
					class="button"
					type="button"
					onClick={() => {
						foldTray(false);
					}}
				>
					Unfold <kbd>T</kbd>
				</button>
			</section>
		);
	return (
		<section class="tray" aria-label={label}>
			{shown.map((card) => (
				<Card key={card.id} card={card} focused={card.id === focusCard.value} />
			))}
		</section>
	);
}
