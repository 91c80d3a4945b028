/* The rows of the page, as a function of what it was told: whatever pages they came in, in whatever
 * order, told twice or split, there is one list in the end. Only the reducer, in Node. */

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";

const web = fileURLToPath(new URL("../../observer/web/", import.meta.url));
const LANE = "aa/c1";
const RUNS = 300;

let store, folder;

before(async () => {
	folder = mkdtempSync(join(tmpdir(), "perch-rows-"));
	const { build } = createRequire(join(web, "package.json"))("esbuild");
	const out = join(folder, "store.mjs");
	await build({
		stdin: {
			contents: 'export * from "./src/store"; export * from "./src/rows"; export * from "./src/story";',
			resolveDir: web,
			loader: "ts",
		},
		bundle: true,
		format: "esm",
		outfile: out,
		logLevel: "error",
		plugins: [
			{
				/* What the page asks the broker, a test answers. */
				name: "broker",
				setup({ onResolve, onLoad }) {
					onResolve({ filter: /^\.\/api$/ }, () => ({ path: "api", namespace: "test" }));
					onLoad({ filter: /.*/, namespace: "test" }, () => ({
						contents: "export const getJson = (path) => globalThis.answer(path);",
					}));
				},
			},
		],
	});
	store = await import(pathToFileURL(out));
});
after(() => rmSync(folder, { recursive: true, force: true }));

function randoms(seed) {
	let state = seed * 2654435761 + 1;
	return (below) => {
		state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
		return Math.floor((state / 2 ** 32) * below);
	};
}

const posOf = (seq) => `6566b2e0aaaaaaaa/${String(seq).padStart(16, "0")}`;

/* Events that make rows, change them, take them away; the truth after each. */
function history(random, count) {
	const truth = new Map();
	const steps = [];
	for (let i = 0; i < count; i++) {
		const ids = [...truth.keys()];
		const what = random(10);
		if (ids.length && what < 3) {
			const id = ids[random(ids.length)];
			truth.set(id, { ...truth.get(id), text: `changed ${i}` });
			steps.push({ row: truth.get(id) });
		} else if (ids.length && what === 3) {
			const id = ids[random(ids.length)];
			truth.delete(id);
			steps.push({ removed: id });
		} else {
			/* Some come late: their place is among those that are there. */
			const seq = what > 7 ? 1 + random(3 * count) : 3 * count + i;
			const row = { id: `r${i}`, lane: LANE, pos: posOf(seq), t: i, type: "note", text: `new ${i}` };
			truth.set(row.id, row);
			steps.push({ row });
		}
	}
	return { steps, truth };
}

const sorted = (rows) =>
	[...rows].sort((a, b) => (a.pos < b.pos || (a.pos === b.pos && a.id < b.id) ? -1 : 1));

/* A broker whose truth moves on while its answers are under way. */
function broker(random) {
	const rows = new Map();
	const under = [];
	globalThis.answer = (path) => {
		const query = new URL(path, "http://x").searchParams;
		const limit = Math.min(Number(query.get("limit")), 1 + random(40));
		const all = sorted(rows.values()).filter(({ pos }) => !query.get("before") || pos < query.get("before"));
		/* Rows of one place stay on one page. */
		let from = Math.max(0, all.length - limit);
		while (from > 0 && all[from - 1].pos === all[from]?.pos) from--;
		const answer = structuredClone({ rows: all.slice(from), more: from > 0 });
		return new Promise((resolve) => under.push(() => resolve(answer)));
	};
	return {
		apply({ row, removed }) {
			if (row) rows.set(row.id, row);
			else rows.delete(removed);
		},
		async settle() {
			for (let i = 0; i < 2000; i++) {
				under.shift()?.();
				await null;
			}
		},
		deliver: async () => {
			under.shift()?.();
			for (let i = 0; i < 8; i++) await null;
		},
	};
}

const message = (steps) =>
	structuredClone({
		rows: steps.filter(({ row }) => row).map(({ row }) => row),
		removedRows: steps.filter(({ removed }) => removed).map((step) => ({ lane: LANE, id: step.removed })),
	});

