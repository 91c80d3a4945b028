/* Where the time of the scene's lanes went, and what a broker would answer about it: written
 * from PROTOCOL.md, "Times", apart from the broker's own code. */

import { lanes } from "./scene.mjs";

const KIND = { turn: 0, call: 1, part: 2, wait: 3 };
const FAILED = 1;
const COMMAND = 4;
const ALLOWED = 8;

/* Ten minutes that end now; seconds in them. */
export function timesScene(now = Date.now()) {
	const start = now - 611_000;
	const NOW = Infinity;
	const at = (s) => (s === NOW ? NOW : start + s * 1000);
	let row = 0;
	const call = ([t, end, name, over = {}]) => ({
		t: at(t),
		end: at(end),
		name,
		row: `call-${++row}`,
		kind: KIND.call,
		flags: 0,
		line: 0,
		...over,
	});
	const lane = (of, turns, calls) => ({
		id: of.id,
		turns: turns.map(([t, end, title, flags = 0]) => ({ t: at(t), end: at(end), title, row: `turn-${++row}`, flags })),
		spans: calls.map(call).sort((a, b) => a.t - b.t),
	});
	const wait = (t, end) => [t, end, "Waiting for you", { kind: KIND.wait, flags: end === NOW ? 0 : ALLOWED }];
	const command = { flags: COMMAND };
	return {
		start,
		now,
		completeFrom: null,
		lanes: [
			lane(
				lanes.claude,
				[
					[40, 152, "Why is /healthz slow?"],
					[362, NOW, "Split the router out of server.c into its own module"],
				],
				[
					[58, 70, "Read"],
					[96, 112, "perf record", command],
					[131, 140, "Edit"],
					[374, 377, "Read"],
					[398, 403, "grep", command],
					[419, 421, "Edit"],
					[440, 442, "Edit"],
					[459, 517, "make test", { flags: FAILED | COMMAND, row: "row-83" }],
					wait(459, 503),
					[541, 543, "Edit"],
					[548, 562, "make test", command],
					[569, NOW, "rm -rf build && make", command],
					wait(569, NOW),
				],
			),
			lane(
				lanes.billing,
				[[472, NOW, "Round invoice lines per tax rate"]],
				[
					[480, 488, "Read"],
					[539, NOW, "Task"],
					[541, NOW, "schema-check", { kind: KIND.part, line: 0 }],
					[545, 600, "fixture-gen", { kind: KIND.part, line: 1 }],
				],
			),
			lane(
				lanes.codex,
				[
					[20, 290, "Add the flag"],
					[300, NOW, "Serve the new checkout behind a flag"],
				],
				[
					[60, 75, "rg", command],
					[130, 160, "vitest", command],
					[210, 260, "vite build", command],
					[352, 360, "rg", command],
					[388, 398, "apply_patch"],
					[431, 450, "vitest run", { flags: FAILED | COMMAND }],
					[462, 479, "pnpm add", command],
					wait(462, 466),
					[512, 538, "vitest run", command],
					[559, 580, "vite build", command],
				],
			),
			lane(
				lanes.gemini,
				[
					[90, 200, "Notes for 2.14"],
					[330, NOW, "Rewrite the install page for Debian and Fedora"],
				],
				[
					[140, 175, "git log", command],
					[366, 378, "ReadFile"],
					[420, 436, "WriteFile"],
					[470, 482, "WriteFile"],
					[523, 560, "npm run lint:docs", command],
					[580, NOW, "npm run build:docs", command],
				],
			),
			lane(
				lanes.opencode,
				[[171, NOW, "Move the staging bucket"]],
				[185, 230, 280, 331, 378, 426, 474, 522, 570].map((t) => [t, t + 30, "terraform plan", command]),
			),
			lane(
				lanes.runner,
				[
					[12, 118, "build #4126", FAILED],
					[395, NOW, "build #4127"],
				],
				[
					[12, 118, "build", { flags: FAILED }],
					[395, 409, "configure"],
					[409, 427, "ninja -j16", command],
					[427, NOW, "ctest --preset ci -j16", command],
				],
			),
		],
	};
}

const endOf = (scene, { end }) => (end === Infinity ? scene.now : end);

