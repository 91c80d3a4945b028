/* One stream for all tabs of a browser. The tab that holds the lock reads the broker's stream
 * and hands every message on; when it goes, the lock passes to another tab, which resumes at the
 * cursor it has. */

import { effect } from "@preact/signals";
import { request } from "./api";
import { bus } from "./bus";
import { token } from "./session";
import { apply, cursor, known, type Link, link, snapshot } from "./store";
import type { Message } from "./types";

const RETRY_FIRST_MS = 500;
const RETRY_MAX_MS = 10_000;
/* The broker writes an empty line every 15 s: two missed and it is gone. */
const SILENCE_MAX_MS = 35_000;
/* Text without a line end. A snapshot of fifty agents is far below. */
const LINE_MAX = 64 * 1024 * 1024;

let leading = false;

function setLink(value: Link) {
	link.value = value;
	if (leading) bus.post({ type: "link", link: value });
}

function receive(message: Message) {
	apply(message);
	bus.post({ type: "message", message });
}

/* Reads until the broker or the network ends it; throws then. */
async function read(signal: AbortSignal) {
	const silence = new AbortController();
	let timer = 0;
	const heard = () => {
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
				if (line.trim()) receive(JSON.parse(line) as Message);
		}
	} finally {
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
	try {
		while (!signal.aborted) {
			try {
				await read(signal);
			} catch {
				/* Why does not matter: the header says that it is gone and since when. */
			}
			if (signal.aborted) return;
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

export function openStream() {
	bus.on("snapshot?", () => {
		if (leading && known.value) {
			bus.post({ type: "snapshot", message: snapshot() });
			bus.post({ type: "link", link: link.value });
		}
	});
	bus.on("snapshot", ({ message }) => {
		/* Asked for by a tab that knew nothing; the others have it all. */
		if (!known.value) apply(message);
	});
	bus.on("message", ({ message }) => {
		/* Without a snapshot an upsert has nothing to add to. */
		if (!leading && (known.value || message.snapshot)) apply(message);
	});
	bus.on("link", (message) => {
		if (!leading) link.value = message.link;
	});
	effect(() => {
		if (!token.value) return;
		const mine = new AbortController();
		void navigator.locks
			.request("perch-stream", { signal: mine.signal }, () => lead(mine.signal))
			.catch(() => {}); /* aborted while it waited for its turn */
		bus.post({ type: "snapshot?" });
		return () => mine.abort();
	});
}
