// The figures of /api/report against those of `perch export`: the same lines, added up here by the words of PROTOCOL.md
// ("A report is …") in another way than the observer does it: no columns, no running sums, every millisecond by sweeping.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { channelId, Harness, makeHome, run, startObserver } from "./support/observer.mjs";
import { startRelay } from "./support/perch.mjs";
import { until } from "./support/up.mjs";

function randoms(seed) {
	let state = seed * 2654435761 + 1;
	return (below) => {
		state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
		return Math.floor((state / 2 ** 32) * below);
	};
}

/* ---- a session of known times ---- */

const NAMES = ["alpha", "beta", "gamma", "delta"];
const update = (members) => ({ jsonrpc: "2.0", method: "session/update", params: { sessionId: "s1", update: members } });

/** Things that happen in [t, end): [ms, kind, payload, more] each. @open: what begins in it does not end. */
function call(random, out, { t, end, depth, parent, open, ids }) {
	const toolCallId = `c${++ids.last}`, command = NAMES[random(NAMES.length)];
	out.push([t, "acp_read", update({
		sessionUpdate: "tool_call", toolCallId, title: command, kind: "execute", status: "in_progress", rawInput: { command },
		...(parent && { _meta: { claudeCode: { parentToolUseId: parent } } }),
	})]);
	if (random(3) === 0) {
		const asked = t + random(end - t), id = ++ids.last, nonce = `nonce-${id}`;
		const authorization = { requestNonce: nonce, deadlineMs: 3_600_000 };
		out.push([asked, "acp_read", {
			jsonrpc: "2.0", id, method: "session/request_permission",
			params: {
				sessionId: "s1", toolCall: { toolCallId, title: command, kind: "execute", rawInput: { command } },
				options: [{ optionId: "ok", name: "Allow once", kind: "allow_once" }],
			},
		}, { authorization }]);
		if (!open)
			out.push([asked + random(end - asked + 1), "acp_write", {
				jsonrpc: "2.0", id, result: { outcome: { outcome: "selected", optionId: "ok" } },
			}, { authorization: { ...authorization, optionId: "ok" } }]);
	}
	// What a subagent does, side by side too: its calls are inside of this one.
	for (let i = depth < 3 ? random(4) : 0; i > 0; i--) {
		const from = t + random(end - t);
		call(random, out, {
			t: from, end: from + random(end - from + 1), depth: depth + 1, parent: toolCallId, open: open && random(2) === 0, ids,
		});
	}
	if (!open)
		out.push([end, "acp_read", update({
			sessionUpdate: "tool_call_update", toolCallId, status: random(4) ? "completed" : "failed",
		})]);
}

/** Of one lane; what goes on at last has no end. */
function lane(random, { open }) {
	const turns = [], ids = { last: 0 };
	let t = 1000 + random(2000);
	for (let i = 0, count = 3 + random(3); i < count; i++) {
		const goesOn = open && i === count - 1, end = t + 2000 + random(20_000), out = [];
		for (let k = 1 + random(5); k > 0; k--) {
			const from = t + random(end - t);
			call(random, out, { t: from, end: from + random(end - from + 1), depth: 0, open: goesOn && random(2) === 0, ids });
		}
		// In order of time; of one moment as they were made, so that a call is there before its parts.
		out.sort((a, b) => a[0] - b[0]);
		turns.push([
			[t, "turn_started", { promptId: `p${i}`, source: "owner", text: `Turn ${i}` }],
			...out,
			...(goesOn ? [] : [[end, "turn_completed", { promptId: `p${i}`, stopReason: "end_turn" }]]),
		].map((it) => ({ turn: `turn-${i}`, it })));
		t = end + random(3) * random(4000);
	}
	return turns.flat();
}

/* ---- what the lines say ---- */

