/* The page in Chromium, before a real observer and a real relay, fed with real frames by agents
 * made of nostr-tools. Chromium draws in software here: what is measured is script, and how long
 * the main thread is held; how fast pixels come is the machine's own matter. Arms:
 *
 *   frame          script of one frame of the timeline, which follows, is panned and zoomed in
 *                  turn while agents stream; beside it the longest task (both CPU time)
 *   fleet          the same of the fleet, where nothing is moved
 *   layout         4,200 lanes laid out
 *   prepare        an answer of a million spans decoded, listed and drawn for the first time
 *   prepare_double the same of two million in the same time: all that is wide enough to be seen
 *                  is the same, and what is narrower is twice as much
 *   hours          twelve hours of one busy agent's transcript, an hour a round: heap, DOM
 *   idle           CPU of the page's process and the observer while agents work and say little;
 *                  beside it that of the rest of Chromium, whose own screens have renderers too,
 *                  and how many messages the stream had
 *   idle_floor     the same while a page of the same origin is open that holds two letters: what
 *                  Chromium takes for itself. For comparison: what is bounded is all of idle
 *   idle_trace     what the page does in a second of that: CPU ms of its main thread by what
 *                  for, frames, and nodes laid out (tracing costs some itself)
 *
 * PERCH_PROBE_EVENTS (100000), PERCH_PROBE_AGENTS (50), PERCH_PROBE_STREAMING (20),
 * PERCH_PROBE_SECONDS (15; of frame, fleet and idle each), PERCH_PROBE_RUNS (9; of layout and
 * prepare), PERCH_PROBE_ARMS. Fails unless the page shows what was sent. */

import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const tests = new URL("../tests/", import.meta.url);
const { chromium } = createRequire(new URL("browser/", tests))("playwright-core");
const { ARGS, CHROMIUM } = await import(new URL("browser/support/chromium.mjs", tests));
const { Harness, chunk, makeHome, startObserver } = await import(new URL("program/support/observer.mjs", tests));
const { perchBin, startRelay } = await import(new URL("program/support/perch.mjs", tests));
const web = fileURLToPath(new URL("../observer/web/", import.meta.url));

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const FRAME_EVENTS = 150; /* one frame of the load: below 65,408 bytes */
const TURN_EVENTS = 40;
const LIVENESS_MS = 10_000; /* how often a turn says that it lives: agent/turn_clock.h */
const FRAMES_MIN = 10; /* however slow this machine draws them */
const LANES = 4200;
const HOURS = 12;
const HOUR_EVENTS = 1500;
const WAIT_MS = 120_000;

/* --- Settings and lines, as in probe.h --- */

function refuse(words) {
	console.error(`page: ${words}`);
	process.exit(2);
}
function setting(name, normal, min, max) {
	const text = process.env[name];
	if (text === undefined) return normal;
	if (!/^\d{1,15}$/.test(text) || Number(text) < min || Number(text) > max)
		refuse(`${name} takes ${min}..${max}, got "${text}"`);
	return Number(text);
}
const ARMS = ["frame", "fleet", "layout", "prepare", "hours", "idle"];
function chosenArms() {
	const text = process.env["PERCH_PROBE_ARMS"];
	if (text === undefined) return ARMS;
	const list = text.split(",");
	for (const one of list)
		if (!ARMS.includes(one)) refuse(`PERCH_PROBE_ARMS takes a list of ${ARMS.join(",")}; got "${one}"`);
	return list;
}
const events = setting("PERCH_PROBE_EVENTS", 100_000, 100, 1_000_000);
const agentCount = setting("PERCH_PROBE_AGENTS", 50, 1, 200);
const streaming = Math.min(agentCount, setting("PERCH_PROBE_STREAMING", 20, 1, 200));
const seconds = setting("PERCH_PROBE_SECONDS", 15, 1, 3600);
const runs = setting("PERCH_PROBE_RUNS", 9, 1, 1000);
const arms = chosenArms();

function fail(words) {
	throw new Error(words);
}
const quantile = (values, percent) => {
	const sorted = [...values].sort((a, b) => a - b);
	return sorted[Math.floor((sorted.length * percent - 1) / 100)] ?? 0;
};
const { PERCH_PROFILE: profile = "unnamed", PERCH_COMMIT: commit = "unknown" } = process.env;
const note = (arm, more) =>
	console.log(JSON.stringify({ probe: "page", arm, rendering: "software", ...more, profile, commit }));
