/* One row of a transcript: when, what its time went into, what happened, how long it took. */

import { Component, type ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { Tick } from "./clock";
import { Link, Markdown } from "./markdown";
import { exact, readable } from "./plain";
import { Diff } from "./diff";
import { Output } from "./output";
import { Counts, Sentence, State, Time } from "./parts";
import { terminal } from "./sgr";
import { ask, Opened } from "./raw";
import { laneNow } from "./store";
import type { Part, RawLine, Row, RowOf } from "./types";
import { byteLength, bytes, plural, running, took, tokens, wordCount } from "./words";

/* Whether a fold is open outlives its DOM, which goes when the row leaves the view. */
const folds = new Map<string, boolean>();
const FOLDS_MAX = 5000;

function remember(id: string, open: boolean) {
	folds.delete(id);
	folds.set(id, open);
	if (folds.size > FOLDS_MAX) folds.delete(folds.keys().next().value!);
}

/* Something long, folded with its size. What it holds has no DOM until it is opened. */
function Fold({
	id,
	open,
	panel,
	summary,
	children,
}: {
	id: string;
	open?: boolean;
	panel?: boolean;
	summary: ComponentChildren;
	children: () => ComponentChildren;
}) {
	const [shown, setShown] = useState(() => {
		const first = folds.get(id) ?? open ?? false;
		/* What was open stays open when its row is done: nothing folds under a reader. */
		remember(id, first);
		return first;
	});
	return (
		<details
			class={panel ? "panel" : undefined}
			open={shown}
			onToggle={(event) => {
				const { open: now } = event.currentTarget;
				remember(id, now);
				setShown(now);
			}}
		>
			<summary class={panel ? "panel-head fold" : "entry-line fold"}>
				{summary}
			</summary>
			{shown ? children() : null}
		</details>
	);
}

/* The line a row came from, as the archive has it. */
function Source({ row }: { row: Row }) {
	const [line, setLine] = useState<RawLine | null>(null);
	const [state, setState] = useState("");
	const span = { lane: row.lane, from: row.pos, to: null };
	const show = async () => {
		setState("Asking for the event");
		try {
			const { lines } = await ask(span, row.pos, 1);
			if (lines[0]) setLine(lines[0]);
			else setState("The archive does not have it.");
		} catch (error) {
			setState(`${(error as Error).message}.`);
		}
	};
	if (line) return <Opened line={line} span={span} />;
	return (
		<p class="panel-foot">
			<span role="status">{state}</span>
			<button class="link" type="button" onClick={() => void show()}>
				Show the event
			</button>
		</p>
	);
}

const OPEN_DIFF_LINES = 60;
const lineCount = (text: string) =>
	text.split("\n").length - (text.endsWith("\n") ? 1 : 0);

function PartView({
	id,
	index,
	part,
	row,
	loud,
}: {
	id: string;
	index: number;
	part: Part;
	row: RowOf<"tool">;
	loud: boolean;
}) {
	switch (part.type) {
		case "diff": {
			const count =
				part.hunks?.reduce((sum, { lines }) => sum + lines.length, 0) ?? 0;
			return (
				<Fold
					panel
					id={id}
					open={count <= OPEN_DIFF_LINES}
					summary={
						!!row.object && part.path?.endsWith(row.object) ? (
							<span>
								Diff,{" "}
								{part.more
									? `+${(part.added ?? 0).toLocaleString("en")} −${(part.removed ?? 0).toLocaleString("en")} lines`
									: plural(count, "line")}
							</span>
						) : (
							<span class="sentence">
								<code>{exact(part.path ?? "")}</code>{" "}
								<Counts added={part.added} removed={part.removed} />
							</span>
						)
					}
				>
					{() => (
						<Diff
							part={part}
							index={index}
							agent={row.lane.slice(0, row.lane.indexOf("/"))}
							at={row.partsAt ?? null}
						/>
					)}
				</Fold>
			);
		}
		case "output": {
			if (!part.text.trim()) return null;
			const size = bytes(part.bytes ?? byteLength(part.text));
			return (
				<Fold
					panel
					id={id}
					open={loud}
					summary={
						<span>
							Output,{" "}
							{part.more
								? size
								: `${plural(lineCount(part.text), "line")}, ${size}`}
						</span>
					}
				>
					{() => (
						<Output
							part={part}
							index={index}
							agent={row.lane.slice(0, row.lane.indexOf("/"))}
							at={row.partsAt ?? null}
						/>
					)}
				</Fold>
			);
		}
		case "text": {
			if (!part.text.trim()) return null;
			const long = part.text.length > 600;
			if (!long && loud) return <Markdown text={part.text} />;
			return (
				<Fold
					panel
					id={id}
					open={loud}
					summary={<span>Answer, {plural(wordCount(part.text), "word")}</span>}
				>
					{() => <Markdown text={part.text} />}
				</Fold>
			);
		}
		case "terminal":
			return <p class="quiet">Terminal {exact(part.id)}</p>;
		case "image":
			return (
				<p class="quiet">
					Image, {exact(part.mime ?? "unknown")}
					{part.bytes ? `, ${bytes(part.bytes)}` : ""}
				</p>
			);
		case "link":
			return (
				<p>
					<Link href={part.uri} text={part.name || part.uri} />
				</p>
			);
		default:
			return null; /* a kind of part newer than this page */
	}
}

function duration(row: Row): ComponentChildren {
	if (row.end)
		return row.end - row.t >= 50 ? (
			<span class="number" title="How long it took">
				{took(row.end - row.t)}
			</span>
		) : null;
	return null;
}
const going = (row: Row, since = row.t) =>
	row.end || row.replay ? (
		duration(row)
	) : (
		<span class="number" title="How long it has been going on">
			<Tick text={(ms) => running(laneNow(row.lane, ms) - since)} />
		</span>
	);

function Tool({ row, asks }: { row: RowOf<"tool">; asks?: RowOf<"permission"> }) {
	const failed = row.status === "failed";
	const busy = row.status === "in_progress" || row.status === "pending";
	/* Its time is the owner's: it may not begin before it is allowed. */
	const waits = busy && row.time === "you";
	const parts = row.parts ?? [];
	const diffs = parts.filter((part) => part.type === "diff");
	const locations = row.locations ?? [];
	return (
		<>
			{asks ? (
				<Permission row={asks} />
			) : (
				<p class="entry-line">
					{failed ? (
						<State of="failed" />
					) : busy && !row.replay ? (
						<State of={waits ? "needs-you" : "working"} />
					) : null}
					<Sentence
						verb={row.verb || row.title || "Used a tool"}
						object={row.object}
						outcome={row.outcome}
					/>
					{diffs.length === 1 && !row.outcome ? (
						<span>
							<Counts added={diffs[0]!.added} removed={diffs[0]!.removed} />
						</span>
					) : null}
					{busy ? going(row) : duration(row)}
				</p>
			)}
			{locations.length > 1 ? (
				<p class="outcome quiet paths">{exact(locations.join(", "))}</p>
			) : null}
			{row.input &&
			row.kind !== "execute" &&
			row.kind !== "edit" &&
			row.kind !== "read" ? (
				<Fold
					panel
					id={`${row.id} input`}
					summary={<span>Arguments, {bytes(byteLength(row.input))}</span>}
				>
					{() => (
						<pre class="terminal" tabIndex={0}>
							{exact(pretty(row.input!))}
						</pre>
					)}
				</Fold>
			) : null}
			{parts.map((part, i) => (
				<PartView
					key={i}
					id={`${row.id} ${i}`}
					index={i}
					part={part}
					row={row}
					loud={failed || busy}
				/>
			))}
		</>
	);
}

function pretty(json: string): string {
	try {
		return JSON.stringify(JSON.parse(json), null, 2);
	} catch {
		return json; /* cut */
	}
}

function Permission({ row }: { row: RowOf<"permission"> }) {
	const option = row.options?.find(({ id }) => id === row.picked);
	/* What an agent calls its one time is no news; what it calls the others is. */
	const once = option
		? option.kind === "allow_once"
			? "once"
			: exact(`(${option.name})`)
		: undefined;
	const object = row.text || row.title;
	const verb = row.verb?.replace(/^wants to /, "") ?? "do this";
	const said = (words: string, outcome?: ComponentChildren) => (
		<p class="entry-line">
			<span class="sentence">
				<b>{object ? words : words.replace(/:$/, "")}</b>
				{object ? (
					<>
						{" "}
						<code>{exact(object)}</code>
					</>
				) : null}
				{outcome ? (
					<span class="outcome">
						{outcome === once || !object ? " " : " · "}
						{outcome}
					</span>
				) : null}
			</span>
			{row.waitedMs != null ? (
				<span class="number" title="How long it waited">
					{took(row.waitedMs)}
				</span>
			) : (
				duration(row)
			)}
		</p>
	);
	const reason =
		row.reason && row.reason !== "applied" ? readable(row.reason) : undefined;
	switch (row.state) {
		case "pending":
			return (
				<p class="entry-line">
					<State of="needs-you" />
					<span class="sentence">
						<b>Wants to {exact(verb)}</b>
						{object ? (
							<>
								{" "}
								<code>{exact(object)}</code>
							</>
						) : null}
					</span>
					{going(row)}
				</p>
			);
		case "allowed":
			return row.by === "you"
				? said("You allowed", once)
				: row.by === "editor"
					? said("Allowed in the editor:", once)
					: said("Allowed by a rule:", reason);
		case "denied":
			return row.by === "you"
				? said("You denied", reason)
				: row.by === "editor"
				? said("Denied in the editor:")
				: said(row.by === "policy" ? "Denied by a rule:" : "Denied:", reason);
		case "timed_out":
			return said("Denied, nobody answered in time:", reason);
		case "cancelled":
			return said("Withdrawn:", reason ?? "the turn was stopped");
		case "rejected":
			return said("Denied at once:", reason);
		case "uncertain":
			return said("Answered, whether it was applied is not known:", reason);
		case "over":
			return said(
				"Over without an answer:",
				reason ??
					(row.by === "restart" ? "the agent started again" : "the turn ended"),
			);
	}
}

function Turn({ row }: { row: RowOf<"turn"> }) {
	const words = row.text
		? readable(row.text)
		: row.state === "cancelled"
			? row.cancelledBy === "owner"
				? "Stopped by you"
				: "Turn cancelled"
			: row.state === "failed"
				? "Turn failed"
				: "Turn finished";
	const { usage } = row;
	const figures = [
		!row.text &&
		row.stopReason &&
		row.stopReason !== "end_turn" &&
		row.stopReason !== "cancelled"
			? row.stopReason.replaceAll("_", " ")
			: null,
		usage?.input != null && usage.output != null
			? `${tokens(usage.input)} tokens in, ${tokens(usage.output)} out`
			: null,
	]
		.filter(Boolean)
		.join(" · ");
	return (
		<p class="entry-line turn-end">
			{row.state === "failed" ? <State of="failed" /> : null}
			<span class="sentence">
				{words}
				{figures ? <span class="quiet"> · {figures}</span> : null}
			</span>
			{row.durationMs != null ? (
				<span class="number" title="How long the turn took">
					{took(row.durationMs)}
				</span>
			) : null}
		</p>
	);
}

function Gap({ row }: { row: RowOf<"gap"> }) {
	const count = row.frames?.reduce((sum, [a, b]) => sum + b - a + 1, 0) ?? 0;
	/* What is missing, and after the colon how it is with it. */
	const [, what, how] = /^([^:]*)(.*)$/s.exec(row.text ?? "")!;
	return (
		<p class="gap">
			<span>
				<b>{what ? readable(what) : plural(count, "frame")}</b>
				{how ? readable(how) : null}
			</span>
			{row.frames?.length ? (
				<span class="number desk" title="As the agent numbered them">
					frames{" "}
					{row.frames
						.slice(0, 3)
						.map(([a, b]) =>
							a === b
								? a.toLocaleString("en")
								: `${a.toLocaleString("en")}–${b.toLocaleString("en")}`,
						)
						.join(", ")}
					{row.frames.length > 3 ? " …" : ""}
				</span>
			) : null}
		</p>
	);
}

const PROMPT_SOURCES: Record<string, string> = {
	argument: "from its command line",
	editor: "from the editor",
	resumed: "from the session before",
};

function body(row: Row, asks?: Row): ComponentChildren {
	switch (row.type) {
		case "prompt":
			return (
				<div class="prompt" dir="auto">
					{readable(row.text)}
					{row.source && PROMPT_SOURCES[row.source] ? (
						<span class="origin quiet">{PROMPT_SOURCES[row.source]}</span>
					) : null}
				</div>
			);
		case "message":
			return (
				<>
					{row.role === "user" ? (
						<div class="prompt" dir="auto">
							{readable(row.text)}
						</div>
					) : (
						<Markdown text={row.text} />
					)}
					{row.bytes && row.bytes > byteLength(row.text) ? (
						<>
							<p class="quiet">The first part of {bytes(row.bytes)}</p>
							<Source row={row} />
						</>
					) : null}
				</>
			);
		case "thought":
			return (
				<Fold
					id={row.id}
					summary={`${row.open && !row.replay ? "Thinking" : row.end ? `Thought for ${took(row.end - row.t)}` : "Thought"}, ${plural(wordCount(row.text), "word")}`}
				>
					{() => (
						<div class="quiet thought">
							<Markdown text={row.text} />
						</div>
					)}
				</Fold>
			);
		case "plan": {
			const done = row.entries.filter(
				({ status }) => status === "completed",
			).length;
			const steps: Record<string, string> = {
				completed: "done",
				in_progress: "now",
			};
			return (
				<>
					<p class="entry-line">
						<span class="sentence">
							<b>Plan</b>{" "}
							<span class="outcome">
								{done} of {row.entries.length}
							</span>
						</span>
					</p>
					<ol class="plan">
						{row.entries.map((entry, i) => (
							<li key={i} data-step={steps[entry.status]}>
								<span>
									{readable(entry.text)}
									{entry.status === "completed" ? (
										<span class="hidden">, done</span>
									) : entry.status === "in_progress" ? (
										<span class="hidden">, under way</span>
									) : null}
								</span>
							</li>
						))}
					</ol>
				</>
			);
		}
		case "tool":
			return (
				<Tool row={row} asks={asks?.type === "permission" ? asks : undefined} />
			);
		case "permission":
			return <Permission row={row} />;
		case "turn":
			return <Turn row={row} />;
		case "output":
			return (
				<div class="panel">
					<pre class="terminal" tabIndex={0}>
						{terminal(row.text)}
					</pre>
					{row.suppressed || row.stream === "stderr" ? (
						<p class="panel-foot">
							<span>{row.stream === "stderr" ? "standard error" : ""}</span>
							<span>
								{row.suppressed
									? `${plural(row.suppressed, "line")} left out: too many a second`
									: ""}
							</span>
						</p>
					) : null}
				</div>
			);
		case "note":
			return (
				<p class="entry-line">
					{row.level === "error" ? <State of="failed" /> : null}
					<span class="sentence wrap">
						{readable(row.text)}
						{row.source ? (
							<span class="outcome"> · {exact(row.source)}</span>
						) : null}
					</span>
				</p>
			);
		case "lifecycle":
			return (
				<>
					<p class="entry-line">
						{row.level === "error" ? (
							<State of="failed" />
						) : row.level === "warn" ? (
							<State of="stalled" />
						) : null}
						<span class="sentence wrap">{readable(row.text)}</span>
					</p>
					{row.stderr ? (
						<div class="panel">
							<pre class="terminal" tabIndex={0}>
								{terminal(row.stderr)}
							</pre>
						</div>
					) : null}
				</>
			);
		case "error":
			return (
				<>
					<p class="entry-line">
						<State of="failed" />
						<span class="sentence wrap outcome">{readable(row.text)}</span>
					</p>
					{row.detail ? (
						<div class="panel">
							<pre class="terminal" tabIndex={0}>
								{terminal(row.detail)}
							</pre>
						</div>
					) : null}
				</>
			);
		case "gap":
			return <Gap row={row} />;
		case "raw":
			return (
				<Fold
					panel
					id={row.id}
					summary={
						<span>
							{exact(row.kind ?? "An event")},{" "}
							{bytes(row.bytes ?? byteLength(row.json))}
						</span>
					}
				>
					{() => (
						<>
							<pre class="terminal" tabIndex={0}>
								{exact(pretty(row.json))}
							</pre>
							{(row.bytes ?? 0) > byteLength(row.json) ? (
								<Source row={row} />
							) : null}
						</>
					)}
				</Fold>
			);
		default:
			return null; /* a kind of row newer than this page */
	}
}

export function failing(row: Row): boolean {
	return (
		row.type === "error" ||
		(row.type === "tool" && row.status === "failed") ||
		(row.type === "turn" && row.state === "failed") ||
		(row.type === "lifecycle" && row.level === "error")
	);
}

interface EntryProps {
	row: Row;
	/* What its row waits for, told with it. */
	asks?: Row | undefined;
	current: boolean;
}

/* A row that did not change is never drawn again: its nodes, and a selection in them, stay. */
export class Entry extends Component<EntryProps> {
	shouldComponentUpdate(next: EntryProps) {
		return (
			next.row !== this.props.row ||
			next.asks !== this.props.asks ||
			next.current !== this.props.current
		);
	}
	render({ row, asks, current }: EntryProps) {
		const kind =
			row.type === "prompt" || (row.type === "message" && row.role === "user")
				? " entry-prompt"
				: row.type === "gap"
					? " entry-gap"
					: "";
		return (
			<li
				class={`entry${kind}`}
				data-row={row.id}
				data-time={row.time ?? undefined}
				data-type={row.type}
				data-state={failing(row) ? "failed" : undefined}
				data-current={current || undefined}
			>
				<Time ms={row.t} class="entry-time" />
				<div class="entry-body">{body(row, asks)}</div>
			</li>
		);
	}
}
