import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { becomes, chord, comesTo, drawn, hasText, pageTests, tooSmall, width as pageWidth } from "./support/page.mjs";
import { lanes } from "./support/scene.mjs";

const scene = pageTests();
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

const asked = (broker) => broker.requests.filter((line) => line.includes("/api/timeline"));
const reports = (broker) => broker.requests.filter((line) => line.includes("/api/report"));
const perch = (page) => page.evaluate(() => {
	const { draws, drawMs, lanes, requests, view, range, follow, picked, answer } = window.__perch.timeline;
	return { draws, drawMs, lanes, requests, view, range, follow, picked, answer };
});
/** Waits until @what, a function of window.__perch.timeline and @value, is true; it is not there at once after a reload. */
const until = (page, what, value = null) =>
	becomes(page, `!!window.__perch?.timeline && !!(${what})(window.__perch.timeline, ${JSON.stringify(value)})`);
const span = async (page, name, lane) =>
	(await page.evaluate(() => window.__perch.timeline.spans())).find((it) => it.name === name && (!lane || it.lane === lane.id));
const view = ({ times }, from, to) => `view=${times.start + from * 1000}-${times.start + to * 1000}`;

/** All is where it stays: what comes with the stream moves what is below it. */
async function stands(page) {
	await page.waitForSelector(".tray");
	await page.waitForSelector(".lanes canvas", { state: "attached" });
	await until(page, "(it) => it.spans().length > 0 && it.draws > 0");
	await drawn(page);
}
/** The timeline of the last minutes of the scene, standing still. */
async function openTimeline({ broker, open }, query = view(broker, 340, 640)) {
	const page = await open(`/timeline?${query}`);
	await stands(page);
	return page;
}
/* From then on the page waits for an answer, and has drawn those that it got: one question is in
 * the air at most. Ends with what answers it. */
async function unanswered(page, broker) {
	let release;
	broker.hold = () => new Promise((resolve) => { release = resolve; });
	await broker.until(() => release);
	await drawn(page);
	return () => {
		broker.hold = null;
		release();
	};
}
const middle = ({ x, y, width, height }) => [x + width / 2, y + height / 2];
async function ruler(page, from, to) {
	const box = await page.locator(".ruler canvas").boundingBox();
	await page.mouse.move(box.x + from, box.y + 38);
	await page.mouse.down();
	await page.mouse.move(box.x + (from + to) / 2, box.y + 38);
	await page.mouse.move(box.x + to, box.y + 38);
	await page.mouse.up();
}

scene("the timeline is one of the screens, and shows every lane beside the canvas", async ({ open, broker }) => {
	const page = await open();
	await page.waitForSelector(".fleet-row");
	await chord(page, "g", "t");
	await page.waitForSelector(".lanes canvas");
	assert.match(await page.title(), /Timeline · perch$/);
	await until(page, "(it) => it.spans().length > 0");
	await hasText(page, ".lanes li", "claudeapi-server");
	await hasText(page, ".lanes li", "Parts");
	assert.equal((await perch(page)).follow, true);
	/* A lane is drawn where its name is. */
	const name = await page.locator(".lanes li").filter({ hasText: "billing" }).boundingBox();
	const drawnAt = await span(page, "Task", lanes.billing);
	assert.ok(drawnAt.y > name.y && drawnAt.y + drawnAt.height <= name.y + name.height + 4);
	assert.deepEqual(broker.posts, []);
});

scene("what is drawn has the colours of what the time went into", async (tools) => {
	const page = await openTimeline(tools);
	const colours = await page.evaluate(() => {
		const canvas = document.querySelector(".lanes canvas");
		const { x: left, y: top } = canvas.getBoundingClientRect();
		const dense = devicePixelRatio;
		const at = (x, y) => [...canvas.getContext("2d").getImageData((x - left) * dense, (y - top) * dense, 1, 1).data].slice(0, 3).join();
		const probe = document.body.appendChild(document.createElement("i"));
		const ink = (token) => {
			probe.style.color = `var(--${token})`;
			return getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).join();
		};
		const find = (name) => window.__perch.timeline.spans().find((it) => it.name === name);
		const edit = find("apply_patch");
		const failed = find("vitest run");
		const out = [
			[at(edit.x + edit.width - 3, edit.y + 5), ink("span-tool")],
			/* The strip above it: a tool. */
			[at(edit.x + edit.width / 2, edit.y - 2 * 21 - 30 + 2 + 21 + 16), ink("time-tool")],
			[at(failed.x + failed.width / 2, failed.y + 2 + 16), ink("failed")],
		];
		probe.remove();
		return out;
	});
	for (const [is, wanted] of colours) assert.equal(is, wanted);
});

scene("nothing is drawn again that has not changed, and only lanes in sight", async (tools) => {
	/* A view of the past: now is not in it, so no second changes it. */
	const page = await openTimeline(tools, view(tools.broker, 100, 300));
	await unanswered(page, tools.broker);
	const before = await perch(page);
	await page.mouse.move(700, 20);
	await drawn(page);
	await drawn(page);
	assert.ok((await perch(page)).draws <= before.draws + 1);
	await page.setViewportSize({ width: 1440, height: 420 });
	await until(page, "(it, was) => it.lanes < was", before.lanes);
	const names = await page.locator(".lanes li").count();
	assert.ok(names < 10, `${names} names`);
});

scene("the overview is drawn when what it shows changes, not while the view moves", async (tools) => {
	const page = await openTimeline(tools);
	const overviews = () => page.evaluate(() => window.__perch.timeline.overviews);
	await until(page, "(it) => it.overviews > 0");
	const answer = await unanswered(page, tools.broker);
	const [before, { draws }] = [await overviews(), await perch(page)];
	for (let i = 0; i < 6; i++) {
		await page.keyboard.press("d");
		await drawn(page);
	}
	assert.ok((await perch(page)).draws > draws);
	assert.equal(await overviews(), before);
	/* Other lanes, another overview. */
	await page.getByRole("searchbox", { name: "Filter lanes" }).fill("docs");
	await until(page, "(it, was) => it.overviews > was", before);
	answer();
});

