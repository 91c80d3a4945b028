/* One stream for all tabs of a browser. The tab that holds the lock reads the broker's stream
 * and hands every message on; when it goes, the lock passes to another tab, which resumes at the
 * cursor it has. A tab that was put to sleep with the lock in its hand loses it to one that is
 * looked at. */

import { effect } from "@preact/signals";
import { request } from "./api";
import { bus } from "./bus";
import { now } from "./clock";
import { offline } from "./offline";
import { DECODE, REDUCE, timed } from "./phases";
import { token } from "./session";
import { apply, cursor, known, type Link, link, snapshot } from "./store";
import type { Message } from "./types";

const RETRY_FIRST_MS = 500;
const RETRY_MAX_MS = 10_000;
/* The broker writes an empty line every 15 s: two missed and it is gone. */
const SILENCE_MAX_MS = 35_000;
/* A clock that jumps by as much was hidden, or its machine slept: what was open may be dead, and
 * nobody was there to notice. What lives says something this soon, after the broker's last word
 * was longer ago than it ever is. */
const JUMP_MS = 5000;
const WORD_MS = 17_000;
const WAKE_MS = 500;
/* So long the leading tab may take to say that it is awake, each of two times. */
const AWAKE_MS = 1000;
/* It is asked when it said nothing for so long. */
const ASK_MS = 15_000;
/* Text without a line end. A snapshot of fifty agents is far below. */
const LINE_MAX = 64 * 1024 * 1024;

const LOCK = "perch-stream";

let leading = false;
/* This tab reads for all: what is done once a browser it does. */
export const leads = () => leading;
/* When the tab that leads began to. One that began before it is heard no more. */
let ledSince = 0;
/* When this tab last had word of the broker, by the bus or by the stream. */
let wordMs = 0;
/* Ends the reading that is under way, to begin another at once. */
let readAgain: (() => void) | null = null;
let woken = false;
/* Our place in the line for the lock, or our turn. */
let line: AbortController | null = null;
/* Others led while this tab slept with the lock: a snapshot is on its way. */
let outdated = false;
let awakeMs = 0;
let checking = false;

function setLink(value: Link) {
	link.value = value;
	if (leading) bus.post({ type: "link", link: value, since: ledSince });
}

function receive(message: Message) {
	timed(REDUCE, () => apply(message));
	if (bus.hears) bus.post({ type: "message", message, since: ledSince });
}

/* Reads until the broker or the network ends it; throws then. */
async function read(signal: AbortSignal) {
	const silence = new AbortController();
	let timer = 0;
	readAgain = () => silence.abort();
	const heard = () => {
		wordMs = Date.now();
		clearTimeout(timer);
		timer = setTimeout(() => silence.abort(), SILENCE_MAX_MS);
	};
	heard();
	try {
		const query =
			known.value && cursor ? `?cursor=${encodeURIComponent(cursor)}` : "";
		const response = await request(`/api/stream${query}`, {
			signal: AbortSignal.any([signal, silence.signal]),
		});
		const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
		let text = "";
		for (;;) {
			const { value, done } = await reader.read();
			if (done) return;
			heard();
			/* The broker's first byte is the proof, not the socket. */
			if (link.value.state !== "live") setLink({ state: "live" });
			text += value;
			if (text.length > LINE_MAX) throw new Error("the broker's line does not end");
			const lines = text.split("\n");
			text = lines.pop()!;
			for (const line of lines)
				if (line.trim()) receive(timed(DECODE, () => JSON.parse(line) as Message));
		}
	} finally {
		readAgain = null;
		clearTimeout(timer);
		silence.abort();
	}
}

/* A pause that the network's return or the reader's glance cuts short. */
function pause(ms: number, signal: AbortSignal): Promise<void> {
	return new Promise((resolve) => {
		const done = () => {
			clearTimeout(timer);
			removeEventListener("online", done);
			document.removeEventListener("visibilitychange", done);
			signal.removeEventListener("abort", done);
			resolve();
		};
		const timer = setTimeout(done, ms);
		addEventListener("online", done);
		document.addEventListener("visibilitychange", done);
		signal.addEventListener("abort", done);
	});
}