/* A message has a row or its removal once, as the broker writes it: what came last. */
function batch(steps) {
	const last = new Map();
	for (const step of steps) last.set(step.row?.id ?? step.removed, step);
	return [...last.values()];
}

test("split, doubled and mixed with pages, the rows are the same", async () => {
	for (let seed = 1; seed <= RUNS; seed++) {
		const random = randoms(seed);
		const { steps, truth } = history(random, 20 + random(80));
		const from = broker(random);
		const rows = new store.LaneRows(LANE);
		const told = [];
		/* What happened before the page looked. */
		let at = random(steps.length);
		for (const step of steps.slice(0, at)) from.apply(step);
		const first = rows.sync();
		while (at < steps.length) {
			const count = 1 + random(7);
			const some = steps.slice(at, at + count);
			for (const step of some) from.apply(step);
			at += count;
			told.push(batch(some));
			const tell = (list) => {
				const { rows: upserts, removedRows } = message(list);
				for (const row of upserts) rows.upsert(row);
				for (const { id } of removedRows) rows.remove(id);
			};
			/* In any order, all or in two, twice. */
			const list = told.at(-1).sort(() => random(3) - 1);
			const cut = random(list.length + 1);
			tell(list.slice(0, cut));
			tell(list.slice(cut));
			if (random(3) === 0) tell(list);
			if (random(2)) await from.deliver();
			if (random(4) === 0) void rows.older();
			/* A snapshot: all is asked for again. */
			if (random(8) === 0) void rows.sync();
		}
		await from.settle();
		await first;
		for (let i = 0; rows.more && i < 100; i++) {
			const asked = rows.older();
			await from.settle();
			await asked;
		}
		assert.equal(rows.more, false, `seed ${seed}`);
		const ids = rows.list.map(({ id }) => id);
		const lost = [...truth.keys()].filter((id) => !ids.includes(id));
		const extra = ids.filter((id) => !truth.has(id));
		assert.deepEqual({ lost, extra }, { lost: [], extra: [] }, `seed ${seed}`);
		assert.deepEqual(rows.list, sorted(truth.values()), `seed ${seed}`);
		for (const row of rows.list) assert.equal(rows.list[rows.indexOf(row)], row);
	}
});

/* Not by chance: every size of page, and a change at every moment between asking and getting it. */
test("wherever a page begins and whatever happens while it is under way, the rows are the same", async () => {
	const COUNT = 9;
	const make = (i, text) => ({ id: `r${i}`, lane: LANE, pos: posOf(Math.ceil(i / 2) * 2), t: i, type: "note", text });
	const changes = [
		(truth) => ({ row: { ...truth.get("r1"), text: "the oldest changed" } }),
		() => ({ row: make(COUNT + 1, "the newest came") }),
		() => ({ row: { ...make(3, "one came late"), id: "late", pos: posOf(3) } }),
		() => ({ removed: "r5" }),
		() => ({ removed: `r${COUNT}` }),
		(truth) => ({ row: { ...truth.get("r4"), text: "one in the middle changed" } }),
	];
	for (let limit = 1; limit <= COUNT + 1; limit++)
		for (const [which, change] of changes.entries())
			/* @moment: after so many answers; told before the page asks for the next one or while it does. */
			for (let moment = 0; moment <= COUNT; moment++)
				for (const under of [false, true]) {
					const truth = new Map(Array.from({ length: COUNT }, (_, i) => [`r${i + 1}`, make(i + 1, "first")]));
					let deliver;
					globalThis.answer = (path) => {
						const before = new URL(path, "http://x").searchParams.get("before");
						const all = sorted(truth.values()).filter(({ pos }) => !before || pos < before);
						let from = Math.max(0, all.length - limit);
						while (from > 0 && all[from - 1].pos === all[from].pos) from--;
						const answer = structuredClone({ rows: all.slice(from), more: from > 0 });
						return new Promise((resolve) => { deliver = () => resolve(answer); });
					};
					const rows = new store.LaneRows(LANE);
					let told = false;
					const happen = () => {
						const step = change(truth);
						told = true;
						if (step.row) truth.set(step.row.id, step.row);
						else truth.delete(step.removed);
						const { rows: upserts, removedRows } = message([step]);
						for (const row of upserts) rows.upsert(row);
						for (const { id } of removedRows) rows.remove(id);
					};
					let asked = rows.sync();
					for (let answers = 0; ; answers++) {
						if (answers === moment && under) happen();
						deliver();
						await asked;
						if (answers === moment && !under) happen();
						if (!rows.more) break;
						assert.ok(answers <= 2 * COUNT, "it ends");
						/* All of its page is gone: from the newest again. */
						asked = rows.list.length ? rows.older() : rows.sync();
					}
					if (!told) happen();
					assert.deepEqual(rows.list, sorted(truth.values()), `pages of ${limit}, change ${which} at ${moment}${under ? " under way" : ""}`);
				}
});