/* @ms: one time per frame or run. */
function print(arm, ms, more) {
	const us = (percent) => Math.round(1000 * quantile(ms, percent));
	note(arm, { ...more, runs: ms.length, median_us: us(50), p95_us: us(95), p99_us: us(99) });
}

/* --- Agents --- */

const update = (members) => ({
	jsonrpc: "2.0",
	method: "session/update",
	params: { sessionId: "s1", update: members },
});
const COMMANDS = ["make test -j8", "npm run lint:docs", "ctest --preset ci", "git log --oneline", "rg router src", "vitest run"];

/* An agent whose events may be of any time; turns of it go on from where they were. */
class Agent {
	turns = 0;
	step = 0;

	static async open(relay, home, n) {
		const agent = new Agent();
		agent.harness = await Harness.open(relay.url, home.owner);
		agent.channel = `00000000-0000-4000-8000-${String(n).padStart(12, "0")}`;
		agent.lane = `${agent.harness.id}/${agent.channel}`;
		agent.harness.started = Date.now() - HOURS * HOUR_MS;
		await agent.harness.send({
			...agent.harness.started_event(agent.channel, `agent-${String(n).padStart(2, "0")}`),
			monotonicMs: 0,
		});
		return agent;
	}
	event(unixMs, kind, payload) {
		return {
			...this.harness.event(kind, payload, { channel: this.channel, turn: `turn-${this.turns}` }),
			monotonicMs: Math.round(unixMs - this.harness.started),
			timestamp: new Date(unixMs).toISOString(),
		};
	}
	/* The next event of a turn: words, and calls that begin and end. */
	next(unixMs) {
		const step = this.step++ % TURN_EVENTS;
		if (step === 0) {
			this.turns++;
			return this.event(unixMs, "turn_started", {
				promptId: `p${this.turns}`,
				source: "owner",
				text: "Split the router out of server.c into its own module",
			});
		}
		if (step === TURN_EVENTS - 1)
			return this.event(unixMs, "turn_completed", { promptId: `p${this.turns}`, stopReason: "end_turn" });
		if (step % 4 === 1)
			return this.event(unixMs, "acp_read", chunk(`Step ${step} of turn ${this.turns}: the next file is read.\n\n`));
		const toolCallId = `c${step >> 2}`;
		if (step % 4 === 2) {
			const command = COMMANDS[(this.turns + (step >> 2)) % COMMANDS.length];
			return this.event(unixMs, "acp_read", update({
				sessionUpdate: "tool_call", toolCallId, title: command, kind: "execute",
				status: "in_progress", rawInput: { command },
			}));
		}
		const status = step % 4 === 3 ? "in_progress" : step % 20 === 0 ? "failed" : "completed";
		return this.event(unixMs, "acp_read", update({
			sessionUpdate: "tool_call_update", toolCallId, status,
			content: [{ type: "content", content: { type: "text", text: "ok 12 of 40 files\n" } }],
		}));
	}
	/* @count events from @from to @to. */
	async send(count, from, to) {
		for (let sent = 0; sent < count; ) {
			const some = Math.min(FRAME_EVENTS, count - sent);
			const batch = Array.from({ length: some }, (_, i) => this.next(from + ((to - from) * (sent + i)) / count));
			await this.harness.send(some > 1 ? this.harness.batch(batch) : batch[0]);
			sent += some;
		}
	}
}

/* --- The browser --- */

