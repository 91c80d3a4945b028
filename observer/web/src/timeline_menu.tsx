/* What can be done with one span: asked for by the right button, a long press or the menu key. */

import { signal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { plain } from "./plain";
import { routeTo } from "./session";
import { TURN, WAIT } from "./timeline_data";
import * as model from "./timeline_model";
import { said } from "./timeline_names";
import type { Picked } from "./timeline_paint";
import { plural } from "./words";

/* x, y: in the window. */
const menu = signal<{ of: Picked; x: number; y: number } | null>(null);

/* Names are of any length. */
const NAME_MAX = 40;
const short = (name: string) => plain(name.length > NAME_MAX ? `${name.slice(0, NAME_MAX)}…` : name);

export function openMenu(of: Picked, x: number, y: number) {
	model.picked.value = of;
	model.hover.value = null;
	menu.value = { of, x, y };
}
function close() {
	if (!menu.value) return;
	menu.value = null;
	document.querySelector<HTMLElement>(".lanes")?.focus({ preventScroll: true });
}

function highlight(name: string) {
	const on = model.like.value !== name;
	model.like.value = on ? name : null;
	said.value = on ? `${plural(model.countLike(), "span")} of ${short(name)} marked` : "Unmarked";
}

/* Up and down go from item to item and round; Enter and a click do what they do to links. */
function onKey(event: KeyboardEvent, list: HTMLElement) {
	event.stopPropagation();
	const items = [...list.querySelectorAll<HTMLElement>("[role=menuitem]")];
	const at = items.indexOf(document.activeElement as HTMLElement);
	const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: -1 }[event.key];
	if (to !== undefined) items.at(to % items.length)?.focus();
	else if (event.key === "Escape" || event.key === "Tab") close();
	else return;
	event.preventDefault();
}

export function Menu() {
	const list = useRef<HTMLUListElement>(null);
	const open = menu.value;
	useLayoutEffect(() => {
		const box = list.current;
		if (!box || !open) return;
		const { offsetWidth: width, offsetHeight: height } = box;
		box.style.insetInlineStart = `${Math.max(0, Math.min(open.x, innerWidth - width - 4))}px`;
		box.style.insetBlockStart = `${Math.max(0, Math.min(open.y, innerHeight - height - 4))}px`;
		box.querySelector<HTMLElement>("[role=menuitem]")?.focus({ preventScroll: true });
	}, [open]);
	if (!open) return null;
	const { lane, span } = open.of;
	const named = span.kind !== TURN && span.name !== "";
	const every = span.kind === WAIT ? "every wait for you" : `every ${short(span.name)}`;
	const done = (what: () => void) => () => {
		what();
		close();
	};
	return (
		<ul
			ref={list}
			class="menu"
			role="menu"
			aria-label={named ? short(span.name) : "Turn"}
			onKeyDown={(event) => onKey(event, event.currentTarget)}
			onFocusOut={(event) => {
				if (!event.currentTarget.contains(event.relatedTarget as Node | null)) menu.value = null;
			}}
			onContextMenu={(event) => event.preventDefault()}
		>
			<li role="none">
				<a role="menuitem" tabIndex={-1} href={routeTo(lane, span.row || null)} onClick={() => (menu.value = null)}>
					Open in the transcript
				</a>
			</li>
			{named ? (
				<>
					<li role="none">
						<a role="menuitem" tabIndex={-1} href={`#/report?${model.instances(span.name)}`} onClick={() => (menu.value = null)}>
							Report of {every}
						</a>
					</li>
					<li role="none">
						<button role="menuitem" tabIndex={-1} type="button" onClick={done(() => highlight(span.name))}>
							{model.like.value === span.name ? "Unmark" : "Mark"} {every}
						</button>
					</li>
				</>
			) : null}
			<li role="none">
				<button role="menuitem" tabIndex={-1} type="button" onClick={done(model.pickedToRange)}>
					Make it the range <kbd>R</kbd>
				</button>
			</li>
		</ul>
	);
}
