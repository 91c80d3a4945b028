/* The observer's local API by HTTP/2 over TLS against HTTP/1.1, in one observer and in turn. Its
 * clients are Node's, which are slower than it is: so the figures are CPU time of the observer's
 * own thread. Arms, each as _h1 and _h2:
 *
 *   small    one request of a few bytes' answer, eight at one time: eight connections, or one
 *   large    the same of an answer of some 1 MiB from the archive: what TLS alone costs of that is
 *            probes/tls
 *   narrow   large, to a peer with the windows of Node's own, 64 KiB, which no browser has
 *   stream   one message of the stream to six pages beside the one of stream_base
 *
 * PERCH_PROBE_REQUESTS (1000; a round), PERCH_PROBE_MESSAGES (20; a round), PERCH_PROBE_RUNS (5).
 * Fails unless each answer is whole. Ratios are of medians, H2 to H1; that of stream is of what the
 * six pages add to stream_base, and null where that is less than the noise of so small a load. */

import { readFileSync } from "node:fs";
import http from "node:http";

const tests = new URL("../tests/", import.meta.url);
const { Harness, channelId, makeHome, startObserver } = await import(new URL("program/support/observer.mjs", tests));
const { startRelay } = await import(new URL("program/support/perch.mjs", tests));
const { H2 } = await import(new URL("program/support/h2.mjs", tests));

const AT_ONCE = 8;
const PAGES = 6;
const MIB = 1 << 20;

function setting(name, normal, min, max) {
	const text = process.env[name];
	if (text === undefined) return normal;
	if (!/^\d{1,9}$/.test(text) || Number(text) < min || Number(text) > max) {
		console.error(`broker: ${name} takes ${min}..${max}, got "${text}"`);
		process.exit(2);
	}
	return Number(text);
}
const REQUESTS = setting("PERCH_PROBE_REQUESTS", 1000, AT_ONCE, 1_000_000);
const MESSAGES = setting("PERCH_PROBE_MESSAGES", 20, 1, 10_000);
const RUNS = setting("PERCH_PROBE_RUNS", 5, 1, 99);

const { PERCH_PROFILE: profile = "unnamed", PERCH_COMMIT: commit = "unknown" } = process.env;
const print = (arm, more) => console.log(JSON.stringify({ probe: "broker", arm, ...more, profile, commit }));
const quantile = (values, percent) =>
	values.toSorted((a, b) => a - b)[Math.max(0, Math.ceil(values.length * percent / 100) - 1)];

const relay = await startRelay(), home = makeHome();
const observer = await startObserver(relay.url, home, ["--tls", "127.0.0.1:0"]);
await observer.connected();
/* The windows of Chrome: of a stream, and of the connection. */
const h2 = await H2.connect(observer, { settings: { initialWindowSize: 6 * MIB } });
h2.session.setLocalWindowSize(15 * MIB);
const narrow = await H2.connect(observer);
const agent = new http.Agent({ keepAlive: true, maxSockets: AT_ONCE });
const get = {
	h1: (path) => observer.get(path, { agent }),
	h2: (path) => h2.get(path),
	narrow: (path) => narrow.get(path),
};
/* Of the thread that serves, in ns. */
const cpu = () => Number(readFileSync(`/proc/${observer.child.pid}/schedstat`, "utf8").split(" ")[0]);

async function ask(way, path, bytes, count) {
	let left = count;
	const one = async () => {
		while (left-- > 0) {
			const answer = await get[way](path);
			if (answer.status !== 200 || answer.bytes.length !== bytes)
				throw new Error(`${way} ${path}: ${answer.status}, ${answer.bytes.length} bytes, not ${bytes}`);
		}
	};
	const start = cpu();
	await Promise.all(Array.from({ length: AT_ONCE }, one));
	return (cpu() - start) / count;
}

/* One message for each note: the next is sent when every page has the one before. */
const channel = channelId(), harness = await Harness.open(relay.url, home.owner);
await harness.send(harness.started_event(channel));
let notes = 0;
async function stream(open) {
	const pages = open ? await Promise.all(Array.from({ length: PAGES }, open)) : [];
	const watch = await observer.page();
	await Promise.all([watch, ...pages].map((page) => page.until(({ snapshot }) => snapshot)));
	const start = cpu();
	for (let i = 0; i < MESSAGES; i++) {
		const text = `note ${++notes} of the probe`;
		await harness.send(harness.event("note", { text }, { channel }));
		await Promise.all([watch, ...pages].map((page) => page.row((row) => JSON.stringify(row).includes(text))));
	}
	const used = (cpu() - start) / MESSAGES;
	for (const page of [watch, ...pages]) page.close();
	return used;
}

/* A lane of another channel that is 1 MiB as raw lines. */
const big = channelId(), lines = 21;
for (let i = 0; i < lines; i++)
	await harness.send(harness.event("note", { text: `${i} `.repeat(50_000 / `${i} `.length) }, { channel: big }));
const large = `/api/raw?lane=${harness.id}/${big}&limit=${lines}&cut=262144`;
let whole;
for (const end = Date.now() + 60_000, given = () => whole.json().lines?.length ?? 0;;) {
	whole = await get.h1(large);
	if (given() === lines) break;
	if (Date.now() > end) throw new Error(`the archive gives ${given()} of ${lines} lines`);
}
const largeBytes = whole.bytes.length;
const arms = {
	small: (way) => ask(way, "/healthz", 2, REQUESTS),
	large: (way) => ask(way, large, largeBytes, Math.ceil(REQUESTS / 10)),
	narrow: (way) => ask(way === "h1" ? way : "narrow", large, largeBytes, Math.ceil(REQUESTS / 10)),
	stream: (way) => stream(way === "h1" ? () => observer.page() : () => h2.page()),
};
const figures = { stream_base: [] };
for (let round = 0; round < RUNS; round++) {
	figures.stream_base.push(Math.round(await stream()));
	for (const [arm, run] of Object.entries(arms))
		for (const way of round % 2 ? ["h2", "h1"] : ["h1", "h2"])
			(figures[`${arm}_${way}`] ??= []).push(Math.round(await run(way)));
}
for (const [arm, values] of Object.entries(figures))
	print(arm, {
		clock: "cpu",
		...(/^(large|narrow)/.test(arm) && { bytes: largeBytes }), ...(arm.startsWith("stream_h") && { pages: PAGES }),
		runs: RUNS, median_ns: quantile(values, 50), p99_ns: quantile(values, 99),
	});
for (const arm of Object.keys(arms)) {
	const base = arm === "stream" ? quantile(figures.stream_base, 50) : 0;
	const [one, two] = ["h1", "h2"].map((way) => quantile(figures[`${arm}_${way}`], 50) - base);
	print(arm, { two_to_one: one > 0 && two > 0 ? Number((two / one).toPrecision(3)) : null });
}
h2.close();
narrow.close();
agent.destroy();
await harness.close();
await observer.end();
await relay.stop();
home.remove();
