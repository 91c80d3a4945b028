/* The story zoom: one sentence for a row, or for rows that join. */

import { Component } from "preact";
import { Tick } from "./clock";
import { failing } from "./entry";
import { Outcome, State, Time } from "./parts";
import { exact, readable } from "./plain";
import { laneNow } from "./store";
import { tell, type Told } from "./story";
import type { Row } from "./types";
import { running, took, unmarked } from "./words";

/* Prompts, permissions and the agent's own words are what a story is read for. */
const LOUD = new Set(["prompt", "message", "permission"]);

/* In Markdown. */
const SAID = new Set(["message", "thought"]);

function glyph(rows: readonly Row[]) {
	const last = rows[rows.length - 1]!;
	if (failing(last)) return <State of="failed" />;
	if (going(last))
		return (
			<State
				of={last.type === "permission" || last.time === "you" ? "needs-you" : "working"}
			/>
		);
	return null;
}

const going = (row: Row) =>
	row.type === "permission"
		? row.state === "pending"
		: row.type === "tool" &&
			!row.replay &&
			(row.status === "in_progress" || row.status === "pending");

function Words({ told, said }: { told: Told; said: boolean }) {
	const prose = told.text ? readable(said ? unmarked(told.text) : told.text) : null;
	return (
		<span class="sentence">
			{told.verb ? <b>{exact(told.verb)}</b> : null}
			{told.verb ? " " : null}
			{told.many ? (
				exact(told.many)
			) : (
				<>
					{told.object ? <code>{exact(told.object)}</code> : null}
					{told.object && prose ? " " : null}
					{prose}
					{told.rows > 1 ? `, ${told.rows} times` : null}
				</>
			)}
			{told.outcome ? (
				<>
					{told.added >= 0 ? " " : ": "}
					<Outcome text={told.outcome} />
				</>
			) : null}
		</span>
	);
}

interface Props {
	rows: readonly Row[];
	current: boolean;
}

/* Drawn again only when what it tells changes: its nodes, and a selection in them, stay. */
export class Story extends Component<Props> {
	shouldComponentUpdate({ rows, current }: Props) {
		const was = this.props.rows;
		return (
			current !== this.props.current ||
			rows.length !== was.length ||
			rows.some((row, i) => row !== was[i])
		);
	}
	render({ rows, current }: Props) {
		const row = rows[0]!;
		const last = rows[rows.length - 1]!;
		const end = last.end ?? null;
		return (
			<li
				class={`entry entry-story${row.type === "gap" ? " entry-gap" : ""}`}
				data-row={row.id}
				data-time={row.time ?? undefined}
				data-type={last.type}
				data-loud={LOUD.has(last.type) || undefined}
				data-state={failing(last) ? "failed" : undefined}
				data-current={current || undefined}
			>
				<Time ms={row.t} class="entry-time" />
				<div class="entry-body">
					<p class="entry-line">
						{glyph(rows)}
						<Words told={tell(rows)} said={SAID.has(row.type)} />
						{going(last) ? (
							<span class="number" title="How long it has been going on">
								<Tick text={(ms) => running(laneNow(row.lane, ms) - last.t)} />
							</span>
						) : end && end - row.t >= 50 ? (
							<span class="number" title="How long it took">
								{took(end - row.t)}
							</span>
						) : null}
					</p>
				</div>
			</li>
		);
	}
}