test("a row told again unchanged keeps its object, and with it its DOM", () => {
	globalThis.answer = () => new Promise(() => {});
	const rows = new store.LaneRows(LANE);
	const row = { id: "a", lane: LANE, pos: posOf(1), t: 1, type: "note", text: "x" };
	rows.upsert(row);
	rows.upsert(structuredClone(row));
	assert.equal(rows.list[0], row);
	rows.upsert({ ...row, text: "y" });
	assert.notEqual(rows.list[0], row);
});

/* unit/story_test.c reads the same file. */
test("rows are told as the terminal tells them", () => {
	const cases = JSON.parse(readFileSync(new URL("../data/story.json", import.meta.url), "utf8"));
	const words = ({ verb, many, object, text, rows, outcome, added }) =>
		[verb, ...(many ? [many] : [object, text])].filter(Boolean).join(" ") +
		(rows > 1 && !many ? `, ${rows} times` : "") +
		(outcome ? `${added >= 0 ? " " : ": "}${outcome}` : "");
	for (const { rows, told } of cases) {
		const groups = [];
		rows.forEach((row, i) => {
			if (i && store.joins(rows[i - 1], row)) groups.at(-1).push(row);
			else groups.push([row]);
		});
		assert.deepEqual(groups.map((group) => words(store.tell(group))), told);
	}
});

test("messages split and doubled leave the same fleet", () => {
	globalThis.answer = () => new Promise(() => {});
	const LISTS = ["agents", "lanes", "cards"];
	for (let seed = 1; seed <= RUNS; seed++) {
		const random = randoms(seed);
		const truth = Object.fromEntries(LISTS.map((list) => [list, new Map()]));
		store.apply({ snapshot: true });
		for (let i = 0; i < 60; i++) {
			const changes = [];
			for (let k = random(6); k >= 0; k--) {
				const list = LISTS[random(3)];
				const id = `${list}/${random(9)}`;
				const thing = { id, agent: "a", state: "working", askedMs: 1, n: i * 10 + k };
				truth[list].set(id, thing);
				changes.push([list, thing]);
			}
			const removed = random(4) ? [] : [`cards/${random(9)}`];
			for (const id of removed) truth.cards.delete(id);
			/* One of each thing a message, whole or in parts, once or twice. */
			const last = new Map(changes.map(([list, thing]) => [thing.id, [list, thing]]));
			const parts = [...last.values()].filter(([, { id }]) => !removed.includes(id));
			const messages = random(2)
				? parts.map(([list, thing]) => ({ [list]: [thing] }))
				: [Object.fromEntries(LISTS.map((list) => [list, parts.filter(([at]) => at === list).map(([, thing]) => thing)]))];
			messages.push({ removedCards: removed });
			for (let times = 1 + random(2); times > 0; times--)
				for (const one of messages) store.apply(structuredClone(one));
		}
		for (const list of LISTS) {
			const byId = (things) => [...things].sort((a, b) => (a.id < b.id ? -1 : 1));
			assert.deepEqual(byId(store[list].all()), byId(truth[list].values()), `seed ${seed} ${list}`);
		}
	}
});