/* What a process has used; of one that has ended what it had when it was last looked at. */
const used = new Map();
const cpuMs = (pid) => {
	try {
		const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
		const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
		used.set(pid, (Number(fields[11]) + Number(fields[12])) * 10);
	} catch {
		/* It has ended. */
	}
	return used.get(pid) ?? 0;
};
/* Chromium's own: pid to what it is. */
function processesBelow(pid) {
	const found = new Map();
	const parents = new Map();
	for (const name of readdirSync("/proc").filter((it) => /^\d+$/.test(it))) {
		try {
			const stat = readFileSync(`/proc/${name}/stat`, "utf8");
			parents.set(Number(name), Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]));
		} catch {
			/* It has ended. */
		}
	}
	const isBelow = (at) => at === pid || (parents.has(at) && isBelow(parents.get(at)));
	for (const at of parents.keys()) {
		if (!isBelow(at)) continue;
		try {
			const line = readFileSync(`/proc/${at}/cmdline`, "utf8");
			found.set(at, /--type=([a-z-]+)/.exec(line)?.[1] ?? "browser");
		} catch {
			/* It has ended. */
		}
	}
	return found;
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
async function until(page, what, value, words = String(what)) {
	const end = Date.now() + WAIT_MS;
	while (!(await page.evaluate(what, value))) {
		if (Date.now() > end) fail(`the page never came to ${words}`);
		await pause(100);
	}
}

const SCRIPT = new Set([
	"FunctionCall", "EvaluateScript", "RunMicrotasks", "FireAnimationFrame", "TimerFire",
	"EventDispatch", "FireIdleCallback", "v8.callFunction",
]);
/* From a trace of the page's main thread, in ms of its own CPU time, so that what else the machine
 * does is not counted: the script of each frame, from one animation frame to the next (what runs
 * inside of other script counts once), and tasks of 50 ms and more. @wall: the same by the clock. */
function readTrace(trace) {
	const all = JSON.parse(trace).traceEvents.filter(({ ph }) => ph === "X");
	const count = new Map();
	for (const { name, pid, tid } of all)
		if (name === "FireAnimationFrame") count.set(`${pid} ${tid}`, (count.get(`${pid} ${tid}`) ?? 0) + 1);
	if (!count.size) fail("the trace has no animation frame");
	const [thread] = [...count].sort((a, b) => b[1] - a[1])[0];
	const mine = all.filter((it) => `${it.pid} ${it.tid}` === thread).sort((a, b) => a.ts - b.ts);
	const frames = [];
	const wall = [];
	let [end, spent, taken, begun] = [0, 0, 0, false];
	for (const { ts, dur = 0, tdur, name } of mine) {
		if (!SCRIPT.has(name) || ts < end) continue;
		if (tdur === undefined) fail("the trace has no CPU times");
		if (name === "FireAnimationFrame") {
			if (begun) frames.push(spent / 1000), wall.push(taken / 1000);
			[begun, spent, taken] = [true, 0, 0];
		}
		spent += tdur;
		taken += dur;
		end = ts + dur;
	}
	const tasks = mine.filter(({ name }) => name.endsWith("RunTask")).map(({ tdur }) => tdur / 1000);
	if (!tasks.length) fail("the trace has no tasks");
	return { frames, wall, tasks };
}

class Session {
	static async open(observer) {
		const session = new Session();
		session.observer = observer;
		session.server = await chromium.launchServer({ executablePath: CHROMIUM, args: ARGS });
		session.browser = await chromium.connect(session.server.wsEndpoint());
		session.context = await session.browser.newContext({ viewport: { width: 1920, height: 1080 } });
		return session;
	}
	get address() {
		return `http://127.0.0.1:${this.observer.port}/`;
	}
	async page(path) {
		const page = await this.context.newPage();
		page.setDefaultTimeout(WAIT_MS);
		await page.goto(`${this.address}#${this.observer.token}${path}`);
		return page;
	}
	async close() {
		await this.browser.close();
		await this.server.close();
	}
}

/* Agents stream: one frame a second each, spread over it. Answers how many events were sent. */
async function stream(agents, untilMs) {
	let sent = 0;
	await Promise.all(agents.map(async (agent, n) => {
		await pause((1000 * n) / agents.length);
		do {
			const now = Date.now();
			await agent.send(10, now - 1000, now);
			sent += 10;
			await pause(1000 - (Date.now() - now));
		} while (Date.now() < untilMs);
	}));
	return sent;
}

