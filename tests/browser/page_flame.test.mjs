/* The report's fifth view: its tree as a flame graph. What it asks is answered here, so that
 * every width is known. */

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { becomes, drawn, hasText, pageTests } from "./support/page.mjs";
import { lanes } from "./support/scene.mjs";

const scene = pageTests();
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const web = fileURLToPath(new URL("../../observer/web/", import.meta.url));

let flame, folder;
before(async () => {
	folder = mkdtempSync(join(tmpdir(), "perch-flame-"));
	const { build } = createRequire(join(web, "package.json"))("esbuild");
	const out = join(folder, "flame.mjs");
	await build({
		stdin: { contents: 'export * from "./src/flame_rows";', resolveDir: web, loader: "ts" },
		bundle: true, format: "esm", outfile: out, logLevel: "error",
		plugins: [{
			/* What its neighbours ask the broker is asked for nobody here. */
			name: "broker",
			setup({ onResolve, onLoad }) {
				onResolve({ filter: /^\.\/api$/ }, () => ({ path: "api", namespace: "test" }));
				onLoad({ filter: /.*/, namespace: "test" }, () => ({ contents: "export const getJson = () => null;" }));
			},
		}],
	});
	flame = await import(pathToFileURL(out));
});
after(() => rmSync(folder, { recursive: true, force: true }));

const row = (name, time, inclusive, self, more = {}) => ({ name, ...(time ? { time } : {}), count: 1, inclusive, self, ...more });

/* 100 s of claude, of which 20 ran side by side, and 100 s of codex. */
function tree() {
	const make = row("make", "tool", 40_000, 10_000, {
		command: true,
		rows: [row("cc", "tool", 25_000, 25_000, { count: 3 }), row("Waiting for you", "you", 5_000, 5_000)],
	});
	const turn = row("Turn", "", 80_000, 0, {
		rows: [make, row("Read", "tool", 30_000, 30_000), row("Model", "model", 30_000, 30_000)],
	});
	return {
		from: 0, to: 100_000, now: 100_000,
		total: { model: 80_000, tool: 75_000, you: 5_000, idle: 40_000 },
		lanes: [lanes.claude, lanes.codex].map(({ id }) => ({ lane: id, model: 40_000, tool: 37_500, you: 2_500, idle: 20_000 })),
		rows: [lanes.claude, lanes.codex].map(({ id }, i) => ({
			agent: id.split("/")[0], count: 1, inclusive: 100_000, self: 0,
			rows: [{
				lane: id, count: 1, inclusive: 100_000, self: 0,
				rows: i
					? [row("Turn", "", 80_000, 0, { rows: [row("Model", "model", 50_000, 50_000), row("vitest", "tool", 30_000, 30_000)] }), row("Idle", "idle", 20_000, 20_000)]
					: [turn, row("Idle", "idle", 20_000, 20_000)],
			}],
		})),
	};
}

const shares = ({ placed }) => placed.map(({ frame, depth, from, share }) => [frame.row.name ?? "", depth, from, share]);

test("frames are as wide as their time, in what they are part of, and stay in their order", () => {
	const root = flame.framesOf(tree());
	const { placed, narrow, depth } = flame.placeFrames(root);
	const at = (name, n = 0) => shares({ placed }).filter(([of]) => of === name)[n];
	/* 220 s of width: claude's turn has 100 s of parts in 80 s. */
	assert.equal(root.width, 220_000);
	assert.equal(depth, 6);
	assert.deepEqual(at("All"), ["All", 0, 0, 1]);
	assert.deepEqual(at("Turn"), ["Turn", 3, 0, 100 / 220]);
	/* The model before calls, calls by name. */
	assert.deepEqual(placed.filter(({ depth: deep }) => deep === 4).map(({ frame }) => frame.row.name), ["Model", "Read", "make", "Model", "vitest"]);
	assert.deepEqual(at("make").map((it) => (typeof it === "number" ? Number(it.toFixed(6)) : it)), ["make", 4, Number((60 / 220).toFixed(6)), Number((40 / 220).toFixed(6))]);
	assert.deepEqual(at("Waiting for you").slice(0, 2), ["Waiting for you", 5]);
	assert.deepEqual(narrow, []);
	for (const { frame, from, share } of placed) {
		const parts = placed.filter((it) => it.frame.parent === frame);
		assert.ok(parts.reduce((all, part) => all + part.share, 0) <= share + 1e-9, frame.path);
		for (const part of parts) assert.ok(part.from >= from - 1e-9 && part.from + part.share <= from + share + 1e-9, part.frame.path);
	}
	/* The same times in another order of time: the same places. */
	const other = tree();
	for (const agent of other.rows) agent.rows[0].rows.reverse();
	other.rows.reverse();
	assert.deepEqual(shares(flame.placeFrames(flame.framesOf(other))), shares({ placed }));
});

