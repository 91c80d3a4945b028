/* The search screen: words typed, hits in groups, opened in place, found again by "back". */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { becomes, chord, drawn, hasText, pageTests } from "./support/page.mjs";
import { lanes, pos, row } from "./support/scene.mjs";

const scene = pageTests();
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

const DAY = 86_400_000;
/* No day ends around it. */
const NOON = new Date().setHours(12, 0, 0, 0);
const hit = (of, n, text, over = {}) => ({
	id: String(1_000_000 - n),
	agent: of.agent,
	lane: of.id,
	row: `row-${n}`,
	pos: pos(n),
	t: NOON - n * 1000,
	type: "message",
	text,
	...over,
});
const asked = (broker) => broker.requests.filter((line) => line.includes("/api/search"));
const field = (page) => page.getByRole("searchbox", { name: "Search everything" });
const hits = (page) => page.locator(".hit");
async function openSearch({ open }, query = "") {
	const page = await open(`/search${query && `?q=${encodeURIComponent(query)}`}`);
	await page.waitForSelector(".search");
	/* Names come with the stream, whose first word may be later than the hits. */
	await page.waitForSelector(".tray");
	return page;
}
const param = (page) => page.evaluate(() => new URLSearchParams(location.hash.split("?")[1] ?? "").get("q"));
const focused = (page) => page.evaluate(() => document.activeElement?.dataset.hit ?? document.activeElement?.tagName);

scene("search is one of the screens: its link, its keys, its title; the field has the focus", async ({ open }) => {
	const page = await open();
	await page.waitForSelector(".fleet-row");
	await page.getByRole("link", { name: "Search", exact: true }).click();
	await page.waitForSelector(".search-ways");
	assert.match(await page.title(), /Search · perch$/);
	assert.equal(await page.locator('.screens [aria-current="page"]').textContent(), "Search");
	await becomes(page, () => document.activeElement?.matches(".search .field"));
	await page.keyboard.press("Escape");
	await page.keyboard.press("b");
	await page.waitForSelector(".fleet-row");
	await page.keyboard.press("/");
	await becomes(page, () => document.activeElement?.matches(".search .field"));
	assert.equal(await field(page).inputValue(), "");
	await page.keyboard.press("Escape");
	await chord(page, "g", "f");
	await page.waitForSelector(".fleet-row");
	await chord(page, "g", "s");
	await page.waitForSelector(".search");
});

scene("what is typed is asked for after a rest, one at a time, and the last word wins", async (tools) => {
	const { broker } = tools;
	broker.hits = [hit(lanes.claude, 1, "the alpha word"), hit(lanes.claude, 2, "alphabet")];
	const page = await openSearch(tools);
	let release;
	broker.hold = () => new Promise((resolve) => { release = resolve; });
	await field(page).pressSequentially("alp");
	await broker.until(() => asked(broker).length === 1);
	/* Two more questions while the first is in the air: the one in between is never asked. */
	await field(page).fill("alpha");
	await becomes(page, () => location.hash.includes("q=alpha"));
	await field(page).fill("alphabet");
	await becomes(page, () => location.hash.includes("q=alphabet"));
	assert.equal(asked(broker).length, 1);
	broker.hold = null;
	release();
	await broker.until(() => asked(broker).length === 2);
	await becomes(page, () => document.querySelectorAll(".hit").length === 1);
	await hasText(page, ".hit mark", "alphabet");
	assert.match(asked(broker)[1], /q=alphabet&/);
	assert.equal(asked(broker).length, 2);
	assert.equal(await page.locator(".search").getAttribute("data-dropped"), "1");
});