/* [from, to, class] of a lane: you before tools before the model, idle between. */
function strip(scene, lane) {
	const marks = [...new Set([...lane.turns, ...lane.spans].flatMap((it) => [it.t, endOf(scene, it)]).concat(scene.now))];
	marks.sort((a, b) => a - b);
	const over = (it, t) => it.t <= t && endOf(scene, it) > t;
	return marks.slice(0, -1).map((t, i) => {
		const here = lane.spans.filter((it) => over(it, t));
		const of = here.some(({ kind }) => kind === KIND.wait)
			? 2
			: here.length
				? 1
				: lane.turns.some((it) => over(it, t))
					? 0
					: 3;
		return [t, marks[i + 1], of];
	});
}

const overlap = (a, b, from, to) => Math.max(0, Math.min(b, to) - Math.max(a, from));

export function encodeTimeline(scene, { request = 0, from = scene.start, to = scene.now + 1, width = 1000, lanes: only = "" }) {
	const strings = [""];
	const index = new Map([["", 0]]);
	const string = (text) => {
		if (!index.has(text)) index.set(text, strings.push(text) - 1);
		return index.get(text);
	};
	const bytes = [];
	const put = (n, size) => {
		let left = BigInt(n);
		if (left < 0n) left += 1n << BigInt(8 * size);
		for (let i = 0; i < size; i++, left >>= 8n) bytes.push(Number(left & 255n));
	};
	const wanted = scene.lanes.filter(({ id }) => !only || only.split(",").some((one) => id.startsWith(one)));
	const wide = (ms, columns) => ms * width >= columns * (to - from);
	for (const letter of "PTL2") bytes.push(letter.charCodeAt(0));
	put(request, 4);
	put(from, 8);
	put(to, 8);
	put(scene.now, 8);
	put(scene.completeFrom ?? -(1n << 63n), 8);
	put(width, 4);
	put(wanted.length, 4);
	for (const lane of wanted) {
		const pieces = strip(scene, lane);
		const stretches = [];
		for (let column = 0; column < width; column++) {
			const a = from + Math.floor(((to - from) * column) / width);
			const b = Math.max(a + 1, from + Math.floor(((to - from) * (column + 1)) / width));
			const ms = [0, 0, 0, 0];
			for (const [t, end, of] of pieces) ms[of] += overlap(t, end, a, b);
			const shares = ms.map((n) => (n ? Math.max(1, Math.round((255 * n) / (b - a))) : 0));
			const last = stretches.at(-1);
			if (last && String(last[1]) === String(shares)) last[0]++;
			else stretches.push([1, shares]);
		}
		const records = [
			...lane.turns.map((turn) => ({ ...turn, name: turn.title, kind: KIND.turn, line: 0 })),
			...lane.spans,
		].filter((it) => endOf(scene, it) > from && it.t < to && wide(endOf(scene, it) - it.t, 1));
		put(string(lane.id), 4);
		put(lane.generation ?? 1, 8);
		put(stretches.length, 4);
		put(records.length, 4);
		put(lane.values?.length ?? 0, 4);
		for (const [columns, shares] of stretches) {
			put(columns, 2);
			for (const share of shares) put(share, 1);
		}
		for (const it of records) {
			const named = wide(endOf(scene, it) - it.t, 4);
			put(it.t, 8);
			put(it.end === Infinity ? -1 : it.end, 8);
			put(string(named || it.kind ? it.name : ""), 4);
			put(string(named ? it.row : ""), 4);
			put(it.kind, 1);
			put(it.flags, 1);
			put(it.line, 2);
		}
		/* Values: a function of the time, in a column for every four of the others. */
		for (const { kind, at } of lane.values ?? []) {
			const pieces = [];
			for (let column = 0; column < width; column += 4) {
				const t = from + ((to - from) * Math.min(width, column + 4)) / width;
				pieces.push(t > scene.now ? 2 ** 32 - 1 : at((t - scene.start) / 1000));
			}
			put(kind, 4);
			put(pieces.length, 4);
			for (const value of pieces) {
				put(1, 2);
				put(Math.round(value), 4);
			}
		}
	}
	put(strings.length, 4);
	for (const text of strings) {
		const utf8 = Buffer.from(text);
		put(utf8.length, 2);
		bytes.push(...utf8);
	}
	return Buffer.from(bytes);
}