/* Measures while @move is called before each frame of the page. */
async function measureFrames(session, page, agents, move) {
	await page.evaluate(() => {
		window.frameTimes = [];
	});
	await session.browser.startTracing(page, { categories: ["toplevel", "devtools.timeline", "v8.execute"] });
	const endMs = Date.now() + 1000 * seconds;
	const moving = page.evaluate(async ([move, ms, least]) => {
		const end = performance.now() + ms;
		const press = (key, code) =>
			document.body.dispatchEvent(new KeyboardEvent("keydown", { key, code, bubbles: true, repeat: key !== " " }));
		for (let i = 0; performance.now() < end || i < least; i++) {
			const now = await new Promise((resolve) => requestAnimationFrame(resolve));
			window.frameTimes.push(now);
			if (!move) continue;
			/* Two seconds each way, and then it follows again. */
			const turn = Math.floor(i / 60) % 6;
			if (turn < 4) press("adws"[turn]);
			else if (i % 60 === 0 && turn === 4) press(" ", "Space");
		}
	}, [move, 1000 * seconds, FRAMES_MIN]);
	const sent = await stream(agents, endMs);
	await moving;
	const { frames, wall, tasks } = readTrace(String(await session.browser.stopTracing()));
	const gaps = await page.evaluate(() => window.frameTimes.slice(1).map((at, i) => at - window.frameTimes[i]));
	return {
		script: frames, sent,
		longest_task_ms: Number(Math.max(...tasks).toFixed(1)),
		tasks_over_50_ms: tasks.filter((ms) => ms > 50).length,
		wall_p95_us: Math.round(1000 * quantile(wall, 95)),
		frame_gap_p95_ms: Math.round(quantile(gaps, 95)),
	};
}

async function frame(session, agents) {
	const page = await session.page("/timeline");
	await until(page, () => (window.__perch?.timeline?.spans().length ?? 0) > 0, null, "spans");
	await pause(3000);
	const { script, ...more } = await measureFrames(session, page, agents.slice(0, streaming), true);
	const { lanes, requests } = await page.evaluate(() => {
		const { lanes, requests } = window.__perch.timeline;
		return { lanes, requests };
	});
	if (!lanes) fail("the timeline drew no lane");
	print("frame", script, { events, agents: agentCount, streaming, lanes_in_sight: lanes, requests, ...more });
	await page.close();
}

async function fleet(session, agents) {
	const page = await session.page("/");
	await until(page, (count) => document.querySelectorAll(".fleet-row").length === count, agentCount, "all rows of the fleet");
	await pause(1000);
	const { script, ...more } = await measureFrames(session, page, agents.slice(0, streaming), false);
	print("fleet", script, { events, agents: agentCount, streaming, ...more });
	await page.close();
}

/* --- Parts of the page by themselves --- */

function bundle(entry) {
	const { buildSync } = createRequire(new URL("../observer/web/", import.meta.url))("esbuild");
	const { outputFiles } = buildSync({
		stdin: { contents: entry, resolveDir: join(web, "src"), loader: "ts" },
		bundle: true, minify: true, write: false, format: "iife", target: "es2022",
		jsx: "automatic", jsxImportSource: "preact", logLevel: "error",
	});
	return outputFiles[0].text;
}

/* A page of an origin of its own that holds nothing else. */
async function emptyPage(session) {
	const page = await session.context.newPage();
	const html = "<!doctype html><i></i><canvas></canvas><canvas></canvas>";
	await page.route("http://page.invalid/", (route) => route.fulfill({ contentType: "text/html", body: html }));
	await page.goto("http://page.invalid/");
	return page;
}

async function layout(session) {
	const page = await emptyPage(session);
	await page.evaluate(bundle('import { layOut } from "./timeline_data"; window.layOut = layOut;'));
	const ms = await page.evaluate(([count, runs]) => {
		const blocks = Array.from({ length: count }, (_, i) => ({
			id: String(i), top: 0, height: 0, lines: { turns: true, calls: 1 + (i % 4), parts: i % 3 },
		}));
		const times = [];
		for (let i = 0; i < runs; i++) {
			/* The clock is coarse: ten at once. */
			const begun = performance.now();
			for (let k = 0; k < 10; k++) {
				blocks[k].lines.calls = 1 + ((i + k) % 4);
				window.layOut(blocks);
			}
			times.push((performance.now() - begun) / 10);
		}
		const last = blocks.at(-1);
		if (last.top + last.height !== blocks.reduce((sum, { height }) => sum + height, 0)) return null;
		return times;
	}, [LANES, runs]);
	if (!ms) fail("the layout does not add up");
	print("layout", ms, { lanes: LANES });
	await page.close();
}