test("what is zoomed into has the whole width, and a path that is gone the last frame on its way", () => {
	const root = flame.framesOf(tree());
	const make = flame.placeFrames(root).placed.find(({ frame }) => frame.row.name === "make").frame;
	const { placed } = flame.placeFrames(make);
	assert.deepEqual(shares({ placed }), [
		["All", 0, 0, 1], ["", 1, 0, 1], ["", 2, 0, 1], ["Turn", 3, 0, 1], ["make", 4, 0, 1],
		["cc", 5, 0, 25 / 40], ["Waiting for you", 5, 25 / 40, 5 / 40],
	]);
	assert.equal(flame.frameAt(root, make.path), make);
	assert.equal(flame.frameAt(root, `${make.path}/tool gone/x`), make);
	assert.equal(flame.frameAt(root, `${make.path.slice(0, -1)}`).row.name, "Turn");
	assert.equal(flame.frameAt(root, "nowhere"), root);
	assert.equal(flame.frameAt(root, ""), root);
});

test("what is too narrow is one piece, however many there are", () => {
	const report = tree();
	const lane = report.rows[1].rows[0];
	lane.rows[0].rows = [row("Model", "model", 50_000, 50_000), ...Array.from({ length: 3000 }, (_, i) => row(`call ${i}`, "tool", 10, 10))];
	const { placed, narrow } = flame.placeFrames(flame.framesOf(report));
	assert.ok(placed.length < 20, String(placed.length));
	assert.deepEqual(narrow.map(({ count }) => count), [3000]);
	assert.ok(Math.abs(narrow[0].share - 30_000 / placed[0].frame.width) < 1e-9, String(narrow[0].share));
	/* Nothing at all divides by nothing. */
	const none = flame.placeFrames(flame.framesOf({ ...report, total: { model: 0, tool: 0, you: 0, idle: 0 }, rows: [] }));
	assert.deepEqual(none.placed.map(({ share }) => share), [1]);
});

test("arrows go up, down and along a depth, and stop at the edges", () => {
	const { placed } = flame.placeFrames(flame.framesOf(tree()));
	const find = (name, n = 0) => placed.findIndex(({ frame }) => frame.row.name === name && !n--);
	const go = (from, key) => flame.step(placed, from, key);
	assert.equal(go(find("make"), "ArrowUp"), find("Turn"));
	assert.equal(go(find("make"), "ArrowDown"), find("cc"));
	assert.equal(go(find("make"), "ArrowLeft"), find("Read"));
	/* Into the next lane. */
	assert.equal(go(find("make"), "ArrowRight"), find("Model", 1));
	assert.equal(go(find("cc"), "ArrowDown"), find("cc"));
	assert.equal(go(0, "ArrowUp"), 0);
	assert.equal(go(find("vitest"), "ArrowRight"), find("vitest"));
	assert.equal(go(find("vitest"), "Home"), 0);
	assert.equal(go(find("Model"), "End"), find("vitest"));
});

