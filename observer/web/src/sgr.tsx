/* Terminal output as spans: colours and weights of SGR, every other escape left out. */

import type { ComponentChildren } from "preact";
import { readable } from "./plain";

const COLOURS = ["dim", "red", "green", "yellow", "blue", "magenta", "cyan", ""];
/* CSI, OSC and the other string sequences (ended by BEL or ST, or cut off), two-byte escapes. */
const ESCAPES =
	/\x1b\[([0-9;:?<=>]*)[ -/]*([@-~])|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\|$)|\x1b[ -/]*[0-~]?|\x9b[0-9;:?]*[@-~]/g;
/* Longer lines are cut: no terminal shows them either. */
const LINE_MAX = 2000;

interface Style {
	bold: boolean;
	dim: boolean;
	colour: string;
}

function nearest(r: number, g: number, b: number): string {
	const top = Math.max(r, g, b);
	if (top - Math.min(r, g, b) < 40) return top < 120 ? "dim" : "";
	const on = (v: number) => v > (top + Math.min(r, g, b)) / 2;
	return COLOURS[(on(r) ? 1 : 0) + (on(g) ? 2 : 0) + (on(b) ? 4 : 0)]!;
}

function extended(codes: number[], at: number): [string, number] {
	if (codes[at + 1] === 2)
		return [nearest(codes[at + 2] ?? 0, codes[at + 3] ?? 0, codes[at + 4] ?? 0), 4];
	const n = codes[at + 2] ?? 0;
	if (n < 16) return [COLOURS[n % 8]!, 2];
	if (n > 231) return [n < 244 ? "dim" : "", 2];
	const level = (v: number) => (v ? 55 + 40 * v : 0);
	const cube = n - 16;
	return [
		nearest(
			level(Math.floor(cube / 36)),
			level(Math.floor(cube / 6) % 6),
			level(cube % 6),
		),
		2,
	];
}

function restyle(style: Style, parameters: string): Style {
	const codes = parameters.split(/[;:]/).map(Number);
	const next = { ...style };
	for (let i = 0; i < codes.length; i++) {
		const code = codes[i]!;
		if (code === 0) Object.assign(next, { bold: false, dim: false, colour: "" });
		else if (code === 1) next.bold = true;
		else if (code === 2) next.dim = true;
		else if (code === 22) next.bold = next.dim = false;
		else if (code === 39) next.colour = "";
		else if (code >= 30 && code <= 37) next.colour = COLOURS[code - 30]!;
		else if (code >= 90 && code <= 97) next.colour = COLOURS[code - 90]!;
		else if (code === 38 || code === 48) {
			const [colour, used] = extended(codes, i);
			if (code === 38) next.colour = colour;
			i += used;
		}
	}
	return next;
}

/* What a line shows after its carriage returns: the last thing written over it. */
function lastWritten(line: string): string {
	const end = line.endsWith("\r") ? line.length - 1 : line.length;
	return line.slice(line.lastIndexOf("\r", end - 1) + 1, end);
}

function cutLines(text: string): string {
	return text
		.split("\n")
		.map((raw) => {
			const line = lastWritten(raw);
			return line.length > LINE_MAX
				? `${line.slice(0, LINE_MAX)}… ${line.length - LINE_MAX} more characters`
				: line;
		})
		.join("\n");
}

export function terminal(text: string): ComponentChildren {
	const out: ComponentChildren[] = [];
	let style: Style = { bold: false, dim: false, colour: "" };
	const source = cutLines(text);
	let from = 0;
	const say = (to: number) => {
		if (to <= from) return;
		const said = readable(source.slice(from, to));
		const names = [
			style.bold && "sgr-bold",
			style.dim && "sgr-dim",
			style.colour && `sgr-${style.colour}`,
		]
			.filter(Boolean)
			.join(" ");
		out.push(names ? <span class={names}>{said}</span> : said);
	};
	for (const match of source.matchAll(ESCAPES)) {
		say(match.index);
		from = match.index + match[0].length;
		if (match[2] === "m") style = restyle(style, match[1]!);
	}
	say(source.length);
	return out;
}
