/* When this page decoded, reduced, laid out and painted: the last times of each, for the self
 * screen and for whoever asks window.__perch.self. */

import { options } from "preact";

export const PHASES = ["decode", "reduce", "layout", "paint"] as const;
export const DECODE = 0;
export const REDUCE = 1;
export const LAYOUT = 2; /* components drawn again, lanes laid out */
export const PAINT = 3; /* canvases */

const KEPT = 8192;
const kinds = new Uint8Array(KEPT);
const begins = new Float64Array(KEPT);
const lengths = new Float64Array(KEPT);
let count = 0;

export function timed<T>(phase: number, work: () => T): T {
	const begun = performance.now();
	try {
		return work();
	} finally {
		const at = count++ % KEPT;
		kinds[at] = phase;
		begins[at] = begun;
		lengths[at] = performance.now() - begun;
	}
}

export interface Timed {
	phase: number;
	t: number; /* Unix ms of this machine */
	ms: number;
}
/* Those that began since @t, Unix ms, oldest first. */
export function phasesSince(t: number): Timed[] {
	const found: Timed[] = [];
	for (let i = Math.max(0, count - KEPT); i < count; i++) {
		const at = i % KEPT;
		const begun = performance.timeOrigin + begins[at]!;
		if (begun >= t) found.push({ phase: kinds[at]!, t: begun, ms: lengths[at]! });
	}
	return found;
}

export function openPhases() {
	options.debounceRendering = (draw) => queueMicrotask(() => timed(LAYOUT, draw));
	const perch = ((window as { __perch?: Record<string, unknown> }).__perch ??= {});
	perch["self"] = { phases: (ms = 60_000) => phasesSince(Date.now() - ms), names: PHASES };
}