test("what matches is added up once a path", () => {
	const root = flame.framesOf(tree());
	assert.deepEqual(flame.matching(root, ({ name }) => name === "make" || name === "cc"), { count: 2, ms: 40_000 });
	assert.deepEqual(flame.matching(root, ({ time }) => time === "idle"), { count: 2, ms: 40_000 });
	assert.deepEqual(flame.matching(root, () => false), { count: 0, ms: 0 });
});

/* --- On the page --- */

const shows = (name, body) =>
	scene(name, async (tools) => {
		const { browser, broker } = tools;
		const answers = { report: tree() };
		await browser.context.route(`${new URL(broker.url).origin}/api/report**`, (route) =>
			route.fulfill({ json: answers.report }));
		try {
			await body({ ...tools, answers });
		} finally {
			await browser.context.unrouteAll({ behavior: "wait" });
		}
	});
async function openFlame({ open }, more = "") {
	const page = await open(`/report?from=0&to=100000&view=flame${more}`);
	await page.waitForSelector(".flame-graph");
	return page;
}
const frame = (page, name) => page.getByRole("treeitem", { name: new RegExp(`^${name}:`) });
const param = (page, name) => page.evaluate((it) => new URLSearchParams(location.hash.split("?")[1] ?? "").get(it), name);
const told = (page) => page.locator(".flame-told").innerText();
const held = (page, name) =>
	becomes(page, (it) => document.activeElement?.getAttribute("aria-label")?.startsWith(`${it}:`), name);

shows("key 5 is the view; a frame says what it is, and its figures", async (tools) => {
	const page = await tools.open("/report?from=0&to=100000");
	await page.waitForSelector(".report tbody tr");
	await page.keyboard.press("5");
	await page.waitForSelector(".flame-graph");
	assert.equal(await param(page, "view"), "flame");
	assert.equal(await page.getByRole("tab", { selected: true }).textContent(), "Flame");
	assert.match(await told(page), /^All\n*.*inclusive 3:20/s);
	await frame(page, "make").hover();
	await hasText(page, ".flame-told", "make");
	assert.match(await told(page), /inclusive 0:40, self 0:10, 1 ×, 20\.0 %/);
	assert.match(await told(page), /claude › claude api-server › Turn/);
	assert.equal(await frame(page, "cc").getAttribute("aria-label"), "cc: inclusive 0:25, self 0:25, 3 ×, 12.5 %");
	assert.ok(await frame(page, "make").locator("code").count());
	/* As wide as said, beside each other. */
	const box = async (name) => (await frame(page, name).boundingBox());
	const [all, make, read] = [await box("All"), await box("make"), await box("Read")];
	assert.ok(Math.abs(make.width / (all.width + 1) - 40 / 220) < 0.005, `${make.width} of ${all.width}`);
	assert.ok(Math.abs(read.x + read.width - make.x) < 2.5, `${read.x} + ${read.width}, ${make.x}`);
	assert.match(await page.locator(".flame-note").innerText(), /0:20 ran side by side/);
	/* Its colour is that of its class on the timeline. */
	const colours = await page.evaluate(() => {
		const probe = document.createElement("i");
		document.body.append(probe);
		probe.style.background = "var(--span-tool)";
		return [getComputedStyle(probe).backgroundColor, getComputedStyle(document.querySelector('.flame-frame[data-time="tool"]')).backgroundColor];
	});
	assert.equal(colours[0], colours[1]);
});

