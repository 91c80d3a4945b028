/* Markdown as elements: marked finds the tokens, we make the nodes. No string ever becomes
 * HTML, nothing is loaded from elsewhere, and a link says where it goes. */

import { Lexer, type Token, type Tokens } from "marked";
import { Component, type ComponentChildren, Fragment, h } from "preact";
import { exact, readable } from "./plain";

const ALLOWED = new Set(["http:", "https:", "mailto:"]);

/* Where an address leads, or null where we do not lead anybody. */
function target(href: string): { href: string; host: string } | null {
	try {
		const url = new URL(href);
		if (!ALLOWED.has(url.protocol)) return null;
		return {
			href: url.href,
			host: url.protocol === "mailto:" ? url.pathname : url.host,
		};
	} catch {
		return null; /* relative: it means a place in the agent's world, not in ours */
	}
}

export function Link({
	href,
	text,
	children,
}: {
	href: string;
	text: string;
	children?: ComponentChildren;
}) {
	const to = target(href);
	const shown = children ?? readable(text);
	if (!to)
		return (
			<>
				{shown}
				{href && href !== text ? (
					<span class="quiet"> ({exact(href)})</span>
				) : null}
			</>
		);
	return (
		<a
			class="link"
			href={to.href}
			target="_blank"
			rel="noopener noreferrer"
			title={to.href}
		>
			{shown}
			{text.includes(to.host) ? null : (
				<span class="host"> ({exact(to.host)})</span>
			)}
		</a>
	);
}

/* marked escapes nothing in `text` of its tokens, but entities stay as written. */
const ENTITIES: Record<string, string> = {
	amp: "&",
	lt: "<",
	gt: ">",
	quot: '"',
	"#39": "'",
	nbsp: " ",
};
const decode = (text: string) =>
	text.replace(/&(amp|lt|gt|quot|#39|nbsp);/g, (_, name) => ENTITIES[name]!);

function inline(tokens: Token[] | undefined): ComponentChildren {
	return tokens?.map((token) => {
		switch (token.type) {
			case "strong":
				return <strong>{inline(token.tokens)}</strong>;
			case "em":
				return <em class="slanted">{inline(token.tokens)}</em>;
			case "del":
				return <s>{inline(token.tokens)}</s>;
			case "codespan":
				return <code>{exact(token.text)}</code>;
			case "br":
				return <br />;
			case "link":
				return (
					<Link href={token.href} text={decode(token.text)}>
						{inline(token.tokens)}
					</Link>
				);
			case "image":
				return (
					<Link
						href={token.href}
						text={`image: ${token.text || "no description"}`}
					/>
				);
			case "text":
				return "tokens" in token && token.tokens
					? inline(token.tokens)
					: readable(decode(token.text));
			case "escape":
				return readable(token.text);
			default:
				return readable(
					token.raw,
				); /* HTML and what we do not know: as it was written */
		}
	});
}

function Table({ token }: { token: Tokens.Table }) {
	return (
		<div class="prose-table" tabIndex={0}>
			<table>
				<thead>
					<tr>
						{token.header.map((cell) => (
							<th class={cell.align === "right" ? "right" : ""}>
								{inline(cell.tokens)}
							</th>
						))}
					</tr>
				</thead>
				<tbody>
					{token.rows.map((row) => (
						<tr>
							{row.map((cell) => (
								<td class={cell.align === "right" ? "right" : ""}>
									{inline(cell.tokens)}
								</td>
							))}
						</tr>
					))}
				</tbody>
			</table>
		</div>
	);
}

function List({ token }: { token: Tokens.List }) {
	const items = token.items.map((item) => (
		<li
			class={item.task ? "task" : ""}
			data-step={item.task && item.checked ? "done" : undefined}
		>
			{block(item.tokens)}
		</li>
	));
	return token.ordered ? (
		<ol start={Number(token.start) || 1}>{items}</ol>
	) : (
		<ul>{items}</ul>
	);
}

function block(tokens: Token[] | undefined): ComponentChildren {
	return tokens?.map((token) => {
		switch (token.type) {
			case "space":
			case "def":
			case "checkbox":
				return null;
			case "heading":
				/* The page has its own headings: those of a message begin below them. */
				return h(`h${Math.min(6, token.depth + 2)}`, null, inline(token.tokens));
			case "paragraph":
				return <p>{inline(token.tokens)}</p>;
			case "code":
				return (
					<pre class="code" tabIndex={0}>
						{exact(token.text)}
					</pre>
				);
			case "blockquote":
				return <blockquote>{block(token.tokens)}</blockquote>;
			case "list":
				return <List token={token as Tokens.List} />;
			case "table":
				return <Table token={token as Tokens.Table} />;
			case "hr":
				return <hr />;
			case "text":
				return (
					<Fragment>
						{token.tokens
							? inline(token.tokens)
							: readable(decode(token.text))}
					</Fragment>
				);
			default:
				return <p>{readable(token.raw)}</p>;
		}
	});
}

class Chunk extends Component<{ text: string }> {
	shouldComponentUpdate(next: { text: string }) {
		return next.text !== this.props.text;
	}
	render({ text }: { text: string }) {
		let tokens: Token[];
		try {
			tokens = Lexer.lex(text, { gfm: true });
		} catch {
			return <p>{readable(text)}</p>; /* nested beyond what the lexer bears */
		}
		return <>{block(tokens)}</>;
	}
}

/* Cuts at blank lines between blocks that cannot belong together: outside fences, before a line
 * that neither is indented nor continues a list. Only the last chunk of a growing text changes. */
export function chunks(text: string): string[] {
	const out: string[] = [];
	let from = 0;
	let fence = "";
	let blank = false;
	for (let at = 0; at < text.length;) {
		const newline = text.indexOf("\n", at);
		const end = newline < 0 ? text.length : newline + 1;
		const line = text.slice(at, end);
		if (
			blank &&
			!fence &&
			at > from &&
			/^[^\s]/.test(line) &&
			!/^([-*+]|\d+[.)])(\s|$)/.test(line)
		) {
			out.push(text.slice(from, at));
			from = at;
		}
		const mark = /^ {0,3}(`{3,}|~{3,})/.exec(line)?.[1];
		if (mark && !fence) fence = mark;
		else if (
			mark &&
			mark[0] === fence[0] &&
			mark.length >= fence.length &&
			line.trim() === mark
		)
			fence = "";
		blank = line.trim() === "";
		at = end;
	}
	out.push(text.slice(from));
	return out;
}

export function Markdown({ text }: { text: string }) {
	return (
		<div class="prose" dir="auto">
			{chunks(text).map((chunk, i) => (
				<Chunk key={i} text={chunk} />
			))}
		</div>
	);
}
