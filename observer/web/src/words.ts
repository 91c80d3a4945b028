/* Numbers as people read them. */

export const plural = (n: number, word: string) =>
	`${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;
export const capital = (text: string) => text.charAt(0).toUpperCase() + text.slice(1);

/* A line of a message, without the marks that would make it Markdown. */
export const unmarked = (text: string) => text.replace(/\*\*|`|^#+ /g, "");

/* 0:42, 12:08, 1:04:10: a time that runs. */
export function running(ms: number): string {
	const s = Math.max(0, Math.floor(ms / 1000));
	const two = (n: number) => String(n).padStart(2, "0");
	const minutes = Math.floor(s / 60) % 60;
	return s < 3600
		? `${minutes}:${two(s % 60)}`
		: `${Math.floor(s / 3600)}:${two(minutes)}:${two(s % 60)}`;
}

/* 0.3 s, 44 s, 2:10: a time that is over. */
export function took(ms: number): string {
	if (ms < 10_000) return `${(Math.max(0, ms) / 1000).toFixed(1)} s`;
	return ms < 100_000 ? `${Math.round(ms / 1000)} s` : running(ms);
}

/* 0.4 s, 22 s, 6 min, 3 h, 2 d. */
export function age(ms: number): string {
	const s = Math.max(0, ms) / 1000;
	if (s < 9.95) return `${s.toFixed(1)} s`;
	if (s < 90) return `${Math.round(s)} s`;
	if (s < 5400) return `${Math.round(s / 60)} min`;
	return s < 129_600 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86_400)} d`;
}

/* The page's clock goes in these steps where nobody counts along: "< 5 s", "15 s". */
export const STEP_MS = 5000;
export const roundAge = (ms: number) => (ms < STEP_MS ? "< 5 s" : age(ms - (ms % STEP_MS)).replace(".0", ""));

export function bytes(n: number): string {
	if (n < 999.5) return plural(Math.round(n), "byte");
	return n < 1_000_000
		? `${(n / 1000).toFixed(n < 10_000 ? 1 : 0)} KB`
		: `${(n / 1_000_000).toFixed(1)} MB`;
}

export function tokens(n: number): string {
	if (n < 1000) return String(n);
	return n < 1_000_000
		? `${Math.round(n / 1000)} k`
		: `${(n / 1_000_000).toFixed(1)} M`;
}

export function money({
	amount,
	currency,
}: {
	amount: number;
	currency: string;
}): string {
	try {
		return amount.toLocaleString("en-US", { style: "currency", currency });
	} catch {
		return `${amount.toFixed(2)} ${currency}`; /* no currency that Intl knows */
	}
}

export function ordinal(n: number): string {
	const suffix =
		n % 100 > 10 && n % 100 < 14 ? "th" : (["th", "st", "nd", "rd"][n % 10] ?? "th");
	return `${n}${suffix}`;
}

export function wordCount(text: string): number {
	return text.match(/\S+/g)?.length ?? 0;
}

const encoder = new TextEncoder();
export const byteLength = (text: string) => encoder.encode(text).length;