scene("W A S D, the wheel and dragging move the view; a pan ends following, Space begins it", async (tools) => {
	const page = await openTimeline(tools, "");
	assert.equal((await perch(page)).follow, true);
	const wide = ({ view: { from, to } }) => to - from;
	const first = await perch(page);
	await page.keyboard.press("w");
	await until(page, "(it, was) => it.view.to - it.view.from < was * 0.9", wide(first));
	/* A zoom about now still follows. */
	assert.equal((await perch(page)).follow, true);
	await page.keyboard.press("a");
	await until(page, "(it) => !it.follow");
	const left = await perch(page);
	await page.keyboard.press("d");
	await until(page, "(it, was) => it.view.from > was", left.view.from);
	await page.keyboard.press("s");
	await until(page, "(it, was) => it.view.to - it.view.from > was * 1.1", wide(left));
	/* A and D panned: they answered nothing. */
	assert.deepEqual(tools.broker.posts, []);
	await page.keyboard.press("Space");
	await until(page, "(it) => it.follow");
	const box = await page.locator(".lanes canvas").boundingBox();
	await page.mouse.move(box.x + 600, box.y + 300);
	await page.mouse.down();
	await page.mouse.move(box.x + 700, box.y + 300, { steps: 4 });
	await page.mouse.up();
	const dragged = await perch(page);
	assert.equal(dragged.follow, false);
	/* The moment under the cursor stays under it. */
	const under = dragged.view.from + (600 / box.width) * wide(dragged);
	await page.mouse.move(box.x + 600, box.y + 300);
	await page.mouse.wheel(0, -200);
	await until(page, "(it, was) => it.view.to - it.view.from < was", wide(dragged));
	const zoomed = await perch(page);
	const now = zoomed.view.from + (600 / box.width) * wide(zoomed);
	assert.ok(Math.abs(now - under) < (wide(zoomed) / box.width) * 2);
	await page.keyboard.press("Home");
	await until(page, "(it, start) => it.view.from <= start", tools.broker.times.start);
	await becomes(page, () => /view=\d+-\d+/.test(location.hash));
});