/** Lanes of turns of calls and waits, from the lines of an export; an end that is not there is Infinity. */
function readExport(lines) {
	const lanes = new Map();
	for (const { agent, event } of lines) {
		const { kind, channelId: channel, turnId, payload, authorization } = event;
		const t = Date.parse(event.timestamp);
		if (!turnId)
			continue;
		const id = `${agent}/${channel}`;
		if (!lanes.has(id))
			lanes.set(id, { id, agent, turns: [] });
		const { turns } = lanes.get(id);
		if (kind === "turn_started")
			turns.push({ id: turnId, t, end: Infinity, spans: [] });
		const turn = turns.find((it) => it.id === turnId);
		const tell = payload.params?.update;
		const of = (key) => turn.spans.find((span) => span.key === key);
		if (kind === "turn_completed")
			for (const it of [turn, ...turn.spans])
				it.end = Math.min(it.end, t);
		else if (tell?.sessionUpdate === "tool_call")
			turn.spans.push({
				key: tell.toolCallId, name: tell.rawInput.command, time: "tool", command: true, t, end: Infinity,
				parent: of(tell._meta?.claudeCode.parentToolUseId),
			});
		else if (tell?.sessionUpdate === "tool_call_update")
			of(tell.toolCallId).end = t;
		else if (payload.method === "session/request_permission")
			turn.spans.push({
				key: authorization.requestNonce, name: "Waiting for you", time: "you", t, end: Infinity,
				parent: of(payload.params.toolCall.toolCallId),
			});
		else if (kind === "acp_write")
			of(authorization.requestNonce).end = t;
	}
	return [...lanes.values()];
}

/* ---- the definition ---- */

/** [from, to) as sorted stretches that do not touch. */
function union(stretches) {
	const out = [];
	for (const [from, to] of stretches.filter(([a, b]) => b > a).sort((a, b) => a[0] - b[0]))
		if (out.length && from <= out.at(-1)[1])
			out.at(-1)[1] = Math.max(out.at(-1)[1], to);
		else
			out.push([from, to]);
	return out;
}
const length = (stretches) => stretches.reduce((ms, [from, to]) => ms + to - from, 0);
const within = (stretches, from, to) => stretches.map(([a, b]) => [Math.max(a, from), Math.min(b, to)]).filter(([a, b]) => b > a);
/** [from, to) without them. */
function without(from, to, stretches) {
	const out = [];
	let at = from;
	for (const [a, b] of union(within(stretches, from, to))) {
		out.push([at, a]);
		at = b;
	}
	return [...out, [at, to]].filter(([a, b]) => b > a);
}

/** Everything that a report of [from, to) tells, as instances: a path of names, a length, what of it is its own. */
function instances(lanes, { from, to, now }) {
	const all = [], times = [];
	for (const one of lanes) {
		const total = { model: 0, tool: 0, you: 0, idle: 0 };
		const top = [{ agent: one.agent }, { lane: one.id }];
		const seen = (it) => [it.t, Math.min(it.end, now)];
		const cut = (it) => {
			const [t, end] = seen(it), part = [Math.max(t, from), Math.min(end, to)];
			return part[1] > part[0] || (t === end && t >= from && t < to) ? part : null;
		};
		for (const turn of one.turns) {
			const part = cut(turn), path = [...top, { name: "Turn" }];
			if (!part)
				continue;
			all.push({ path, ms: part[1] - part[0], self: 0 });
			for (const [a, b] of within(without(...seen(turn), turn.spans.map(seen)), from, to))
				all.push({ path: [...path, { name: "Model", time: "model" }], ms: b - a, self: b - a });
			for (const span of turn.spans) {
				const here = cut(span);
				if (!here)
					continue;
				const stack = [];
				for (let at = span; at; at = at.parent)
					stack.unshift({ name: at.name, time: at.time, ...(at.command && { command: true }) });
				const parts = turn.spans.filter(({ parent }) => parent === span).map(seen);
				all.push({ path: [...path, ...stack], ms: here[1] - here[0], self: length(without(...here, parts)) });
			}
		}
		// Each moment once: the owner before tools before the model.
		const of = (time) => one.turns.flatMap(({ spans }) => spans.filter((span) => span.time === time).map(seen));
		const turns = union(one.turns.map(seen)), you = union(of("you")), busy = union([...of("you"), ...of("tool")]);
		total.you = length(within(you, from, to));
		total.tool = length(within(busy, from, to)) - total.you;
		total.model = length(within(turns, from, to)) - total.you - total.tool;
		const idle = within(without(turns[0][0], turns.at(-1)[1], turns), from, to);
		total.idle = length(idle);
		for (const [a, b] of idle)
			all.push({ path: [...top, { name: "Idle", time: "idle" }], ms: b - a, self: b - a, idle: true });
		const held = total.model + total.tool + total.you + total.idle;
		if (!held)
			continue;
		all.push({ path: top, ms: held, self: 0, part: true }, { path: top.slice(0, 1), ms: held, self: 0, part: true });
		times.push({ lane: one.id, ...total });
	}
	return { all, times };
}

const keyOf = (name) => JSON.stringify(name);
const again = (path) => path.slice(0, -1).some(({ name }) => name && name === path.at(-1).name);