/* What the observer answers about a million spans and two million: written by probes/report. */
async function prepare(session) {
	const folder = mkdtempSync(join(tmpdir(), "perch-page-"));
	try {
		/* Twice as many: as long turns of twice as many calls. */
		const report = join(dirname(perchBin), "probes", "report");
		const answers = {};
		for (const [arm, spans, calls] of [["prepare", 1_000_000, 20], ["prepare_double", 2_000_000, 40]]) {
			const { status, stderr } = spawnSync(report, [], {
				encoding: "utf8",
				env: {
					...process.env, PERCH_PROBE_RUNS: "1", PERCH_PROBE_ANSWERS: folder,
					PERCH_PROBE_SPANS: String(spans), PERCH_PROBE_CALLS: String(calls),
				},
			});
			if (status !== 0) fail(`probes/report: ${stderr}`);
			answers[arm] = readFileSync(join(folder, "timeline")).toString("base64");
		}
		const page = await emptyPage(session);
		await page.evaluate(bundle(`
			import { decode, layOut } from "./timeline_data";
			import { drawLanes, drawRuler, Inks } from "./timeline_paint";
			const [body, head] = document.querySelectorAll("canvas");
			Object.assign(window, { decode, layOut, drawLanes, drawRuler, body, head, inks: new Inks(document.querySelector("i")) });`));
		const cdp = await session.context.newCDPSession(page);
		await cdp.send("Performance.enable", { timeDomain: "threadTicks" });
		const scriptMs = async () =>
			1000 * (await cdp.send("Performance.getMetrics")).metrics.find(({ name }) => name === "ScriptDuration").value;
		await page.evaluate((answers) => {
			window.answers = Object.fromEntries(Object.entries(answers).map(([arm, base64]) =>
				[arm, Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0)).buffer]));
		}, answers);
		const times = { prepare: [], prepare_double: [] };
		const lanesOf = {};
		/* In turn, so that both meet the same machine; the first runs are the compiler's. */
		for (let i = -3; i < runs; i++)
			for (const [arm, ms] of Object.entries(times)) {
				let lanes = 0;
				const before = await scriptMs();
				/* In a frame of its own: the script of an evaluation is not counted. */
				lanes = await page.evaluate((arm) => new Promise((resolve) => requestAnimationFrame(() => {
					const answer = window.decode(window.answers[arm]);
					const blocks = [...answer.lanes.values()].map(({ id, lines }) => ({ id, lines, top: 0, height: 0 }));
					window.layOut(blocks);
					const scene = {
						view: { from: answer.from, to: answer.to }, ranges: [], now: answer.now, answer, overview: answer, blocks, lanes: blocks,
						scroll: 0, pinned: 0, hover: null, picked: null, like: null, offline: new Set(), stalled: new Set(),
					};
					const count = window.drawLanes(window.body, window.inks, scene, 1920, 1000);
					window.drawRuler(window.head, window.inks, scene, 1920);
					resolve(count);
				})), arm);
				if (!lanes) fail("nothing was drawn");
				if (i >= 0) ms.push((await scriptMs()) - before);
				lanesOf[arm] = lanes;
			}
		for (const [arm, ms] of Object.entries(times)) print(arm, ms, { width: 1920, lanes_in_sight: lanesOf[arm] });
		const median = (arm) => quantile(times[arm], 50);
		note("ratios", { prepare_double_to_prepare: Number((median("prepare_double") / median("prepare")).toFixed(3)) });
		await page.close();
	} finally {
		rmSync(folder, { recursive: true, force: true });
	}
}