scene("hits are in groups of agent and day, the newest first, with their words marked", async (tools) => {
	const { broker } = tools;
	broker.hits = [
		hit(lanes.claude, 1, "needle one"),
		hit(lanes.claude, 2, "needle two", { type: "tool", title: "Ran make test" }),
		hit(lanes.codex, 3, "a needle three"),
		hit(lanes.claude, 4, "needle four"),
		hit(lanes.claude, 5, "needle five", { t: NOON - 40 * DAY }),
	];
	const page = await openSearch(tools, "needle");
	await becomes(page, () => document.querySelectorAll(".hit").length === 5);
	const heads = await page.locator(".search-hits h2").allTextContents();
	assert.equal(heads.length, 4);
	assert.match(heads[0], /claude.*api-server/);
	assert.match(heads[1], /codex.*web/);
	assert.deepEqual(await page.locator(".hit mark").allTextContents(), Array(5).fill("needle"));
	assert.match(await hits(page).nth(1).textContent(), /Tool.*Ran make test … needle two/);
	await hasText(page, ".search-said", "5 hits");
});

scene("more hits come when they are asked for, behind those that are there", async (tools) => {
	const { broker } = tools;
	broker.hits = Array.from({ length: 120 }, (_, i) => hit(lanes.claude, i + 1, `needle ${i}`));
	const page = await openSearch(tools, "needle");
	await hasText(page, ".search-said", "The 50 newest hits; there are more");
	await page.getByRole("button", { name: "Earlier hits" }).click();
	await becomes(page, () => document.querySelectorAll(".hit").length === 100);
	await page.getByRole("button", { name: "Earlier hits" }).click();
	await becomes(page, () => document.querySelectorAll(".hit").length === 120);
	await hasText(page, ".search-said", "120 hits");
	assert.equal(await page.getByRole("button", { name: "Earlier hits" }).count(), 0);
	assert.equal(new Set(await hits(page).evaluateAll((all) => all.map(({ dataset }) => dataset.hit))).size, 120);
});

scene("keys: down into the hits and up again, Enter opens the row, back finds the hit focused", async (tools) => {
	const { broker } = tools;
	const of = lanes.claude;
	broker.putRow(row(of, 9, "message", { text: "the needle is here" }));
	broker.hits = [hit(of, 40, "needle elsewhere"), hit(of, 9, "the needle is here"), hit(of, 8, "needle")];
	const page = await openSearch(tools, "needle");
	await becomes(page, () => document.querySelectorAll(".hit").length === 3);
	await field(page).focus();
	await page.keyboard.press("ArrowDown");
	assert.equal(await focused(page), broker.hits[0].id);
	await page.keyboard.press("ArrowUp");
	assert.equal(await focused(page), "INPUT");
	await page.keyboard.press("ArrowDown");
	await page.keyboard.press("j");
	assert.equal(await focused(page), broker.hits[1].id);
	await page.keyboard.press("/");
	assert.equal(await focused(page), "INPUT");
	await page.keyboard.press("ArrowDown");
	await page.keyboard.press("ArrowDown");
	await page.keyboard.press("Enter");
	await page.waitForSelector('.entry[data-row="row-9"]');
	await becomes(page, () => document.querySelector('.entry[data-row="row-9"]')?.matches("[aria-current], [data-current], [data-focus]"));
	await page.goBack();
	await page.waitForSelector(".search");
	await becomes(page, (id) => document.activeElement?.dataset.hit === id, broker.hits[1].id);
	assert.equal(await field(page).inputValue(), "needle");
	assert.equal(asked(broker).length, 1);
});

