/* Small things that several screens show. */

import type { ComponentChildren } from "preact";
import { clockTime, fullTime } from "./clock";
import { exact } from "./plain";
import type { DiffPart, LaneState } from "./types";

const WORDS: Record<LaneState, string> = {
	"needs-you": "needs you",
	working: "working",
	stalled: "stalled",
	failed: "failed",
	finished: "finished",
	idle: "idle",
	offline: "offline",
};

/* idle is drawn as finished: nothing runs, nothing is wrong. */
export const shape = (state: LaneState) => (state === "idle" ? "finished" : state);

/* Shape, colour and word: the word is for those who see neither. */
export function State({ of }: { of: LaneState }) {
	return (
		<span class="state" data-state={shape(of)}>
			<span class="hidden">{WORDS[of]}</span>
		</span>
	);
}

export function Time({ ms, class: name }: { ms: number; class?: string }) {
	return (
		<time class={name} dateTime={new Date(ms).toISOString()} title={fullTime(ms)}>
			{clockTime(ms)}
		</time>
	);
}

export function Counts({ added, removed }: { added?: number; removed?: number }) {
	return (
		<>
			<span class="plus">+{(added ?? 0).toLocaleString("en")}</span>{" "}
			<span class="minus">−{(removed ?? 0).toLocaleString("en")}</span>
		</>
	);
}

/* "+12 −3" in its two colours, anything else as it is. */
export function Outcome({ text }: { text: string }) {
	const counts = /^\+(\d+) [−-](\d+)$/.exec(text);
	if (counts) return <Counts added={Number(counts[1])} removed={Number(counts[2])} />;
	return <span class="outcome">{exact(text)}</span>;
}

/* "make test" in mono; what is no command, path or name stays prose. */
export function Sentence({
	verb,
	object,
	outcome,
}: {
	verb?: string | null;
	object?: string | null;
	outcome?: string | null;
}) {
	return (
		<span class="sentence">
			{verb ? <b>{exact(verb)}</b> : null}
			{object ? (
				<>
					{" "}
					<code>{exact(object)}</code>
				</>
			) : null}
			{outcome ? (
				<>
					{" "}
					<Outcome text={outcome} />
				</>
			) : null}
		</span>
	);
}

const LINE_MAX = 2000;
const cut = (line: string) =>
	line.length > LINE_MAX
		? `${line.slice(0, LINE_MAX)}… ${line.length - LINE_MAX} more characters`
		: line;

/* The part of two lines that differs, as [from, end of a, end of b]. */
function difference(a: string, b: string): [number, number, number] {
	let from = 0;
	while (from < a.length && from < b.length && a[from] === b[from]) from++;
	let endA = a.length;
	let endB = b.length;
	while (endA > from && endB > from && a[endA - 1] === b[endB - 1]) {
		endA--;
		endB--;
	}
	/* Not inside a surrogate pair. */
	if (from && /[\uD800-\uDBFF]/.test(a[from - 1]!)) from--;
	if (endA < a.length && /[\uDC00-\uDFFF]/.test(a[endA]!)) {
		endA++;
		endB++;
	}
	return [from, endA, endB];
}

export interface DiffLine {
	sign: string;
	text: string;
	old?: number;
	new?: number;
	mark?: [number, number];
}

export function readHunk({
	old,
	new: fresh,
	lines,
}: NonNullable<DiffPart["hunks"]>[number]): DiffLine[] {
	const out: DiffLine[] = lines.map((line) => {
		const sign = line[0] ?? " ";
		const text = cut(line.slice(1));
		if (sign === "-") return { sign, text, old: old++ };
		return sign === "+"
			? { sign, text, new: fresh++ }
			: { sign: " ", text, old: old++, new: fresh++ };
	});
	/* Runs of equally many removed and added lines are the same lines, changed. */
	for (let i = 0; i < out.length;) {
		let removed = i;
		while (out[removed]?.sign === "-") removed++;
		let added = removed;
		while (out[added]?.sign === "+") added++;
		const count = removed - i;
		for (let k = 0; k < count && count === added - removed; k++) {
			const [a, b] = [out[i + k]!, out[removed + k]!];
			const [from, endA, endB] = difference(a.text, b.text);
			/* Lines with little in common are not the same line. */
			if (from + a.text.length - endA >= a.text.trim().length / 3) {
				a.mark = [from, endA];
				b.mark = [from, endB];
			}
		}
		i = Math.max(added, i + 1);
	}
	return out;
}

export function marked({ sign, text, mark }: DiffLine): ComponentChildren {
	if (!mark || mark[0] === mark[1]) return exact(text);
	const inner = exact(text.slice(...mark));
	return (
		<>
			{exact(text.slice(0, mark[0]))}
			{sign === "-" ? <del>{inner}</del> : <ins>{inner}</ins>}
			{exact(text.slice(mark[1]))}
		</>
	);
}

export function DiffTable({ part }: { part: DiffPart }) {
	const words: Record<string, string> = { "-": "removed", "+": "added" };
	return (
		<table class="diff">
			<tbody>
				{part.hunks?.map((hunk, i) =>
					readHunk(hunk).map((line, k) => (
						<tr
							key={`${i} ${k}`}
							class={`${words[line.sign] ?? ""}${i && !k ? " hunk" : ""}`}
						>
							<td class="at">{line.old}</td>
							<td class="at">{line.new}</td>
							<td class="sign">
								{line.sign === "-" ? "−" : line.sign.trim()}
							</td>
							<td>{marked(line)}</td>
						</tr>
					)),
				)}
			</tbody>
		</table>
	);
}