async function hours(session, agents) {
	const [agent] = agents;
	const page = await session.page(`/lane/${agent.lane}`);
	await page.waitForSelector("[data-row]");
	const cdp = await session.context.newCDPSession(page);
	const begun = Date.now() - HOURS * HOUR_MS;
	const heaps = [];
	const nodes = [];
	for (let hour = 0; hour < HOURS; hour++) {
		await agent.send(HOUR_EVENTS, begun + hour * HOUR_MS, begun + (hour + 1) * HOUR_MS);
		/* It follows: the newest words are on the screen. */
		const words = `of turn ${agent.turns}:`;
		await until(page, (words) => document.querySelector(".transcript")?.textContent.includes(words), words, `the words "${words}"`);
		await cdp.send("HeapProfiler.collectGarbage");
		const { usedSize } = await cdp.send("Runtime.getHeapUsage");
		const counters = await cdp.send("Memory.getDOMCounters");
		heaps.push(usedSize);
		nodes.push(counters.nodes);
	}
	const last = heaps.slice(-3);
	note("hours", {
		hours: HOURS, events: HOURS * HOUR_EVENTS,
		value: Number((Math.max(...last) / Math.min(...last)).toFixed(3)),
		heap_kb: heaps.map((bytes) => Math.round(bytes / 1024)), dom_nodes: nodes,
	});
	await page.close();
}

/* Each of @agents says every ten seconds that it lives, for @ms. */
async function live(agents, ms) {
	const startMs = Date.now();
	const left = () => Math.max(0, ms - (Date.now() - startMs));
	await Promise.all(agents.map(async (agent, n) => {
		await pause((LIVENESS_MS * n) / agents.length);
		for (; left() > 0; await pause(Math.min(LIVENESS_MS, left()))) {
			const now = Date.now();
			await agent.harness.send(agent.event(now, "turn_liveness", { elapsedMs: now - startMs, openTools: 1, openPermissions: 0, intervalMs: LIVENESS_MS }));
		}
	}));
	await pause(left());
}

/* Of a page's steps from script to pixels, ms a second of its main thread. */
const STEPS = {
	script: [...SCRIPT], style: ["UpdateLayoutTree"], layout: ["Layout"], prepaint: ["PrePaint"],
	paint: ["Paint"], layerize: ["Layerize"],
};
function readIdleTrace(trace, seconds, address) {
	const all = JSON.parse(trace).traceEvents;
	const of = ({ pid, tid }) => `${pid} ${tid}`;
	const ours = all.find(({ name, args }) => name === "FunctionCall" && args.data?.url?.startsWith(address));
	const thread = of(ours ?? fail("the trace has no script of the page"));
	const us = all.reduce((sum, it) => sum + (it.ph === "X" && it.name.endsWith("RunTask") && of(it) === thread ? it.tdur : 0), 0);
	const mine = all.filter((it) => it.ph === "X" && of(it) === thread).sort((a, b) => a.ts - b.ts);
	const aSecond = (us) => Number((us / 1000 / seconds).toFixed(2));
	const found = { main_ms_s: aSecond(us) };
	for (const [step, names] of Object.entries(STEPS)) {
		let [sum, end] = [0, 0];
		for (const { name, ts, dur = 0, tdur = 0 } of mine) {
			if (!names.includes(name) || ts < end) continue;
			sum += tdur;
			end = ts + dur;
		}
		found[`${step}_ms_s`] = aSecond(sum);
	}
	const frames = mine.filter(({ name }) => name === "Layerize").length;
	const laidOut = mine.filter(({ name }) => name === "Layout").reduce((sum, { args }) => sum + (args.beginData?.dirtyObjects ?? 0), 0);
	return { pid: Number(thread.split(" ")[0]), ...found, frames_s: Number((frames / seconds).toFixed(2)), laid_out_s: Number((laidOut / seconds).toFixed(1)) };
}

/* The renderer that a page is in: the one that works when the page does. */
async function rendererOf(session, page) {
	const pids = [...processesBelow(session.server.process().pid)].filter(([, is]) => is === "renderer").map(([pid]) => pid);
	const before = pids.map(cpuMs);
	/* So much work, not so long: others may have the processors. */
	await page.evaluate(() => {
		let sum = 0;
		for (let i = 0; i < 5e8; i++) sum = (sum + i) | 0;
		return sum;
	});
	const spent = pids.map((pid, i) => cpuMs(pid) - before[i]);
	return pids[spent.indexOf(Math.max(...spent))];
}

