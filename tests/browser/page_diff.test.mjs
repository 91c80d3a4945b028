import assert from "node:assert/strict";
import { becomes, drawn, hasText, pageTests } from "./support/page.mjs";
import { lanes, pos, row } from "./support/scene.mjs";

const scene = pageTests();
const of = lanes.claude;
const AT = pos(7);

const HUNK = {
	old: 86,
	new: 86,
	lines: [
		" for (;;) {",
		"-	if (strcmp(a, b) == 0)",
		"-		return handler;",
		"+	const struct route *r = &routes[i];",
		"+	if (path_equal(a, b))",
		"+		return r->handler;",
		" }",
	],
};
const edit = (over = {}, rowOver = {}) =>
	row(of, 1, "tool", {
		kind: "edit",
		status: "completed",
		verb: "Edited",
		object: "src/router.c",
		outcome: "+3 −2",
		partsAt: AT,
		parts: [
			{ type: "diff", path: "/src/router.c", added: 3, removed: 2, hunks: [HUNK], more: false, ...over },
		],
		...rowOver,
	});
async function openDiff({ broker, openAgent }, ...args) {
	broker.rows.set(of.id, [edit(...args)]);
	const page = await openAgent();
	await page.waitForSelector(".entry[data-row=row-1]");
	const folded = page.locator("details:not([open]) > summary.panel-head");
	if (await folded.count()) await folded.first().click();
	await page.waitForSelector(".diff");
	return page;
}
const cells = (page) =>
	page
		.locator(".diff tr")
		.evaluateAll((rows) => rows.map((e) => [...e.cells].map((cell) => cell.textContent)));
const layouts = (page, name) =>
	page.getByRole("group", { name: "Layout of diffs" }).getByRole("button", { name });

scene("side by side what was changed stands beside what it became", async (tools) => {
	const page = await openDiff(tools);
	assert.deepEqual((await cells(page))[1], ["87", "", "−", "	if (strcmp(a, b) == 0)"]);
	await page.evaluate(() => localStorage.removeItem("perch.diff"));
	await layouts(page, "Side by side").click();
	await page.waitForSelector(".diff.side");
	assert.deepEqual(await cells(page), [
		["86", "", " for (;;) {".slice(1), "86", "", "for (;;) {"],
		["87", "−", "	if (strcmp(a, b) == 0)", "87", "+", "	const struct route *r = &routes[i];"],
		["88", "−", "		return handler;", "88", "+", "	if (path_equal(a, b))"],
		["", "", "", "89", "+", "		return r->handler;"],
		["89", "", "}", "90", "", "}"],
	]);
	/* The choice outlives the page, and holds for all. */
	await page.reload();
	await page.waitForSelector(".diff.side");
	await layouts(page, "Inline").click();
	await page.waitForSelector(".diff:not(.side)");
	assert.equal(await layouts(page, "Inline").getAttribute("aria-pressed"), "true");
	await page.evaluate(() => localStorage.removeItem("perch.diff"));
});

scene("without a choice the width decides", async (tools) => {
	const page = await openDiff(tools);
	await page.evaluate(() => localStorage.removeItem("perch.diff"));
	await page.reload();
	await page.waitForSelector(".diff:not(.side)");
	await page.setViewportSize({ width: 2200, height: 900 });
	await page.waitForSelector(".diff.side");
	await page.setViewportSize({ width: 1000, height: 900 });
	await page.waitForSelector(".diff:not(.side)");
});

scene("the words that changed are marked, in both layouts", async (tools) => {
	const hunk = { old: 1, new: 1, lines: ["-int count = 0;", "+int total = 0;"] };
	const page = await openDiff(tools, { hunks: [hunk] });
	for (const name of ["Inline", "Side by side"]) {
		await layouts(page, name).click();
		await drawn(page);
		assert.equal(await page.locator(".diff del").textContent(), "count");
		assert.equal(await page.locator(".diff ins").textContent(), "total");
	}
	await page.evaluate(() => localStorage.removeItem("perch.diff"));
});

scene("the new text is copied whole", async ({ broker, browser, openAgent }) => {
	await browser.context.grantPermissions(["clipboard-read", "clipboard-write"]);
	broker.part = ({ side, at, part, agent }) =>
		side === "new" && at === AT && part === "0" && agent === of.agent && { text: "all\nof it\n" };
	const page = await openDiff({ broker, openAgent });
	await page.getByRole("button", { name: "Copy new text" }).click();
	await hasText(page, ".panel-tools", "Copied");
	assert.equal(await page.evaluate(() => navigator.clipboard.readText()), "all\nof it\n");
	/* Where nobody has it, it says so. */
	broker.part = () => null;
	await page.getByRole("button", { name: "Copy new text" }).click();
	await hasText(page, ".panel-tools", "Not copied: there is no diff at this place.");
});

scene("20,000 lines are read page by page, a page of DOM at a time", async (tools) => {
	const { broker } = tools;
	const lineAt = (i) => (i < 20_000 ? `-old ${i}` : `+new ${i - 20_000}`);
	const stretch = (from, limit) => [
		{
			old: Math.min(from, 20_000) + 1,
			new: Math.max(from - 20_000, 0) + 1,
			lines: Array.from({ length: Math.min(limit, 40_000 - from) }, (_, i) => lineAt(from + i)),
		},
	];
	const size = { type: "diff", path: "/src/router.c", added: 20_000, removed: 20_000 };
	broker.part = ({ from, limit }) => ({
		...size,
		hunks: stretch(Number(from), Number(limit)),
		more: Number(from) + Number(limit) < 40_000,
		lines: 40_000,
	});
	const page = await openDiff(tools, { ...size, hunks: stretch(0, 200), more: true });
	await hasText(page, ".panel-head", "+20,000 −20,000");
	const range = (words) => hasText(page, ".panel-tools", words);
	await range("Lines 1–200");
	const later = page.getByRole("button", { name: "Later lines" });
	await later.click();
	await range("Lines 201–700 of 40,000");
	for (let i = 0; i < 5; i++) {
		const words = `Lines ${(701 + 500 * i).toLocaleString("en")}–`;
		await later.click();
		await range(words);
	}
	assert.equal(await page.locator(".diff tr").count(), 500);
	await page.getByRole("button", { name: "Earlier lines" }).click();
	await range("Lines 2,201–2,700 of 40,000");
	await page.getByRole("button", { name: "Side by side" }).click();
	await page.waitForSelector(".diff.side");
	assert.equal(await page.locator(".diff tr").count(), 500);
	await page.evaluate(() => localStorage.removeItem("perch.diff"));
});

scene("where two columns have no room a diff is inline, whatever was chosen", async (tools) => {
	const page = await openDiff(tools);
	await layouts(page, "Side by side").click();
	await page.waitForSelector(".diff.side");
	await page.setViewportSize({ width: 375, height: 667 });
	await page.waitForSelector(".diff:not(.side)");
	const head = await page.locator("summary.panel-head").boundingBox();
	assert.ok(head.height <= 40, "its head is one line");
	await page.setViewportSize({ width: 1440, height: 900 });
	await page.waitForSelector(".diff.side");
	await page.evaluate(() => localStorage.removeItem("perch.diff"));
});

scene("large counts are grouped as everywhere", async (tools) => {
	const page = await openDiff(tools, {}, { outcome: "+10000 −2500" });
	await hasText(page, ".entry-line", /Edited src\/router\.c \+10,000 −2,500/);
});