scene("a row that lies far back is opened with what is around it, and the newest is one key away", async (tools) => {
	const { broker } = tools;
	const of = lanes.claude;
	broker.rows.set(of.id, Array.from({ length: 9000 }, (_, i) => row(of, i + 1, "note", { text: `note ${i + 1}` })));
	broker.hits = [hit(of, 700, "note 700", { type: "note" }), hit(of, 8000, "note 8000", { type: "note" })];
	const page = await openSearch(tools, "note");
	await hits(page).first().click();
	await page.waitForSelector('.entry[data-row="row-700"]');
	await hasText(page, ".entry", "note 700");
	await page.waitForSelector('.entry[data-row="row-701"]');
	await page.getByRole("button", { name: "To the newest" }).waitFor();
	/* What comes now is newer than a hole: it waits until the reader goes there. */
	broker.publish({ rows: [row(of, 9001, "note", { text: "note 9001" })] });
	await drawn(page);
	assert.equal(await page.locator('.entry[data-row="row-9001"]').count(), 0);
	await page.keyboard.press("g");
	await page.waitForSelector('.entry[data-row="row-9001"]');
	assert.equal(await page.getByRole("button", { name: "To the newest" }).count(), 0);
	/* One that is nearer comes with all between it and the newest. */
	await page.goBack();
	await page.waitForSelector(".search");
	await hits(page).nth(1).click();
	await page.waitForSelector('.entry[data-row="row-8000"]');
	assert.equal(await page.getByRole("button", { name: "To the newest" }).count(), 0);
	/* The address alone leads there too. */
	await page.goBack();
	await page.waitForSelector(".search");
	await hits(page).first().click();
	await page.waitForSelector('.entry[data-row="row-700"]');
	await page.reload();
	await page.waitForSelector('.entry[data-row="row-700"]');
});

scene("back and forward go through what was searched for", async (tools) => {
	const { broker } = tools;
	broker.hits = [hit(lanes.claude, 1, "alpha"), hit(lanes.claude, 2, "beta")];
	const page = await openSearch(tools);
	await field(page).fill("alpha");
	await page.keyboard.press("Enter");
	await hasText(page, ".hit mark", "alpha");
	await field(page).fill("beta");
	await hasText(page, ".hit mark", "beta");
	assert.equal(await param(page), "beta");
	await page.goBack();
	await hasText(page, ".hit mark", "alpha");
	assert.equal(await field(page).inputValue(), "alpha");
	await page.goForward();
	await hasText(page, ".hit mark", "beta");
	await page.goBack();
	await hasText(page, ".hit mark", "alpha");
	await page.reload();
	await hasText(page, ".hit mark", "alpha");
});

scene("nothing, an error and an index that is behind are sentences with the next step", async (tools) => {
	const { broker } = tools;
	broker.hits = [hit(lanes.claude, 1, "router")];
	const page = await openSearch(tools, "rout7");
	await hasText(page, ".search-hits", "Nothing has all of these words.");
	await field(page).fill("router nothing");
	await page.getByRole("button", { name: "begin with nothing" }).waitFor();
	await field(page).fill("rou");
	await hasText(page, ".hit mark", "rou");
	await field(page).fill("kind:cat");
	await hasText(page, ".search .warning", "Not searched: kind:cat is none.");
	broker.indexing = true;
	await field(page).fill("router");
	await hasText(page, ".search-said", "still being indexed");
	await becomes(page, () => !document.querySelector(".search .warning"));
	broker.refuse = { status: 503, error: "the index of words was broken" };
	/* Asked for once, after a rest: a second question could be answered well, and take the button away. */
	await field(page).fill("router ");
	await hasText(page, ".search .warning", "the index of words was broken");
	broker.refuse = null;
	await page.getByRole("button", { name: "Try again" }).click();
	await becomes(page, () => !document.querySelector(".search .warning"));
	await field(page).fill("");
	await page.waitForSelector(".search-ways");
	await becomes(page, () => !document.querySelector(".hit"));
});

