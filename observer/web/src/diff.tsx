/* A diff as its row shows it, and beyond: inline or side by side, page by page, and the new text
 * to copy. The broker has compared; here it is only laid out, some hundred lines at a time. */

import { signal } from "@preact/signals";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { getJson } from "./api";
import { DiffTable, type DiffLine, marked, readHunk } from "./parts";
import type { DiffPart } from "./types";
import { bytes } from "./words";

const PAGE = 500;
/* Two columns of code want that much; with less than the other nobody reads them. */
const SIDE_PX = 1000;
const SIDE_LEAST_PX = 560;

/* "inline", "side", or "": by the width there is. */
const KEY = "perch.diff";
const layout = signal(localStorage.getItem(KEY) ?? "");
function setLayout(to: string) {
	layout.value = to;
	localStorage.setItem(KEY, to);
}

type Pair = [DiffLine | null, DiffLine | null];

/* Removed lines beside those that took their place. */
function pairs(lines: readonly DiffLine[]): Pair[] {
	const out: Pair[] = [];
	for (let i = 0; i < lines.length;) {
		if (lines[i]!.sign === " ") {
			out.push([lines[i]!, lines[i]!]);
			i++;
			continue;
		}
		const start = i;
		while (lines[i] && lines[i]!.sign !== " ") i++;
		const removed = lines.slice(start, i).filter(({ sign }) => sign === "-");
		const added = lines.slice(start, i).filter(({ sign }) => sign === "+");
		for (let k = 0; k < Math.max(removed.length, added.length); k++)
			out.push([removed[k] ?? null, added[k] ?? null]);
	}
	return out;
}

const CLASS: Record<string, string> = { "-": "removed", "+": "added", " ": "" };

function Half({ line, at }: { line: DiffLine | null; at: "old" | "new" }) {
	const name = line ? CLASS[line.sign]! : "nothing";
	return (
		<>
			<td class={`at ${name}`}>{line?.[at]}</td>
			<td class={`sign ${name}`}>{line ? SIGNS[line.sign] : ""}</td>
			<td class={name}>{line ? marked(line) : null}</td>
		</>
	);
}
const SIGNS: Record<string, string> = { "-": "−", "+": "+", " ": "" };

function SideBySide({ part }: { part: DiffPart }) {
	return (
		<table class="diff side">
			<tbody>
				{part.hunks?.map((hunk, i) =>
					pairs(readHunk(hunk)).map(([old, fresh], k) => (
						<tr key={`${i} ${k}`} class={i && !k ? "hunk" : ""}>
							<Half line={old} at="old" />
							<Half line={fresh} at="new" />
						</tr>
					)),
				)}
			</tbody>
		</table>
	);
}

interface Page extends DiffPart {
	from: number;
	lines: number;
}

export function Diff({
	part,
	index,
	agent,
	at,
}: {
	part: DiffPart;
	index: number;
	agent: string;
	/* The place of the event that said it: where more of it is. */
	at: string | null;
}) {
	const panel = useRef<HTMLDivElement>(null);
	const [room, setRoom] = useState<"wide" | "narrow" | "">("");
	const [page, setPage] = useState<Page | null>(null);
	const [said, setSaid] = useState("");
	useLayoutEffect(() => {
		const measure = (px: number) =>
			setRoom(px >= SIDE_PX ? "wide" : px < SIDE_LEAST_PX ? "narrow" : "");
		const observer = new ResizeObserver(([entry]) => measure(entry!.contentRect.width));
		measure(panel.current!.clientWidth);
		observer.observe(panel.current!);
		return () => observer.disconnect();
	}, []);
	/* A diff that was said again begins anew. */
	useLayoutEffect(() => setPage(null), [part]);
	const side =
		room !== "narrow" && (layout.value ? layout.value === "side" : room === "wide");
	const shown = page ?? part;
	const here = shown.hunks?.reduce((sum, { lines }) => sum + lines.length, 0) ?? 0;
	const from = page?.from ?? 0;
	const ask = <T,>(query: Record<string, string>) =>
		getJson<T>(
			`/api/part?${new URLSearchParams({ agent, at: at!, part: String(index), ...query })}`,
		);
	const turn = async (to: number) => {
		setSaid("Asking for it");
		try {
			const got = await ask<DiffPart & { lines: number }>({
				from: String(to),
				limit: String(PAGE),
			});
			setPage({ ...got, from: to });
			setSaid("");
		} catch (error) {
			setSaid(`${(error as Error).message}.`);
		}
	};
	const copy = async () => {
		try {
			const { text, elided } = await ask<{ text: string; elided?: number }>({ side: "new" });
			await navigator.clipboard.writeText(text);
			setSaid(elided ? `Copied, but for ${bytes(elided)} that the harness left out` : "Copied");
		} catch (error) {
			setSaid(`Not copied: ${(error as Error).message}.`);
		}
	};
	const total = page?.lines;
	return (
		<div ref={panel}>
			<p class="panel-tools">
				<span class="quiet desk">
					{part.more || from
						? `Lines ${(from + 1).toLocaleString("en")}–${(from + here).toLocaleString("en")}${total ? ` of ${total.toLocaleString("en")}` : ""}`
						: ""}
				</span>
				<span role="status">{said}</span>
				{at ? (
					<button class="link" type="button" onClick={() => void copy()}>
						Copy new text
					</button>
				) : null}
				<span class="choice desk" role="group" aria-label="Layout of diffs">
					<button
						type="button"
						aria-pressed={!side}
						onClick={() => setLayout("inline")}
					>
						Inline
					</button>
					<button
						type="button"
						aria-pressed={side}
						onClick={() => setLayout("side")}
					>
						Side by side
					</button>
				</span>
			</p>
			{side ? <SideBySide part={shown} /> : <DiffTable part={shown} />}
			{part.more ? (
				<p class="panel-foot">
					{at ? (
						<>
							<button
								class="link"
								type="button"
								disabled={!from}
								onClick={() => void turn(Math.max(0, from - PAGE))}
							>
								Earlier lines
							</button>
							<button
								class="link"
								type="button"
								disabled={total !== undefined && from + here >= total}
								onClick={() => void turn(from + here)}
							>
								Later lines
							</button>
						</>
					) : (
						<span>Only its first lines are here</span>
					)}
				</p>
			) : null}
		</div>
	);
}