/** Rows by key, with the figures of a report. */
function figures(list, counted) {
	const ms = list.map((it) => it.ms).sort((a, b) => a - b), max = ms.at(-1);
	const rank = (share) => ms[Math.ceil(ms.length * share) - 1];
	const quantiles = counted && max > 0 && !list[0].idle && !list[0].part;
	return {
		count: list.length,
		inclusive: list.reduce((sum, it) => sum + (counted === "once" && again(it.path) ? 0 : it.ms), 0),
		self: list.reduce((sum, it) => sum + it.self, 0),
		...(quantiles && { p50: rank(0.5), p95: rank(0.95), max }),
	};
}
function groups(list, key) {
	const by = new Map();
	for (const it of list)
		by.set(key(it), [...(by.get(key(it)) ?? []), it]);
	return [...by.values()];
}

function tree(list, depth, path, counted) {
	return groups(list.filter((it) => path(it).length > depth), (it) => keyOf(path(it)[depth])).map((some) => {
		const here = counted === "bottom-up" ? some : some.filter((it) => path(it).length === depth + 1);
		const rows = tree(some, depth + 1, path, counted);
		return {
			...path(some[0])[depth],
			...(counted === "bottom-up"
				? { count: some.length, inclusive: some.reduce((sum, it) => sum + (again(it.path) ? 0 : it.ms), 0), self: some.reduce((sum, it) => sum + it.self, 0) }
				: figures(here, "each")),
			...(rows.length && { rows }),
		};
	});
}

const told = ({ path, part }) => !part && path.at(-1).name !== "Turn";
const views = {
	flat: (all) => groups(all.filter(told), ({ path }) => keyOf(path.at(-1))).map((list) => ({
		...list[0].path.at(-1), ...figures(list, "once"),
	})),
	"top-down": (all) => tree(all, 0, ({ path }) => path, "each"),
	"bottom-up": (all) => tree(all.filter(told), 0, ({ path }) => path.toReversed(), "bottom-up"),
};

function live(lanes, { from, to }) {
	const spans = lanes.flatMap(({ turns }) => turns.flatMap((turn) => [{ ...turn, name: "Turn" }, ...turn.spans]))
		.filter(({ t, end }) => end !== Infinity && t < to && end > from);
	return groups(spans, ({ name }) => name).map((list) => {
		const ms = list.map(({ t, end }) => end - t), mean = ms.reduce((a, b) => a + b) / ms.length;
		const bins = [];
		for (const n of ms)
			bins[n < 2 ? 0 : Math.floor(Math.log2(n))] = (bins[n < 2 ? 0 : Math.floor(Math.log2(n))] ?? 0) + 1;
		const { name, time, command } = list[0];
		return {
			name, ...(time && { time }), ...(command && { command }), count: ms.length, total: ms.reduce((a, b) => a + b),
			min: Math.min(...ms), max: Math.max(...ms), avg: mean,
			deviation: Math.sqrt(ms.reduce((sum, n) => sum + (n - mean) ** 2, 0) / ms.length), bins: Array.from(bins, (n) => n ?? 0),
		};
	});
}

/* Rows in one order, whatever it was. */
const ordered = (rows) => rows
	.map((row) => ({ ...row, ...(row.rows && { rows: ordered(row.rows) }) }))
	.sort((a, b) => (keyOf([a.agent, a.lane, a.name, a.time]) < keyOf([b.agent, b.lane, b.name, b.time]) ? -1 : 1));

/* ---- both ---- */

let relay, home, observer, agents, lines;

before(async () => {
	relay = await startRelay();
	home = makeHome();
	observer = await startObserver(relay.url, home);
	await observer.connected();
	const random = randoms(20261201), page = await observer.page();
	const start = Date.now() - 600_000;
	// One whose turns go on at last, in two channels side by side, and one that has ended.
	agents = [];
	for (const open of [true, false]) {
		const agent = await Harness.open(relay.url, home.owner);
		agent.started = start;
		const channels = open ? [channelId(), channelId()] : [channelId()];
		await agent.send({ ...agent.started_event(channels[0], open ? "claude" : "codex"), monotonicMs: 0, timestamp: new Date(start).toISOString() });
		const events = channels
			.flatMap((channel, slot) => lane(random, { open }).map((one) => ({ ...one, channel, slot })))
			.sort((a, b) => a.it[0] - b.it[0])
			.map(({ turn, channel, slot, it: [ms, kind, payload, more] }) => ({
				...agent.event(kind, payload, { channel, turn, ...more }), agentIndex: slot,
				monotonicMs: ms, timestamp: new Date(start + ms).toISOString(),
			}));
		for (let i = 0; i < events.length; i += 40)
			await agent.send(agent.batch(events.slice(i, i + 40)));
		await agent.send({ ...agent.event("note", { text: `all of ${agent.id}` }, { channel: channels[0] }), monotonicMs: 590_000 });
		await page.row((row) => JSON.stringify(row).includes(`all of ${agent.id}`));
		agents.push(agent);
	}
	page.close();
	// It is in the archive before long.
	const all = agents.reduce((count, { seq }) => count + seq, 0);
	lines = await until(async () => {
		const { code, stdout, stderr } = await run(home, "export");
		assert.equal(code, 0, stderr);
		const found = stdout.split("\n").filter(Boolean).map((line) => JSON.parse(line));
		return found.length === all && found;
	});
});