shows("a click zooms in, one on the root or Esc out, and the address keeps it", async (tools) => {
	const page = await openFlame(tools);
	await frame(page, "make").click();
	await frame(page, "Read").waitFor({ state: "detached" });
	assert.match(await param(page, "zoom"), /\/tool make$/);
	const widths = await page.evaluate(() => [...document.querySelectorAll("[role=treeitem]")].map((it) => Math.round(it.getBoundingClientRect().width)));
	assert.equal(new Set(widths.slice(0, 5)).size, 1, String(widths));
	await page.reload();
	await page.waitForSelector(".flame-graph");
	assert.equal(await frame(page, "Read").count(), 0);
	assert.match(await page.locator(".flame-note").innerText(), /Esc shows all again/);
	/* What it is inside of is one click away. */
	await frame(page, "Turn").click();
	await frame(page, "Read").waitFor();
	assert.equal(await frame(page, "vitest").count(), 0);
	await frame(page, "All").click();
	await frame(page, "vitest").waitFor();
	assert.equal(await param(page, "zoom"), null);
	await frame(page, "make").click();
	await frame(page, "Read").waitFor({ state: "detached" });
	await page.keyboard.press("Escape");
	await frame(page, "vitest").waitFor();
	assert.equal(await param(page, "zoom"), null);
	/* Another view forgets it. */
	await frame(page, "make").click();
	await frame(page, "Read").waitFor({ state: "detached" });
	await page.keyboard.press("2");
	await page.waitForSelector(".report tbody tr");
	assert.equal(await param(page, "zoom"), null);
});

shows("back undoes a zoom, and forward does it again", async (tools) => {
	const page = await openFlame(tools);
	const zoom = () => param(page, "zoom");
	const entries = () => page.evaluate(() => history.length);
	const before = await entries();
	await frame(page, "make").click();
	await frame(page, "Read").waitFor({ state: "detached" });
	/* The root of what is shown is no step. */
	await frame(page, "Turn").click();
	await frame(page, "Read").waitFor();
	assert.equal(await entries(), before + 2);
	await page.goBack();
	await frame(page, "Read").waitFor({ state: "detached" });
	assert.match(await zoom(), /\/tool make$/);
	await page.goBack();
	await frame(page, "vitest").waitFor();
	assert.equal(await zoom(), null);
	assert.equal(await param(page, "view"), "flame");
	await page.goForward();
	await frame(page, "Read").waitFor({ state: "detached" });
	await frame(page, "make").waitFor();
	/* Esc is a step as well. */
	await page.keyboard.press("Escape");
	await frame(page, "vitest").waitFor();
	await page.goBack();
	await frame(page, "Read").waitFor({ state: "detached" });
	/* From elsewhere it leads to where it was. */
	await page.getByRole("link", { name: "Fleet", exact: true }).click();
	await page.waitForSelector(".fleet-row");
	await page.goBack();
	await frame(page, "make").waitFor();
	assert.equal(await frame(page, "Read").count(), 0);
	assert.match(await zoom(), /\/tool make$/);
});

shows("the keyboard reaches every frame: Tab, arrows, Enter, Esc", async (tools) => {
	const page = await openFlame(tools);
	await page.getByRole("tab", { name: "Flame" }).focus();
	for (let i = 0; i < 3; i++) await page.keyboard.press("Tab"); /* filter, panel, tree */
	await held(page, "All");
	await page.keyboard.press("ArrowDown");
	await page.keyboard.press("ArrowDown");
	await page.keyboard.press("ArrowDown");
	await held(page, "Turn");
	await page.keyboard.press("ArrowDown");
	await held(page, "Model");
	await page.keyboard.press("ArrowRight");
	await page.keyboard.press("ArrowRight");
	await held(page, "make");
	assert.match(await told(page), /^make/);
	await page.keyboard.press("Enter");
	await frame(page, "Read").waitFor({ state: "detached" });
	await held(page, "make");
	await page.keyboard.press("ArrowDown");
	await held(page, "cc");
	/* One frame is in the order of Tab. */
	assert.equal(await page.evaluate(() => document.querySelectorAll('[role=treeitem][tabindex="0"]').length), 1);
	await page.keyboard.press("Escape");
	await frame(page, "Read").waitFor();
	await held(page, "cc");
	/* Enter on what has the whole width goes back to what it is part of. */
	await page.keyboard.press("Enter");
	await page.keyboard.press("Enter");
	await becomes(page, () => new URLSearchParams(location.hash.split("?")[1]).get("zoom")?.endsWith("/tool make"));
	assert.deepEqual(tools.broker.posts, []);
});