const HOSTILE = [
	"<img src=x onerror=alert(1)> needle <script>alert(2)</script>",
	"needle\u202egnp.exe\u2066 \u200b\u0007\u001b[31m",
	`needle ${"x".repeat(100_000)}`,
	"needle \ud800 </textarea><svg onload=alert(3)>",
	"\u05d0\u05d1 needle \u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u6771\u4eac \ud83d\ude80",
];
scene("who the fleet has not is called as the archive says, or how the id begins", async (tools) => {
	const { broker } = tools;
	const lane = (two, channel) => ({ agent: two.repeat(32), id: `${two.repeat(32)}/${channel}-0000-4000-8000-000000000001` });
	const attic = lane("ab", "0f0f0f0f");
	broker.putRow(row(attic, 1, "message", { text: "of old", end: Date.now() }));
	broker.hits = [
		hit(attic, 1, "of old", { agentName: "retired", channelName: "at\u202etic" }),
		hit(lane("cd", "0e0e0e0e"), 2, "of old too"),
	];
	const page = await openSearch(tools, "old");
	await hasText(page, ".search section:nth-of-type(1) .group-head", /retired\s*at.*tic/);
	await hasText(page, ".search section:nth-of-type(2) .group-head", /cdcdcdcd\s*0e0e0e0e/);
	assert.ok(!(await page.locator(".search").textContent()).includes("\u202e"));
	await hits(page).first().click();
	await hasText(page, ".agent-head", /retired\s*at.*tic/);
});

scene("a hostile archive is shown, not obeyed", async (tools) => {
	const { broker } = tools;
	broker.hits = HOSTILE.map((text, i) =>
		hit(lanes.claude, i + 1, text, { type: i % 2 ? "tool" : "note", row: "../../evil#?&\"'<", title: i ? text.slice(0, 200) : undefined }));
	const page = await openSearch(tools, "needle");
	await becomes(page, (count) => document.querySelectorAll(".hit").length === count, HOSTILE.length);
	assert.equal(await page.locator(".search img, .search script, .search svg").count(), 0);
	assert.ok((await page.locator(".hit .unseen").allTextContents()).includes("U+202E"));
	await becomes(page, () => document.documentElement.scrollWidth <= innerWidth);
	await field(page).fill("\"><img src=x onerror=alert(4)>");
	await hasText(page, ".search-hits", "Nothing has all of these words.");
});

scene("on a phone all fits the width, and a finger the hits", async (tools) => {
	const { broker } = tools;
	broker.hits = [hit(lanes.claude, 1, "needle one"), hit(lanes.codex, 2, `needle in ${"a/long/path/".repeat(20)}`, { type: "tool" })];
	const page = await openSearch(tools, "needle");
	await page.setViewportSize({ width: 375, height: 667 });
	await becomes(page, () => document.querySelectorAll(".hit").length === 2);
	await becomes(page, () => document.documentElement.scrollWidth <= innerWidth);
	const box = await hits(page).first().boundingBox();
	assert.ok(box.height >= 44, `${box.height}`);
});

for (const theme of ["light", "dark"])
	for (const [width, height] of [[1440, 900], [375, 667]])
		scene(`axe finds nothing: ${theme}, ${width} wide, with hits and without words`, async (tools) => {
			const { broker } = tools;
			broker.hits = [
				hit(lanes.claude, 1, "Refactored the needle loader and ran the tests."),
				hit(lanes.claude, 61, "make -j8 needle && ctest", { type: "tool", title: "Ran ctest --output-on-failure" }),
				hit(lanes.codex, 300, "wants to run curl needle", { type: "permission" }),
			];
			const page = await openSearch(tools, "needle");
			await page.emulateMedia({ colorScheme: theme, reducedMotion: "reduce" });
			await page.setViewportSize({ width, height });
			await becomes(page, () => document.querySelectorAll(".hit").length === 3);
			for (const words of ["needle", ""]) {
				await field(page).fill(words);
				await becomes(page, (empty) => !document.querySelector(".hit") === empty, !words);
				await page.evaluate(axe);
				const { violations } = await page.evaluate(() => window.axe.run());
				assert.deepEqual(violations.map(({ id, nodes }) => [id, nodes.map(({ html }) => html)]), []);
				if (process.env.PERCH_SHOTS && words)
					await page.screenshot({ path: `${process.env.PERCH_SHOTS}/search-${theme}-${width}.png` });
			}
		});
