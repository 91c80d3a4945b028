/* An output as its row shows it, its beginning and its end; and all of it on demand, some hundred
 * lines at a time. */

import { useState } from "preact/hooks";
import { getJson } from "./api";
import { terminal } from "./sgr";
import type { Part } from "./types";
import { byteLength, bytes } from "./words";

const PAGE = 1000;

export function Output({
	part,
	index,
	agent,
	at,
}: {
	part: Extract<Part, { type: "output" }>;
	index: number;
	agent: string;
	/* The place of the event that said it: where all of it is. */
	at: string | null;
}) {
	const [lines, setLines] = useState<string[] | null>(null);
	const [from, setFrom] = useState(0);
	const [said, setSaid] = useState("");
	/* Bytes that are not here either: the harness left them out. */
	const [elided, setElided] = useState(0);
	const show = async () => {
		setSaid("Asking for it");
		try {
			const { text, elided } = await getJson<{ text: string; elided?: number }>(
				`/api/part?${new URLSearchParams({ agent, at: at!, part: String(index), side: "text" })}`,
			);
			setLines(text.replace(/\n$/, "").split("\n"));
			setElided(elided ?? 0);
			setSaid("");
		} catch (error) {
			setSaid(`${(error as Error).message}.`);
		}
	};
	const copy = async () => {
		try {
			await navigator.clipboard.writeText(lines!.join("\n"));
			setSaid("Copied");
		} catch (error) {
			setSaid(`Not copied: ${(error as Error).message}.`);
		}
	};
	const end = lines ? Math.min(lines.length, from + PAGE) : 0;
	return (
		<>
			<pre class="terminal" tabIndex={0}>
				{terminal(lines ? lines.slice(from, end).join("\n") : part.text)}
			</pre>
			{lines ? (
				<p class="panel-foot">
					<span>
						Lines {(from + 1).toLocaleString("en")}–{end.toLocaleString("en")} of{" "}
						{lines.length.toLocaleString("en")}
						{elided ? (
							<b>
								{" "}
								· {bytes(elided)} left out by the harness: too long to be
								sent
							</b>
						) : null}
					</span>
					<span role="status">{said}</span>
					{lines.length > PAGE ? (
						<>
							<button
								class="link"
								type="button"
								disabled={!from}
								onClick={() => setFrom(from - PAGE)}
							>
								Earlier lines
							</button>
							<button
								class="link"
								type="button"
								disabled={end === lines.length}
								onClick={() => setFrom(end)}
							>
								Later lines
							</button>
						</>
					) : null}
					<button class="link" type="button" onClick={() => void copy()}>
						Copy all
					</button>
				</p>
			) : part.more ? (
				<p class="panel-foot">
					<span>
						Its beginning and its end, {bytes(byteLength(part.text))} of{" "}
						{bytes(part.bytes ?? byteLength(part.text))}
					</span>
					<span role="status">{said}</span>
					{at ? (
						<button class="link" type="button" onClick={() => void show()}>
							Show all
						</button>
					) : null}
				</p>
			) : null}
		</>
	);
}