const NAMES = ["model", "tool", "you", "idle"];

export function reportOf(scene, { view = "flat", from = scene.start, to = scene.now + 1, lanes: only = "" }) {
	const wanted = scene.lanes.filter(({ id }) => !only || only.split(",").some((one) => id.startsWith(one)));
	const total = { model: 0, tool: 0, you: 0, idle: 0 };
	const byLane = [];
	const found = new Map();
	const tops = [];
	const add = (rows, key, of, ms, self) => {
		if (!rows.has(key)) rows.set(key, { ...of, count: 0, inclusive: 0, self: 0, all: [], rows: new Map() });
		const row = rows.get(key);
		row.count++;
		row.inclusive += ms;
		row.self += self;
		row.all.push(ms);
		return row;
	};
	for (const lane of wanted) {
		const times = { model: 0, tool: 0, you: 0, idle: 0 };
		const rows = new Map();
		for (const [t, end, of] of strip(scene, lane)) {
			const ms = overlap(t, end, from, to);
			times[NAMES[of]] += ms;
			if (ms && of === 0) for (const into of [found, rows]) add(into, "model", { name: "Model", time: "model" }, ms, ms);
			if (ms && of === 3) for (const into of [found, rows]) add(into, "idle", { name: "Idle", time: "idle" }, ms, ms);
		}
		for (const it of lane.spans) {
			const ms = overlap(it.t, endOf(scene, it), from, to);
			if (!ms) continue;
			const inside = lane.spans
				.filter((part) => part !== it && it.kind === KIND.call && (part.kind === KIND.part || part.kind === KIND.wait) && part.t >= it.t && endOf(scene, part) <= endOf(scene, it))
				.reduce((sum, part) => sum + overlap(part.t, endOf(scene, part), from, to), 0);
			const of = { name: it.name, time: it.kind === KIND.wait ? "you" : "tool", ...(it.flags & COMMAND ? { command: true } : {}) };
			for (const into of [found, rows]) add(into, it.name, of, ms, Math.max(0, ms - inside));
		}
		const held = NAMES.reduce((sum, name) => sum + times[name], 0);
		if (!held) continue;
		for (const name of NAMES) total[name] += times[name];
		byLane.push({ lane: lane.id, ...times });
		tops.push({
			agent: lane.id.split("/")[0], count: 1, inclusive: held, self: 0,
			rows: [{ lane: lane.id, count: 1, inclusive: held, self: 0, rows }],
		});
	}
	const finish = (rows) =>
		[...(rows instanceof Map ? rows.values() : rows)]
			.map(({ all, rows: inner, ...row }) => {
				const sorted = [...(all ?? [])].sort((a, b) => a - b);
				const rank = (p) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * p))];
				const kids = inner ? finish(inner) : [];
				return {
					...row,
					...(sorted.length ? { p50: rank(0.5), p95: rank(0.95), max: sorted.at(-1) } : {}),
					...(kids.length ? { rows: kids } : {}),
				};
			})
			.sort((a, b) => (view === "top-down" ? b.inclusive - a.inclusive : b.self - a.self));
	let rows = finish(view === "top-down" ? tops : found);
	if (view === "bottom-up")
		rows = rows.map(({ p50, p95, max, ...row }) => ({ ...row, rows: [{ name: "Turn", count: row.count, inclusive: row.inclusive, self: row.self }] }));
	if (view === "live")
		rows = rows
			.filter(({ time }) => time !== "model" && time !== "idle")
			.map(({ name, time, command, count, inclusive, max }) => {
				const bins = Array(17).fill(0);
				bins[Math.min(16, Math.floor(Math.log2(max)))] = count;
				return { name, time, ...(command ? { command } : {}), count, total: inclusive, min: 1000, max, avg: inclusive / count, deviation: 12.5, bins };
			});
	return { from, to, now: scene.now, ...(scene.completeFrom ? { completeFrom: scene.completeFrom } : {}), total, lanes: byLane, rows };
}

