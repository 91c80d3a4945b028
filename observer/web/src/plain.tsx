/* Text of an agent, made safe to look at: what would not show, or would turn the text around
 * it, is shown by its number. */

import type { ComponentChildren } from "preact";

/* Controls, format characters (bidi, zero width, tags) and everything else that Unicode says
 * may be left undrawn; spaces that look like others; lone halves of surrogate pairs. */
const UNSEEN =
	/(?![\n\t])[\p{Cc}\p{Cf}\p{Cs}\p{Default_Ignorable_Code_Point}\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]/gu;
/* In prose only what turns or tears text: joiners and selectors belong to scripts and emoji. */
const TURNING =
	/(?![\n\t])[\p{Cc}\u061c\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\u{e0000}-\u{e007f}]/gu;

function mark(text: string, pattern: RegExp): ComponentChildren {
	let out: ComponentChildren[] | null = null;
	let from = 0;
	for (const match of text.matchAll(pattern)) {
		const code = match[0].codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0");
		out ??= [];
		out.push(
			text.slice(from, match.index),
			<span class="unseen" title="A character that would not show">
				U+{code}
			</span>,
		);
		from = match.index + match[0].length;
	}
	if (!out) return text;
	out.push(text.slice(from));
	return out;
}

/* For attributes and titles, which hold no marks of ours. */
export const plain = (text: string) =>
	text.replace(
		UNSEEN,
		(found) => `U+${found.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0")}`,
	);
export const exact = (text: string) => mark(text, UNSEEN);
export const readable = (text: string) => mark(text, TURNING);
export const countUnseen = (text: string) => text.match(UNSEEN)?.length ?? 0;
