/* The part of the window that can be seen. A phone's keyboard covers the rest, and some browsers
 * only push the page up under it: the page is made as high as what is left, where that is. */

import { signal } from "@preact/signals";
import { foldTray, trayFolded } from "./ui";

/* Bars of the browser come and go by less. */
const KEYBOARD_PX = 120;
/* Where a card would leave no room for what is typed or read. */
const LOW_PX = 480;

/* As in perch.css: a phone. */
const query = matchMedia("(max-width: 720px)");
export const narrow = signal(query.matches);
query.addEventListener("change", () => {
	narrow.value = query.matches;
});

let low = false;
let foldedBefore = false;

function foldIfLow(height: number) {
	const is = query.matches && height < LOW_PX;
	if (is === low) return;
	low = is;
	/* The reader may unfold it; afterwards it is as it was. */
	if (is) foldedBefore = trayFolded.peek();
	foldTray(is || foldedBefore);
}

export function openViewport() {
	const seen = window.visualViewport;
	if (!seen) return;
	const root = document.documentElement;
	const fit = () => {
		/* Enlarged by two fingers: nothing is covered, the reader looks at a part. */
		const covered = seen.scale < 1.05 && innerHeight - seen.height > KEYBOARD_PX;
		root.toggleAttribute("data-keyboard", covered);
		for (const [name, px] of [
			["--seen", seen.height],
			["--seen-from", seen.offsetTop],
		] as const)
			if (covered) root.style.setProperty(name, `${px}px`);
			else root.style.removeProperty(name);
		foldIfLow(covered ? seen.height : innerHeight);
	};
	seen.addEventListener("resize", fit);
	seen.addEventListener("scroll", fit);
	fit();
}