/* CPU of the renderer @pid, the observer and the rest while @some live, in % of a core. */
async function liveCosts(session, observer, some, pid) {
	const pids = processesBelow(session.server.process().pid);
	const cpu = () => Object.fromEntries([["observer", cpuMs(observer.child.pid)], ...[...pids.keys()].map((pid) => [pid, cpuMs(pid)])]);
	const made = async () => (await observer.get("/api/self")).json().broker.messages;
	const [messages, before, startMs] = [await made(), cpu(), Date.now()];
	await live(some, Math.max(LIVENESS_MS, 1000 * seconds));
	const after = cpu();
	const tookMs = Date.now() - startMs;
	const percent = (...of) =>
		Number(of.reduce((sum, name) => sum + (100 * (after[name] - before[name])) / tookMs, 0).toFixed(2));
	const others = (kind) => [...pids].filter(([other, is]) => is === kind && other !== pid).map(([other]) => other);
	return {
		value: percent(pid, "observer"), unit: "% of a core",
		page: percent(pid), observer: percent("observer"), compositor: percent(...others("gpu-process")),
		browser: percent(...others("browser")), other_renderers: percent(...others("renderer")),
		messages_min: Number(((60_000 * ((await made()) - messages)) / tookMs).toFixed(1)),
	};
}

/* CPU of what waits: 20 agents in a turn, each of which says every ten seconds that it lives. */
async function idle(session, agents, observer) {
	const some = agents.slice(0, streaming);
	for (const agent of agents) {
		/* Its turn ends; those that work begin another. */
		const now = Date.now();
		await agent.send((TURN_EVENTS - (agent.step % TURN_EVENTS)) % TURN_EVENTS, now - 5000, now - 3000);
		if (some.includes(agent)) await agent.send(3, now - 2000, now);
	}
	const page = await session.page("/");
	await until(page, (count) => document.querySelectorAll('.fleet-row[data-state="working"]').length === count, some.length, "working agents");
	const renderer = await rendererOf(session, page);
	await pause(6000);
	const costs = await liveCosts(session, observer, some, renderer);
	await session.browser.startTracing(page, { categories: ["toplevel", "devtools.timeline", "v8.execute"] });
	const tracedMs = Date.now();
	await live(some, LIVENESS_MS);
	const traced = (Date.now() - tracedMs) / 1000;
	const { pid, ...steps } = readIdleTrace(String(await session.browser.stopTracing()), traced, session.address);
	if (pid !== renderer) fail("the trace is of another process");
	note("idle", { agents: agentCount, working: some.length, ...costs });
	note("idle_trace", { working: some.length, ...steps });
	await page.close();
	const blank = await session.context.newPage();
	await blank.goto(`${session.address}healthz`);
	const floor = await rendererOf(session, blank);
	await pause(6000);
	note("idle_floor", { working: some.length, ...(await liveCosts(session, observer, some, floor)) });
	await blank.close();
}

/* What the relay took comes to the observer by another connection. */
async function known(observer, count) {
	const end = Date.now() + WAIT_MS;
	for (;;) {
		const { lanes } = (await observer.get("/api/fleet")).json();
		if (lanes.length === count) return;
		if (Date.now() > end) fail(`the observer has ${lanes.length} lanes of ${count}`);
		await pause(100);
	}
}

/* --- --- */

async function main() {
	const home = makeHome();
	const relay = await startRelay();
	let observer;
	let session;
	try {
		observer = await startObserver(relay.url, home);
		await observer.connected();
		const agents = [];
		session = await Session.open(observer);
		if (arms.includes("layout")) await layout(session);
		if (arms.includes("prepare")) await prepare(session);
		if (arms.some((arm) => ["frame", "fleet", "hours", "idle"].includes(arm))) {
			const now = Date.now();
			for (let n = 0; n < agentCount; n++) agents.push(await Agent.open(relay, home, n));
			const each = Math.floor(events / agentCount);
			for (const agent of agents) await agent.send(each, now - HOUR_MS, now);
			await known(observer, agentCount);
		}
		if (arms.includes("idle")) await idle(session, agents, observer);
		if (arms.includes("frame")) await frame(session, agents);
		if (arms.includes("fleet")) await fleet(session, agents);
		if (arms.includes("hours")) await hours(session, agents);
		for (const agent of agents) await agent.harness.close();
	} finally {
		await session?.close();
		await observer?.stop();
		await relay.stop();
		home.remove();
	}
}

try {
	await main();
} catch (error) {
	console.error(`page: ${error.message}`);
	process.exit(1);
}
