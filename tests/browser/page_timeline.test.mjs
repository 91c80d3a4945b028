import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { becomes, drawn, hasText, pageTests } from "./support/page.mjs";
import { lanes } from "./support/scene.mjs";

const scene = pageTests();
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

const asked = (broker) => broker.requests.filter((line) => line.includes("/api/timeline"));
const reports = (broker) => broker.requests.filter((line) => line.includes("/api/report"));
const perch = (page) => page.evaluate(() => {
	const { draws, drawMs, lanes, requests, view, range, follow, picked, answer } = window.__perch.timeline;
	return { draws, drawMs, lanes, requests, view, range, follow, picked, answer };
});
/** Waits until @what, a function of window.__perch.timeline and @value, is true. */
const until = (page, what, value = null) =>
	becomes(page, `(${what})(window.__perch.timeline, ${JSON.stringify(value)})`);
const span = async (page, name, lane) =>
	(await page.evaluate(() => window.__perch.timeline.spans())).find((it) => it.name === name && (!lane || it.lane === lane.id));
const view = ({ times }, from, to) => `view=${times.start + from * 1000}-${times.start + to * 1000}`;

/** The timeline of the last minutes of the scene, standing still. */
async function openTimeline({ broker, open }, query = view(broker, 340, 640)) {
	const page = await open(`/timeline?${query}`);
	await page.waitForSelector(".lanes canvas", { state: "attached" });
	await until(page, "(it) => it.spans().length > 0 && it.draws > 0");
	return page;
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
	await page.keyboard.press("g");
	await page.keyboard.press("t");
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
	await until(page, "(it) => it.requests >= 2");
	await drawn(page);
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
	broker.hold = async () => {
		most = Math.max(most, ++inAir);
		await new Promise((resolve) => waiting.push(resolve));
		inAir--;
	};
	const before = asked(broker).length;
	const box = await page.locator(".lanes canvas").boundingBox();
	await page.mouse.move(box.x + 100, box.y + 330);
	await page.mouse.down();
	for (let x = 150; x <= 1200; x += 30) await page.mouse.move(box.x + x, box.y + 330);
	await page.mouse.up();
	await broker.until(() => waiting.length === 1);
	const { view: at } = await perch(page);
	broker.hold = null;
	waiting[0]();
	/* The last answer covers where the view is now. */
	await until(page, "(it, at) => it.answer.from <= at.from && it.answer.to >= at.to", at);
	assert.equal(most, 1);
	assert.ok(asked(broker).length - before <= 3);
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

scene("the table has the same spans, with links to their rows; names of a peer stay text", async (tools) => {
	const hostile = '<img src=x onerror="alert(1)">\u202e';
	tools.broker.times.lanes[0].spans.find(({ name }) => name === "grep").name = hostile;
	const page = await openTimeline(tools, `${view(tools.broker, 340, 640)}&table=1`);
	await page.waitForSelector(".as-table tbody tr");
	const names = await page.locator(".as-table tbody th").allTextContents();
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
	await drawn(page);
	await drawn(page);
	assert.notEqual(await pixel(), dark);
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
		assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 375);
		const small = await page.evaluate(() =>
			[...document.querySelectorAll("button, .button, .screens a")]
				.filter((e) => e.checkVisibility() && !e.classList.contains("link"))
				.map((e) => [e.textContent.slice(0, 20), e.getBoundingClientRect()])
				.filter(([, box]) => box.width && box.height < 43.5)
				.map(([text, { height }]) => `${text} ${height}`));
		assert.deepEqual(small, []);
	}
});