scene("a drag on the ruler is a range: what went into it, and a link to its report", async (tools) => {
	const { broker } = tools;
	const page = await openTimeline(tools);
	await ruler(page, 200, 600);
	await page.waitForSelector(".strip .legend");
	const { range, view: seen } = await perch(page);
	const width = (await page.locator(".ruler canvas").boundingBox()).width;
	assert.ok(Math.abs(range.from - (seen.from + (200 / width) * (seen.to - seen.from))) < 1000);
	await becomes(page, (from) => location.hash.includes(`range=${from}`), Math.round(range.from));
	const link = page.getByRole("link", { name: "Report of this range" });
	assert.match(await link.getAttribute("href"), new RegExp(`from=${Math.floor(range.from)}&to=${Math.ceil(range.to)}`));
	assert.ok(reports(broker).at(-1).includes(`from=${Math.floor(range.from)}`));
	await page.keyboard.press("Escape");
	await page.locator(".strip").waitFor({ state: "detached" });
	await ruler(page, 200, 600);
	await link.click();
	await page.waitForSelector(".report tbody tr");
	assert.match(await page.evaluate(() => location.hash), /#\/report\?from=\d+&to=\d+/);
});

scene("while a range is drawn out one question is in the air, and the last one wins", async (tools) => {
	const { broker } = tools;
	const page = await openTimeline(tools);
	let inAir = 0;
	let most = 0;
	const waiting = [];
	broker.hold = async (url) => {
		if (url.pathname !== "/api/report") return;
		most = Math.max(most, ++inAir);
		await new Promise((resolve) => waiting.push(resolve));
		inAir--;
	};
	const box = await page.locator(".ruler canvas").boundingBox();
	await page.mouse.move(box.x + 100, box.y + 38);
	await page.mouse.down();
	await page.mouse.move(box.x + 200, box.y + 38);
	await broker.until(() => waiting.length === 1);
	for (let x = 210; x <= 700; x += 10) await page.mouse.move(box.x + x, box.y + 38);
	await page.mouse.up();
	broker.hold = null;
	waiting[0]();
	await page.waitForSelector(".strip .legend");
	const { range } = await perch(page);
	await broker.until(() => reports(broker).at(-1).includes(`from=${Math.floor(range.from)}&to=${Math.ceil(range.to)}`));
	assert.equal(most, 1);
	assert.ok(reports(broker).length <= 3, `${reports(broker).length} questions for fifty moves`);
});

scene("one timeline question is in the air while the view is dragged", async (tools) => {
	const { broker } = tools;
	const page = await openTimeline(tools);
	let inAir = 0;
	let most = 0;
	const waiting = [];
	/* The first question waits, the second is answered, no other is. */
	broker.hold = async () => {
		most = Math.max(most, ++inAir);
		const first = new Promise((resolve) => waiting.push(resolve));
		if (waiting.length !== 2) await first;
		inAir--;
	};
	const box = await page.locator(".lanes canvas").boundingBox();
	await page.mouse.move(box.x + 100, box.y + 330);
	await page.mouse.down();
	for (let x = 150; x <= 1200; x += 30) await page.mouse.move(box.x + x, box.y + 330);
	await page.mouse.up();
	await broker.until(() => waiting.length === 1);
	const { view: at } = await perch(page);
	waiting[0]();
	/* The one that was asked next covers where the view is now. */
	await until(page, "(it, at) => it.answer.from <= at.from && it.answer.to >= at.to", at);
	assert.equal(most, 1);
});

scene("a click on a span opens its row in the transcript; hovering says what it is", async (tools) => {
	const page = await openTimeline(tools);
	const it = await span(page, "make test", lanes.claude);
	await page.mouse.move(it.x + it.width - 6, it.y + 10);
	await hasText(page, ".tip", "make test");
	assert.match(await page.locator(".tip").textContent(), /failed after 58 s/);
	await page.mouse.click(it.x + it.width - 6, it.y + 10);
	await page.waitForSelector('.transcript [data-row="row-83"]');
	assert.match(await page.evaluate(() => location.hash), /row-83$/);
	await page.goBack();
	await page.waitForSelector(".lanes canvas");
});

scene("an arrow leads from the owner's time to the call that an answer let go on, on that call's line", async (tools) => {
	const { spans } = tools.broker.times.lanes[0];
	const held = spans.find(({ t, name }) => name === "make test" && t === tools.broker.times.start + 459_000);
	/* A second call beside it, whose wait ends earlier. */
	spans.push({ ...held, name: "make lint", row: "row-lint", flags: 0, line: 1 });
	spans.push({ ...spans.find(({ kind }) => kind === 3), end: held.t + 20_000, row: "row-lint-wait", line: 1 });
	spans.sort((a, b) => a.t - b.t);
	const page = await openTimeline(tools);
	const waits = (await page.evaluate(() => window.__perch.timeline.spans())).filter(({ kind, open }) => kind === 3 && !open);
	const mine = waits.filter(({ lane }) => lane === tools.broker.times.lanes[0].id);
	const lint = await span(page, "make lint");
	assert.deepEqual(mine.map(({ line }) => line).sort(), [0, 1]);
	const low = mine.find(({ line }) => line === 1);
	assert.equal(low.y, lint.y);
	/* Half way down, in the row of turns, where each wait ends; nothing beside it. */
	const colours = await page.evaluate((waits) => {
		const canvas = document.querySelector(".lanes canvas");
		const { x: left, y: top } = canvas.getBoundingClientRect();
		const at = (x, y) => [...canvas.getContext("2d").getImageData(Math.round((x - left) * devicePixelRatio), Math.round((y - top) * devicePixelRatio), 1, 1).data].slice(0, 3);
		const probe = document.body.appendChild(document.createElement("i"));
		probe.style.color = "var(--time-you)";
		const you = getComputedStyle(probe).color.match(/\d+/g).slice(0, 3).map(Number);
		probe.remove();
		/* The line may lie between two pixels: what comes nearest to its colour. */
		const far = (x, y) => Math.min(...[-2, -1, 0, 1].map((dx) => at(x + dx, y).reduce((sum, n, i) => sum + Math.abs(n - you[i]), 0)));
		return waits.map(({ x, y, width, line }) => [far(x + width, y - 21 * line - 10), far(x + width - 12, y - 21 * line - 10)]);
	}, mine);
	for (const [on, beside] of colours) assert.ok(on < beside / 2, `${on} ${beside}`);
	await page.mouse.move(low.x + low.width / 2, low.y + 8);
	await hasText(page, ".tip", "then make lint was allowed");
	await page.mouse.move(...middle(mine.find(({ line }) => line === 0)));
	await hasText(page, ".tip", "then make test was allowed");
});

scene("times say what they can: the days of a day, the milliseconds of an instant", async ({ open, broker }) => {
	const { now } = broker.times;
	const page = await open(`/timeline?view=${now - 100_050}-${now - 100_000}&range=${now - 100_040}-${now - 100_020}`);
	await hasText(page, ".toolbar .span", "1 px is 0.0");
	assert.match(await page.locator(".toolbar .span").textContent(), /^[\d:]+\.\d{3} – [\d:]+\.\d{3}, .* 1 px is 0\.0[1-9] ms$/);
	await hasText(page, ".strip-head", "20 ms");
	assert.ok(!(await page.locator(".strip").textContent()).includes("0.02 s"));
	await page.goto(page.url().replace(/#.*/, `#/timeline?view=${now - 86_400_000}-${now}`));
	await becomes(page, () => /^\d+ \w{3,4},? [\d:]+ – \d+ \w{3,4},? [\d:]+,/.test(document.querySelector(".toolbar .span").textContent));
});

scene("comma and period go to neighbours, F brings one to the middle, R makes it the range, Enter opens it", async (tools) => {
	const page = await openTimeline(tools);
	const edit = await span(page, "apply_patch", lanes.codex);
	await page.keyboard.down("Shift");
	await page.mouse.click(...middle(edit));
	await page.keyboard.up("Shift");
	await until(page, "(it) => it.picked?.span.name === 'apply_patch'");
	await page.keyboard.press(".");
	await until(page, "(it) => it.picked.span.name === 'vitest run'");
	await page.keyboard.press(",");
	await until(page, "(it) => it.picked.span.name === 'apply_patch'");
	await page.keyboard.press(".");
	await page.keyboard.press("f");
	await until(page, "(it) => Math.abs((it.view.from + it.view.to) / 2 - (it.picked.span.t + it.picked.span.end) / 2) < 100");
	await page.keyboard.press("Alt+.");
	await until(page, "(it, was) => it.picked.span.name === 'vitest run' && it.picked.span.t > was", tools.broker.times.start + 500_000);
	await page.keyboard.press("r");
	await until(page, "(it) => it.range && it.range.from === it.picked.span.t && it.range.to === it.picked.span.end");
	await page.keyboard.press("Escape");
	await until(page, "(it) => !it.range && !it.picked");
	await page.keyboard.press(".");
	await until(page, "(it) => it.picked");
	await page.keyboard.press("Enter");
	await page.waitForSelector(".transcript");
});

scene("whoever follows a link leaves, though the address was about to be kept", async (tools) => {
	const page = await openTimeline(tools);
	await page.evaluate(() => {
		const filter = document.querySelector("[aria-label='Filter lanes']");
		location.hash = "#/";
		filter.value = "claude";
		filter.dispatchEvent(new Event("input", { bubbles: true }));
	});
	await page.waitForSelector(".fleet-row");
	assert.equal(await page.evaluate("location.hash"), "#/");
});

scene("Shift goes to the next span of that name, whoever's it is; a second F fills the view with it", async (tools) => {
	const page = await openTimeline(tools);
	const pick = async (name, lane) => {
		await page.keyboard.down("Shift");
		await page.mouse.click(...middle(await span(page, name, lane)));
		await page.keyboard.up("Shift");
		await until(page, "(it, [name, lane]) => it.picked?.span.name === name && it.picked.lane === lane", [name, lane.id]);
	};
	/* Alt stays in the lane, Shift goes to another: "rg" of codex, "Read" of claude and of billing. */
	await pick("Read", lanes.claude);
	const { picked } = await perch(page);
	await page.keyboard.press("Shift+.");
	await until(page, "(it, lane) => it.picked.span.name === 'Read' && it.picked.lane === lane", lanes.billing.id);
	await page.keyboard.press("Shift+,");
	await until(page, "(it, lane) => it.picked.lane === lane", lanes.claude.id);
	assert.equal((await perch(page)).picked.span.t, picked.span.t);
	const wide = ({ view: { from, to } }) => to - from;
	const first = await perch(page);
	await page.keyboard.press("f");
	await until(page, "(it) => Math.abs((it.view.from + it.view.to) / 2 - (it.picked.span.t + it.picked.span.end) / 2) < 100");
	assert.ok(Math.abs(wide(await perch(page)) - wide(first)) < 2, "the first F keeps the scale");
	await page.keyboard.press("f");
	await until(page, "(it, ms) => Math.abs(it.view.to - it.view.from - 1.2 * ms) < 100", picked.span.end - picked.span.t);
});

scene("with Shift a drag is one more range; those that touch are one; the broker is asked for exactly these", async (tools) => {
	const page = await openTimeline(tools);
	const shift = async (from, to) => {
		await page.keyboard.down("Shift");
		await ruler(page, from, to);
		await page.keyboard.up("Shift");
	};
	const ranges = () => page.evaluate(() => window.__perch.timeline.ranges);
	const asText = (list) => list.map(({ from, to }) => `${Math.round(from)}-${Math.round(to)}`).join(",");
	await ruler(page, 600, 700);
	await page.waitForSelector(".strip .legend");
	await shift(200, 400);
	await until(page, "(it) => it.ranges.length === 2 && it.ranges[0].to < it.ranges[1].from");
	await hasText(page, ".strip-head", "in 2 ranges");
	const two = await ranges();
	await tools.broker.until(() => reports(tools.broker).at(-1)?.includes(`ranges=${encodeURIComponent(asText(two))}`));
	/* In the address they outlive a reload, and the report has the same. */
	await becomes(page, (text) => new URLSearchParams(location.hash.split("?")[1]).get("range") === text, asText(two));
	const link = await page.getByRole("link", { name: "Report of these ranges" }).getAttribute("href");
	assert.equal(new URLSearchParams(link.split("?")[1]).get("ranges"), asText(two));
	await page.reload();
	await page.waitForSelector(".lanes canvas");
	await until(page, "(it, n) => it.ranges.length === n", 2);
	await stands(page);
	/* A click with Shift takes nothing away. */
	const kept = await ranges();
	const box = await page.locator(".ruler canvas").boundingBox();
	await page.keyboard.down("Shift");
	await page.mouse.click(box.x + 100, box.y + 38);
	await page.keyboard.up("Shift");
	await drawn(page);
	assert.deepEqual(await ranges(), kept);
	await shift(390, 620);
	await until(page, "(it) => it.ranges.length === 1");
	/* Without it the next drag begins anew. */
	await ruler(page, 100, 150);
	await until(page, "(it, was) => it.ranges.length === 1 && it.range.to < was", two[0].from);
});

scene("the report has the ranges of the timeline, and of two one beside the other", async ({ broker, open }) => {
	const { start } = broker.times;
	const at = (s) => start + s * 1000;
	const page = await open(`/report?from=${at(100)}&to=${at(400)}&ranges=${at(100)}-${at(200)},${at(350)}-${at(400)}`);
	await hasText(page, ".report select", "2 ranges of it");
	await page.waitForSelector(".report tbody tr");
	const ranges = `ranges=${at(100)}-${at(200)}%2C${at(350)}-${at(400)}`;
	assert.ok(reports(broker).at(-1).includes(ranges));
	await page.getByRole("button", { name: "One range beside the other" }).click();
	await page.locator(".report th").filter({ hasText: "before" }).waitFor();
	const asked = reports(broker).filter((line) => !line.includes("ranges="));
	assert.ok(asked.some((line) => line.includes(`from=${at(100)}&to=${at(200)}`)));
	assert.ok(asked.some((line) => line.includes(`from=${at(350)}&to=${at(400)}`)));
	/* In the address, so a reload has them too. */
	await becomes(page, (ranges) => location.hash.includes(ranges) && location.hash.includes("beside=1"), ranges);
});

scene("the right button draws a range over the lanes; without a way it has the menu, and no other", async (tools) => {
	const page = await openTimeline(tools);
	const edit = await span(page, "vitest run", lanes.codex);
	const [x, y] = middle(edit);
	await page.mouse.move(x, y);
	await page.mouse.down({ button: "right" });
	await page.mouse.move(x + 60, y + 30);
	await page.mouse.move(x + 120, y + 30);
	await page.mouse.up({ button: "right" });
	await until(page, "(it) => it.ranges.length === 1 && it.range.to > it.range.from");
	assert.equal(await page.getByRole("menu").count(), 0);
	const { view: { from, to }, range } = await perch(page);
	const perPixel = (to - from) / (await page.locator(".lanes canvas").boundingBox()).width;
	assert.ok(Math.abs((range.to - range.from) / perPixel - 120) < 2);
	await page.mouse.click(x, y, { button: "right" });
	await page.getByRole("menu", { name: "vitest run" }).waitFor();
	assert.deepEqual((await perch(page)).range, range);
});

scene("a range that is drawn ends with its button, also where another is down or the way leaves the lanes", async (tools) => {
	const page = await openTimeline(tools);
	const [x, y] = middle(await span(page, "vitest run", lanes.codex));
	await page.mouse.move(x, y);
	await page.mouse.down({ button: "right" });
	await page.mouse.move(x + 60, y);
	await page.mouse.down({ button: "left" });
	await page.mouse.up({ button: "right" });
	await page.mouse.move(x + 90, y);
	await page.mouse.up({ button: "left" });
	await until(page, "(it) => it.ranges.length === 1");
	const { range } = await perch(page);
	await page.mouse.move(x + 160, y);
	await drawn(page);
	assert.deepEqual((await perch(page)).range, range);
	/* Beyond the lanes there is no time to draw it over. */
	await page.mouse.move(x, y);
	await page.mouse.down({ button: "right" });
	await page.mouse.move(x - 60, y);
	await page.mouse.move(0, 0);
	await page.mouse.up({ button: "right" });
	await until(page, "(it, was) => it.range && it.range.to !== was.to", range);
	const { view, range: wide } = await perch(page);
	assert.ok(wide.from >= view.from && wide.from - view.from < 2, JSON.stringify([wide, view]));
});

scene("a finger that stays on a span has its menu; one that moves pans", async (tools) => {
	const page = await openTimeline(tools);
	const touch = await page.context().newCDPSession(page);
	const send = (type, points) => touch.send("Input.dispatchTouchEvent", { type, touchPoints: points.map(([x, y]) => ({ x, y })) });
	const at = middle(await span(page, "vitest run", lanes.codex));
	await send("touchStart", [at]);
	await page.getByRole("menu", { name: "vitest run" }).waitFor();
	await send("touchEnd", []);
	/* It stays when the finger goes. */
	await drawn(page);
	await page.getByRole("menu").getByRole("menuitem", { name: "Mark every" }).waitFor();
	await page.keyboard.press("Escape");
	await page.getByRole("menu").waitFor({ state: "detached" });
	const { view: was } = await perch(page);
	/* However slowly this finger moves, it does not stay. */
	await page.evaluate(() => {
		const real = setTimeout;
		window.setTimeout = (what, ms, ...more) => real(what, ms === 500 ? 600_000 : ms, ...more);
	});
	await send("touchStart", [at]);
	await send("touchMove", [[at[0] - 40, at[1]]]);
	await send("touchMove", [[at[0] - 90, at[1]]]);
	await until(page, "(it, was) => it.view.from > was.from", was);
	await send("touchEnd", []);
	assert.equal(await page.getByRole("menu").count(), 0);
});

scene("the right button has a span's menu: its row, the report of its name, every one of them marked", async (tools) => {
	const page = await openTimeline(tools);
	const edit = await span(page, "vitest run", lanes.codex);
	const menu = page.getByRole("menu", { name: "vitest run" });
	const open = async () => {
		await page.mouse.click(...middle(edit), { button: "right" });
		await menu.waitFor();
	};
	await open();
	assert.deepEqual(await menu.getByRole("menuitem").allTextContents(), [
		"Open in the transcript", "Report of every vitest run", "Mark every vitest run", "Make it the range R",
	]);
	/* By keys: the focus is in it, goes round, and comes back to the lanes. */
	await becomes(page, () => document.activeElement.textContent === "Open in the transcript");
	await page.keyboard.press("ArrowUp");
	await becomes(page, () => document.activeElement.textContent.startsWith("Make it"));
	await page.keyboard.press("ArrowUp");
	await page.keyboard.press("Enter");
	await until(page, "(it) => it.like === 'vitest run'");
	await menu.waitFor({ state: "detached" });
	await becomes(page, () => document.activeElement.classList.contains("lanes"));
	await drawn(page);
	/* Its other one has an edge in the accent's colour now. */
	const [colour, accent] = await page.evaluate(() => {
		const canvas = document.querySelector(".lanes canvas");
		const { x: left, y: top } = canvas.getBoundingClientRect();
		const it = window.__perch.timeline.spans().findLast(({ name }) => name === "vitest run");
		const data = canvas.getContext("2d").getImageData((it.x + it.width / 2 - left) * devicePixelRatio, (it.y + 1 - top) * devicePixelRatio, 1, 3).data;
		const probe = document.body.appendChild(document.createElement("i"));
		probe.style.color = "var(--accent)";
		const accent = getComputedStyle(probe).color.match(/\d+/g).slice(0, 3).join();
		probe.remove();
		return [[0, 4, 8].map((at) => [...data.slice(at, at + 3)].join()), accent];
	});
	assert.ok(colour.includes(accent), `${colour.join(" | ")} and the accent ${accent}`);
	await page.keyboard.press("Escape");
	await until(page, "(it) => it.like === null && !it.picked");
	await open();
	await menu.getByRole("menuitem", { name: "Make it the range" }).click();
	await until(page, "(it) => it.range && it.range.from === it.picked.span.t");
	await open();
	await page.keyboard.press("Escape");
	await menu.waitFor({ state: "detached" });
	/* Escape closed the menu and nothing else. */
	assert.ok((await perch(page)).range);
	await open();
	await page.locator(".ruler-name").click();
	await menu.waitFor({ state: "detached" });
	await open();
	await menu.getByRole("menuitem", { name: "Report of every" }).click();
	await page.waitForSelector(".report tbody tr");
	assert.match(await page.evaluate(() => location.hash), /view=live&q=%22vitest\+run%22/);
	assert.deepEqual(await page.locator(".report tbody th").allTextContents(), ["vitest run"]);
});

scene("the menu key opens the menu of the picked span; hostile names stay text in it", async (tools) => {
	const hostile = '<img src=x onerror="alert(1)">\u202e';
	tools.broker.times.lanes[0].spans.find(({ name }) => name === "perf record").name = hostile;
	const page = await openTimeline(tools, view(tools.broker, 80, 140));
	await page.keyboard.down("Shift");
	await page.mouse.click(...middle(await span(page, hostile, lanes.claude)));
	await page.keyboard.up("Shift");
	await until(page, "(it) => it.picked");
	await page.locator(".lanes").focus();
	await page.keyboard.press("ContextMenu");
	const menu = page.getByRole("menu");
	await menu.waitFor();
	await page.emulateMedia({ reducedMotion: "reduce" });
	await drawn(page);
	assert.match(await menu.textContent(), /<img src=x onerror="alert\(1\)">U\+202E/);
	await page.evaluate(axe);
	const found = await page.evaluate(async () => (await window.axe.run(document, { resultTypes: ["violations"] })).violations.map(({ id }) => id));
	assert.deepEqual(found, []);
	/* Enter on the first item opens the row. */
	await page.keyboard.press("Enter");
	await page.waitForSelector(".transcript");
	assert.equal(await page.locator("img").count(), 0);
});

scene("what nobody set shows all there is, while that is little, and follows; ten minutes of more", async (tools) => {
	const { broker } = tools;
	const was = broker.times;
	const now = Date.now();
	broker.times = {
		start: now - 40_000, now, completeFrom: null,
		lanes: [{ id: lanes.claude.id, turns: [{ t: now - 40_000, end: Infinity, title: "Try it", row: "turn-1", flags: 0 }], spans: [] }],
	};
	const page = await openTimeline(tools, "");
	await until(page, "(it, from) => it.follow && it.view.from <= from && it.view.to - it.view.from < 500_000", now - 40_000);
	/* It stays so while it follows. */
	const first = await perch(page);
	await until(page, "(it, to) => it.view.to > to + 2000", first.view.to);
	const later = await perch(page);
	assert.ok(later.view.from <= now - 40_000 && later.view.from > first.view.from - 20_000);
	assert.ok(!(await page.evaluate(() => location.hash)).includes("follow="));
	/* Who zooms has said how much. */
	await page.keyboard.press("s");
	await becomes(page, () => /follow=\d+/.test(location.hash));
	broker.times = was;
	const other = await openTimeline(tools, "");
	await until(other, "(it) => Math.abs(it.view.to - it.view.from - 600_000) < 1000");
});

scene("what goes on is marked open and ends at now", async (tools) => {
	const page = await openTimeline(tools);
	const open = await span(page, "ctest --preset ci -j16", lanes.runner);
	assert.equal(open.open, true);
	await page.mouse.move(open.x + 20, open.y + 10);
	await hasText(page, ".tip", "goes on");
	await page.getByRole("button", { name: "As table" }).click();
	const row = page.locator(".as-table tr").filter({ hasText: "ctest" });
	await row.waitFor();
	assert.match(await row.textContent(), /open.*goes on/);
});

scene("the filter leaves lanes of those words, in the address too; the broker is asked for them alone", async (tools) => {
	const { broker } = tools;
	const page = await openTimeline(tools);
	await page.getByRole("searchbox", { name: "Filter lanes" }).fill("docs infra");
	await becomes(page, () => document.querySelectorAll(".lanes li").length === 2);
	await broker.until(() => asked(broker).at(-1).includes(`lanes=${encodeURIComponent(`${lanes.gemini.id},${lanes.opencode.id}`)}`));
	await becomes(page, () => location.hash.includes("q=docs"));
	await page.reload();
	await becomes(page, () => document.querySelectorAll(".lanes li").length === 2);
});

const names = (page) =>
	page.evaluate(() => [...document.querySelectorAll(".lanes li .where")].map((it) => it.textContent));
const nameOf = (page, channel) => page.locator(".lanes li").filter({ hasText: channel });
/** Waits for these lanes, in this order. */
const lie = (page, wanted) =>
	becomes(page, (wanted) => [...document.querySelectorAll(".lanes li .where")].map((it) => it.textContent).join() === wanted, wanted.join());

scene("a lane is pinned, hidden and moved by keys; back and forward undo it; a reload keeps it", async (tools) => {
	const page = await openTimeline(tools);
	await page.setViewportSize({ width: 1440, height: 1600 });
	await becomes(page, () => document.querySelectorAll(".lanes li").length === 10);
	const was = await names(page);
	const last = was.at(-1);
	await nameOf(page, last).locator("a").focus();
	await page.keyboard.press("p");
	const pinned = [last, ...was.slice(0, -1)];
	await lie(page, pinned);
	/* Its name keeps the focus, so that the next key means it too. */
	await becomes(page, (last) => document.activeElement.closest(".pinned li")?.textContent.includes(last), last);
	await page.keyboard.press("j");
	await becomes(page, (it) => document.activeElement.closest("li")?.textContent.includes(it), was[0]);
	await page.keyboard.press("Alt+ArrowDown");
	const moved = [last, was[1], was[0], ...was.slice(2, -1)];
	await lie(page, moved);
	await becomes(page, (it) => document.activeElement.closest("li")?.textContent.includes(it), was[0]);
	await page.keyboard.press("h");
	await lie(page, moved.filter((it) => it !== was[0]));
	await hasText(page, ".lane-count", "9 of 10 lanes");
	/* A pinned lane is no neighbour of one that is not. */
	await nameOf(page, was[1]).locator("a").focus();
	await page.keyboard.press("Alt+ArrowUp");
	await page.getByRole("status").filter({ hasText: "cannot go further up" }).waitFor({ state: "attached" });
	await page.goBack();
	await lie(page, moved);
	await page.goBack();
	await lie(page, pinned);
	await page.goForward();
	await lie(page, moved);
	await page.reload();
	await lie(page, moved);
	await page.goForward();
	await lie(page, moved.filter((it) => it !== was[0]));
	await page.keyboard.press("Shift+H");
	await lie(page, moved);
});

scene("the pointer does the same: buttons beside the name, and a drag", async (tools) => {
	const page = await openTimeline(tools);
	await page.setViewportSize({ width: 1440, height: 1600 });
	await becomes(page, () => document.querySelectorAll(".lanes li").length === 10);
	const was = await names(page);
	await nameOf(page, was[4]).hover();
	await nameOf(page, was[4]).getByRole("button", { name: "Hide" }).click();
	await lie(page, was.filter((_, i) => i !== 4));
	await page.getByRole("button", { name: "Show 1 hidden" }).click();
	await lie(page, was);
	const [from, to] = [await nameOf(page, was[0]).locator("a").boundingBox(), await nameOf(page, was[2]).locator("a").boundingBox()];
	await page.mouse.move(from.x + 20, from.y + 8);
	await page.mouse.down();
	await page.mouse.move(from.x + 22, from.y + 40);
	await page.mouse.move(to.x + 20, to.y + 8);
	await page.waitForSelector(".lanes li[data-over]");
	await page.mouse.up();
	await lie(page, [was[1], was[2], was[0], ...was.slice(3)]);
	/* The drag opened nothing. */
	assert.match(await page.evaluate(() => location.hash), /#\/timeline\?.*order=/);
	await nameOf(page, was[0]).hover();
	await nameOf(page, was[0]).getByRole("button", { name: "Pin" }).click();
	await lie(page, [was[0], was[1], was[2], ...was.slice(3)]);
	assert.equal(await nameOf(page, was[0]).getByRole("button", { name: "Unpin" }).getAttribute("aria-pressed"), "true");
});

scene("pinned lanes stay while the others are scrolled, and what is drawn there is clicked there", async (tools) => {
	const page = await openTimeline(tools);
	const pinned = await page.locator(".lanes li .where").last().textContent();
	await page.setViewportSize({ width: 1440, height: 620 });
	await page.locator(".lanes li").filter({ hasText: "claudeapi-server" }).hover();
	await page.locator(".lanes li").filter({ hasText: "claudeapi-server" }).getByRole("button", { name: "Pin" }).click();
	await page.waitForSelector(".lanes .pinned li");
	const before = await span(page, "make test", lanes.claude);
	const other = await span(page, "Task", lanes.billing);
	await page.evaluate(() => { document.querySelector(".lanes").scrollTop = 120; });
	await becomes(page, () => document.querySelector(".lanes").scrollTop === 120);
	await drawn(page);
	const after = await span(page, "make test", lanes.claude);
	assert.equal(after.y, before.y);
	assert.equal((await span(page, "Task", lanes.billing)).y, other.y - 120);
	const name = await page.locator(".pinned li").boundingBox();
	assert.ok(after.y > name.y && after.y < name.y + name.height);
	await page.mouse.move(after.x + after.width - 6, after.y + 10);
	await hasText(page, ".tip", "make test");
	assert.ok(pinned);
});

scene("who comes back to the lanes has the names of those in sight", async (tools) => {
	const page = await openTimeline(tools);
	await page.setViewportSize({ width: 1440, height: 420 });
	const first = await page.locator(".lanes li").first().getAttribute("data-id");
	const named = (is) => becomes(page, ([id, is]) => !!document.querySelector(`.lanes li[data-id="${id}"]`) === is, [first, is]);
	await page.evaluate(() => { document.querySelector(".lanes").scrollTop = 100_000; });
	await named(false);
	await chord(page, "g", "f");
	await page.waitForSelector(".fleet-row");
	await chord(page, "g", "t");
	await stands(page);
	assert.equal(await page.evaluate(() => document.querySelector(".lanes").scrollTop), 0);
	await named(true);
});

scene("what a lane counts is drawn under its tools, named beside it and in the table", async (tools) => {
	const { times } = tools.broker;
	times.lanes[0].values = [
		{ kind: 0, at: (s) => (s % 60 < 20 ? 4000 : 0) },
		{ kind: 1, at: (s) => 1000 + 200 * s },
	];
	const page = await openTimeline(tools);
	const name = page.locator(".lanes li").filter({ hasText: "claudeapi-server" });
	await name.filter({ hasText: "≤ 4.0 KB/s" }).waitFor();
	const row = name.locator('[data-lane="value"]').nth(1);
	assert.match(await row.textContent(), /Tokens1\d\d k/);
	/* The line is where its name is, and is high where the value is. */
	const box = await row.boundingBox();
	const filled = await page.evaluate(([y, height]) => {
		const canvas = document.querySelector(".lanes canvas");
		const { x: left, y: top } = canvas.getBoundingClientRect();
		const { data, height: rows } = canvas.getContext("2d").getImageData(700, y - top, 1, height);
		let count = 0;
		for (let i = 0; i < rows; i++) if (data[4 * i + 3] > 0) count++;
		return { count, left };
	}, [Math.round(box.y), Math.round(box.height)]);
	assert.ok(filled.count > 8, `${filled.count} px`);
	await page.getByRole("button", { name: "As table" }).click();
	const cells = page.locator(".as-table table").first().locator("tbody tr").filter({ hasText: "api-server" }).locator("td");
	assert.equal(await cells.nth(2).textContent(), "≤ 4.0 KB/s");
	assert.match(await cells.nth(3).textContent(), /^1\d\d k$/);
	assert.equal(await cells.nth(4).textContent(), "–");
});

scene("the table has the lanes, with the same to be done; hidden ones come back there", async (tools) => {
	const page = await openTimeline(tools, `${view(tools.broker, 340, 640)}&table=1`);
	const table = page.locator(".as-table table").first();
	const rows = () => table.locator("tbody th .where").allTextContents();
	const is = (wanted) => becomes(page, (wanted) => [...document.querySelectorAll(".as-table table:first-of-type tbody th .where")].map((it) => it.textContent).join() === wanted, wanted.join());
	await table.locator("tbody tr").nth(9).waitFor();
	const was = await rows();
	const row = (channel) => table.locator("tbody tr").filter({ hasText: channel });
	await row(was[1]).getByRole("button", { name: /^Up/ }).click();
	await is([was[1], was[0], ...was.slice(2)]);
	await row(was[0]).getByRole("button", { name: /^Hide/ }).focus();
	await page.keyboard.press("Enter");
	await is([was[1], ...was.slice(2), was[0]]);
	await becomes(page, (it) => document.activeElement.closest("tr")?.textContent.includes(it), was[0]);
	assert.match(await row(was[0]).textContent(), /hidden/);
	/* Spans of hidden lanes are not in the table of spans. */
	const spanLanes = await page.locator(".as-table table").nth(1).locator("tbody .where").allTextContents();
	assert.ok(!spanLanes.includes(was[0]) && spanLanes.length > 0);
	await page.keyboard.press("Enter");
	await is([was[1], was[0], ...was.slice(2)]);
	await row(was[3]).getByRole("button", { name: /^Pin/ }).click();
	await is([was[3], was[1], was[0], was[2], ...was.slice(4)]);
});

scene("the table has the same spans, with links to their rows; names of a peer stay text", async (tools) => {
	const hostile = '<img src=x onerror="alert(1)">\u202e';
	tools.broker.times.lanes[0].spans.find(({ name }) => name === "grep").name = hostile;
	const page = await openTimeline(tools, `${view(tools.broker, 340, 640)}&table=1`);
	await page.waitForSelector(".as-table table + table tbody tr");
	const names = await page.locator(".as-table table").nth(1).locator("tbody th").allTextContents();
	const spans = await page.evaluate(() => window.__perch.timeline.spans());
	const { from, to } = (await perch(page)).view;
	const inView = spans.filter(({ t, end, open }) => t < to && (open || end > from));
	assert.equal(names.length, inView.length);
	assert.ok(names.includes('<img src=x onerror="alert(1)">U+202E'));
	assert.equal(await page.locator(".as-table img").count(), 0);
	await page.locator(".as-table tr").filter({ hasText: "make test" }).first().getByRole("link").click();
	await page.waitForSelector(".transcript");
});

scene("bytes that are no timeline are a sentence, and the page lives on", async (tools) => {
	const { broker } = tools;
	const page = await openTimeline(tools);
	broker.refuse = { status: 503, error: "the observer is starting" };
	await page.keyboard.press("Home");
	await page.keyboard.press("d");
	await hasText(page, ".timeline .warning", "No timeline: the observer is starting.");
	broker.refuse = null;
	await page.locator(".timeline .warning").waitFor({ state: "detached" });
});

scene("a change of theme draws the canvas anew, in the new colours", async (tools) => {
	const page = await openTimeline(tools, view(tools.broker, 100, 300));
	const pixel = () => page.evaluate(() => {
		const canvas = document.querySelector(".lanes canvas");
		const box = canvas.getBoundingClientRect();
		const it = window.__perch.timeline.spans().find(({ name }) => name === "vite build");
		return [...canvas.getContext("2d").getImageData(it.x - box.x + it.width - 4, it.y - box.y + 5, 1, 1).data].join();
	});
	await page.emulateMedia({ colorScheme: "dark" });
	await drawn(page);
	await drawn(page);
	const dark = await pixel();
	await page.emulateMedia({ colorScheme: "light" });
	for (let now = await pixel(); now === dark; now = await pixel()) await drawn(page);
});

scene("axe finds nothing on the timeline, in both themes, wide and on a phone; the phone fits", async (tools) => {
	const { start } = tools.broker.times;
	const page = await openTimeline(tools, `${view(tools.broker, 340, 640)}&range=${start + 440_000}-${start + 560_000}`);
	await page.waitForSelector(".strip .legend");
	await page.evaluate(axe);
	for (const table of [false, true]) {
		if (table) await page.getByRole("button", { name: "As table" }).click();
		for (const [width, height] of [[1440, 900], [375, 667]])
			for (const colorScheme of ["dark", "light"]) {
				await page.setViewportSize({ width, height });
				await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
				await drawn(page);
				const found = await page.evaluate(async () =>
					(await window.axe.run(document, { resultTypes: ["violations"] })).violations.map(
						({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map(({ html }) => html.slice(0, 160)).join(" | ")}`));
				assert.deepEqual(found, [], `${table} ${width} ${colorScheme}`);
			}
		await comesTo(page, pageWidth, 375);
		await comesTo(page, tooSmall, []);
	}
});