async function lead(signal: AbortSignal) {
	let retryMs = RETRY_FIRST_MS;
	let goneMs = 0;
	leading = true;
	/* Later than whoever led before, even if the clock was set back. */
	ledSince = Math.max(Date.now(), ledSince + 1);
	try {
		while (!signal.aborted) {
			woken = false;
			try {
				await read(signal);
			} catch {
				/* Why does not matter: the header says that it is gone and since when. */
			}
			if (signal.aborted) return;
			if (woken) continue;
			if (link.value.state === "live" || !goneMs) {
				goneMs = Date.now();
				retryMs = RETRY_FIRST_MS;
			}
			const waitMs = retryMs * (0.75 + Math.random() / 2);
			setLink({ state: "gone", sinceMs: goneMs, retryAtMs: Date.now() + waitMs });
			await pause(waitMs, signal);
			retryMs = Math.min(2 * retryMs, RETRY_MAX_MS);
		}
	} finally {
		leading = false;
	}
}

const pauseOf = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/* Reads when it is this tab's turn: in line, or at once because whoever has it sleeps. */
async function takeTurn(ours: AbortSignal, steal = false) {
	const over = new AbortController();
	const both = AbortSignal.any([ours, over.signal]);
	line = over;
	try {
		await navigator.locks.request(
			LOCK,
			steal ? { steal } : { signal: both },
			() => both.aborted ? undefined : lead(both),
		);
	} catch {
		/* Not ours any more, or not wanted any more. */
	}
	over.abort();
	if (ours.aborted || line !== over) return;
	/* It was taken from us while we slept: what we know is old. */
	outdated = true;
	bus.post({ type: "snapshot?" });
	await pauseOf(AWAKE_MS);
	if (!ours.aborted && line === over) void takeTurn(ours);
}

/* Whether the tab that leads lives; asked twice, as it may only be busy. */
async function isLed(): Promise<boolean> {
	for (let i = 0; i < 2; i++) {
		const asked = Date.now();
		awakeMs = 0;
		bus.post({ type: "awake?" });
		await pauseOf(AWAKE_MS);
		if (leading || awakeMs >= asked) return true;
	}
	return false;
}

/* Makes sure that what is shown is what is so: on coming back, and when nothing was said. */
async function check(ours: AbortSignal, atStart = false) {
	checking = true;
	try {
		const back = Date.now();
		if (leading) {
			await pauseOf(WAKE_MS);
			if (leading && wordMs < back && back - wordMs > WORD_MS) {
				woken = true;
				readAgain?.();
			}
		} else if (await isLed()) {
			if (!leading) wordMs = back;
		} else if (!ours.aborted && !document.hidden && !(atStart && known.value)) {
			const queued = line;
			void takeTurn(ours, true);
			queued?.abort();
		}
	} finally {
		checking = false;
	}
}

export function openStream() {
	if (offline.is) {
		apply(offline.is.snapshot);
		link.value = { state: "live" };
		return;
	}
	bus.on("snapshot?", () => {
		if (leading && known.value) {
			bus.post({ type: "snapshot", message: snapshot() });
			bus.post({ type: "link", link: link.value, since: ledSince });
		}
	});
	bus.on("snapshot", ({ message }) => {
		/* Asked for by a tab that knew nothing, or too little; the others have it all. */
		if (leading || (known.value && !outdated)) return;
		outdated = false;
		apply(message);
	});
	const isHeard = (since: number) => {
		if (leading || since < ledSince) return false;
		ledSince = since;
		wordMs = Date.now();
		return true;
	};
	bus.on("message", ({ message, since }) => {
		/* Without a snapshot an upsert has nothing to add to. */
		if (isHeard(since) && (known.value || message.snapshot)) timed(REDUCE, () => apply(message));
	});
	bus.on("link", (message) => {
		if (isHeard(message.since)) link.value = message.link;
	});
	bus.on("awake?", () => {
		if (leading) bus.post({ type: "awake" });
	});
	bus.on("awake", () => {
		awakeMs = Date.now();
	});
	effect(() => {
		if (!token.value) return;
		const mine = new AbortController();
		void takeTurn(mine.signal);
		bus.post({ type: "snapshot?" });
		let lastMs = 0;
		wordMs = Date.now();
		const unwatch = effect(() => {
			void now.value;
			if (checking) return;
			const ms = Date.now();
			const came = ms - lastMs > JUMP_MS;
			const first = !lastMs;
			lastMs = ms;
			if (came || (!leading && ms - wordMs > ASK_MS)) void check(mine.signal, first);
		});
		const online = () => {
			if (!checking) void check(mine.signal);
		};
		addEventListener("online", online);
		return () => {
			unwatch();
			removeEventListener("online", online);
			mine.abort();
		};
	});
}
