/* How near the transcript is looked at: the same rows as a story, in detail, or as the lines
 * that they were made of. One for all agents, in the address. */

import { effect, signal } from "@preact/signals";
import { keepZoom, route } from "./session";

export const ZOOMS = ["story", "detail", "raw"] as const;
export type Zoom = (typeof ZOOMS)[number];

export const zoom = signal<Zoom>("detail");

export function setZoom(to: Zoom) {
	zoom.value = to;
	keepZoom(to);
}
export function nextZoom(by: number) {
	setZoom(ZOOMS[(ZOOMS.indexOf(zoom.value) + by + ZOOMS.length) % ZOOMS.length]!);
}

/* An address that says one is followed; one that says none is given ours. */
effect(() => {
	const at = route.value;
	if (at.screen !== "agent") return;
	if (at.zoom && (ZOOMS as readonly string[]).includes(at.zoom))
		zoom.value = at.zoom as Zoom;
	else keepZoom(zoom.peek());
});