shows("the filter dims what does not match, and adds up what does", async (tools) => {
	const page = await openFlame(tools, "&q=make");
	await page.waitForSelector(".flame-frame[data-dim]");
	const bright = () => page.evaluate(() => [...document.querySelectorAll(".flame-frame:not([data-dim])")].map((it) => it.textContent));
	assert.deepEqual(await bright(), ["make"]);
	assert.match(await page.locator(".flame-note").innerText(), /1 frame with these words: 0:40, 20\.0 %/);
	await page.getByRole("searchbox", { name: "Filter rows" }).fill("");
	await page.waitForSelector(".flame-frame[data-dim]", { state: "detached" });
});

shows("a frame that grows keeps its element and the focus; when it goes, what it was part of has it", async (tools) => {
	/* What goes on is asked for again by itself. */
	const page = await tools.open("/report?range=hour&view=flame");
	await page.waitForSelector(".flame-graph");
	await frame(page, "cc").focus();
	await page.evaluate(() => { window.held = document.activeElement; });
	tools.answers.report = tree();
	const make = tools.answers.report.rows[0].rows[0].rows[0].rows[0];
	make.rows[0].inclusive += 5_000;
	await becomes(page, () => window.held.getAttribute("aria-label").includes("inclusive 0:30"));
	assert.ok(await page.evaluate(() => document.activeElement === window.held));
	tools.answers.report = tree();
	tools.answers.report.rows[0].rows[0].rows[0].rows[0].rows = [];
	await held(page, "make");
});

shows("C copies the tree that is drawn, open to its ends", async (tools) => {
	const page = await openFlame(tools);
	await page.evaluate(() => {
		window.copied = [];
		Object.defineProperty(navigator, "clipboard", { value: { writeText: async (text) => { window.copied.push(text); } } });
	});
	await page.keyboard.press("c");
	await hasText(page, ".report-head [role=status]", "Table copied");
	const [text] = await page.evaluate(() => window.copied);
	assert.match(text, /^ +cc +3 +0:25 +0:25 +12\.5 %/m);
});

shows("names of a peer stay text", async (tools) => {
	tools.answers.report.rows[0].rows[0].rows[0].rows[1].name = '<img src=x onerror="alert(1)">\u202e';
	const page = await openFlame(tools);
	assert.equal(await page.locator(".report img").count(), 0);
	await hasText(page, ".flame-frame .unseen", "U+202E");
});

shows("nothing happened, or the view does not come: a sentence", async (tools) => {
	tools.answers.report = { ...tree(), total: { model: 0, tool: 0, you: 0, idle: 0 }, lanes: [], rows: [] };
	const page = await tools.open("/report?from=0&to=100000&view=flame");
	await hasText(page, ".nothing", "Nothing happened in this range");
	tools.answers.report = tree();
	await tools.browser.context.route("**/flame-*.js", (route) => route.abort());
	const other = await tools.open("/report?from=0&to=100000&view=flame");
	await hasText(other, "[role=alert]", "This view did not come");
});

shows("axe finds nothing, in both themes, wide and on a phone; the phone fits", async (tools) => {
	const page = await openFlame(tools);
	await page.evaluate(axe);
	for (const filter of ["", "make"])
		for (const [width, height] of [[1440, 900], [375, 667]])
			for (const colorScheme of ["dark", "light"]) {
				await page.setViewportSize({ width: 1440, height: 900 });
				await page.getByRole("searchbox", { name: "Filter rows" }).fill(filter);
				await page.setViewportSize({ width, height });
				await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
				await drawn(page);
				const found = await page.evaluate(async () =>
					(await window.axe.run(document, { resultTypes: ["violations"] })).violations.map(
						({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map(({ html }) => html.slice(0, 160)).join(" | ")}`));
				assert.deepEqual(found, [], `${filter} ${width} ${colorScheme}`);
			}
	assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 375);
	const high = await page.evaluate(() => Math.min(...[...document.querySelectorAll("[role=treeitem]")].map((it) => it.getBoundingClientRect().height)));
	assert.ok(high >= 43, String(high));
});