after(async () => {
	for (const agent of agents ?? [])
		await agent.close();
	await observer.end();
	await relay.stop();
	home.remove();
});

async function report(query) {
	const answer = await observer.get(`/api/report?${new URLSearchParams(query)}`);
	assert.equal(answer.status, 200, answer.text);
	return answer.json();
}

/** Windows that cut spans, and all of it. Behind the end of a lane that has ended it is idle as long as its agent is
 * seen: that is the observer's to know, so of all of it only what goes on is asked. */
function windows() {
	const random = randoms(7), lanes = readExport(lines), [open, closed] = agents;
	const last = Math.max(...lanes.filter(({ agent }) => agent === closed.id).map(({ turns }) => turns.at(-1).end));
	const first = Math.min(...lanes.map(({ turns }) => turns[0].t));
	const cuts = Array.from({ length: 20 }, (_, i) => {
		const from = first - 500 + random(last - first), to = from + 1 + random(i % 2 ? 400 : last - from);
		return { from, to, lanes: i % 3 ? "" : open.id };
	});
	return [{ from: first - 1000, to: Date.now() + 3_600_000, lanes: open.id }, { from: first, to: last, lanes: "" }, ...cuts];
}
const asked = (lanes) => readExport(lines).filter(({ agent }) => !lanes || agent === lanes);

test("the session has all that the figures are about", () => {
	const turns = readExport(lines).flatMap((one) => one.turns), spans = turns.flatMap((turn) => turn.spans);
	const nested = (span, n = 0) => (span.parent ? nested(span.parent, n + 1) : n);
	const overlaps = (a, b) => a !== b && a.t < b.end && b.t < a.end && !a.parent && !b.parent;
	assert.ok(spans.some((span) => nested(span) >= 2), "a subagent in a subagent");
	assert.ok(spans.some((span) => span.time === "you" && span.end < Infinity), "an answered wait");
	assert.ok(spans.some((span) => span.time === "tool" && span.end === Infinity), "an open call");
	assert.ok(spans.some((span) => span.time === "tool" && span.parent?.name === span.name), "a call in one of its name");
	assert.ok(turns.some((turn) => turn.spans.some((a) => turn.spans.some((b) => overlaps(a, b)))), "calls side by side");
	assert.ok(turns.some(({ end }) => end === Infinity), "an open turn");
});

for (const view of Object.keys(views))
	test(`${view}: as added up from the export`, async () => {
		for (const window of windows()) {
			const said = await report({ ...window, view });
			const { all, times } = instances(asked(window.lanes), { ...window, now: said.now });
			const what = `${view} ${JSON.stringify(window)}`;
			const byLane = (list) => list.toSorted((a, b) => (a.lane < b.lane ? -1 : 1));
			assert.deepEqual(byLane(said.lanes), byLane(times), what);
			const sum = (kind) => times.reduce((ms, it) => ms + it[kind], 0);
			assert.deepEqual(said.total, { model: sum("model"), tool: sum("tool"), you: sum("you"), idle: sum("idle") }, what);
			assert.deepEqual(ordered(said.rows), ordered(views[view](all)), what);
		}
	});

test("live: whole lengths of what ended, as in the export", async () => {
	for (const window of windows()) {
		const said = await report({ ...window, view: "live" }), want = live(asked(window.lanes), window);
		const near = (a, b) => assert.ok(Math.abs(a - b) <= 0.051, `${a} is not ${b}`);
		const [rows, wanted] = [ordered(said.rows), ordered(want)];
		rows.forEach(({ avg, deviation }, i) => {
			near(avg, wanted[i].avg);
			near(deviation, wanted[i].deviation);
		});
		const exact = (list) => list.map(({ avg, deviation, ...row }) => row);
		assert.deepEqual(exact(rows), exact(wanted), JSON.stringify(window));
	}
});
