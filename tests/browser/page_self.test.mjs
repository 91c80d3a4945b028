import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { becomes, chord, comesTo, drawn, hasText, pageTests, width as pageWidth } from "./support/page.mjs";
import { agent, lanes } from "./support/scene.mjs";

const scene = pageTests();
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const FIGURES = {
	queueBytes: 4096, queueEvents: 12, inFlight: 3, journalBytes: 9_000_000, journalLost: 0,
	sealUs: 1540, deferred: 7, dropped: 0,
};

async function openSelf({ broker, open }) {
	broker.self.harnesses = [{ agent: lanes.claude.agent, atMs: Date.now() - 2000, figures: FIGURES }];
	const page = await open("/self");
	await hasText(page, ".self", "Kept for pages that come back");
	/* Names come with the stream, whose first word may be later than the figures. */
	await page.waitForSelector(".tray");
	return page;
}

scene("phases are kept whichever screen is open, and are those of what was done", async ({ broker, open }) => {
	const page = await open();
	await page.waitForSelector(".fleet-row");
	const phases = () => page.evaluate(() => window.__perch.self.phases(86_400_000).map(({ phase }) => window.__perch.self.names[phase]));
	await becomes(page, () => window.__perch.self.phases(86_400_000).some(({ phase }) => phase === 2));
	const before = (await phases()).filter((name) => name === "reduce").length;
	assert.ok(before > 0);
	for (let i = 0; i < 3; i++) broker.publish({ lanes: [{ ...lanes.claude, object: `step ${i}` }] });
	await hasText(page, ".fleet-row", "step 2");
	const names = await phases();
	assert.equal(names.filter((name) => name === "reduce").length, before + 3);
	assert.ok(names.filter((name) => name === "decode").length >= before + 3);
	const all = await page.evaluate(() => window.__perch.self.phases(86_400_000));
	/* In the order in which they ended; the clock is coarse. */
	assert.ok(all.every(({ t, ms }, i) => ms >= 0 && (!i || t + ms >= all[i - 1].t + all[i - 1].ms - 1)));
	assert.ok(!names.includes("paint"));
	await page.evaluate(() => { location.hash = "#/timeline"; });
	await becomes(page, () => window.__perch.self.phases(86_400_000).some(({ phase }) => phase === 3));
});

scene("the self screen draws the phases, and has the broker's and the harnesses' figures", async (tools) => {
	const page = await openSelf(tools);
	assert.match(await page.title(), /Self · perch$/);
	const row = page.locator(".wide-table tbody tr");
	assert.match(await row.textContent(), /claude.*12 events.*4\.1 KB.*3 frames.*1\.54 ms.*9\.0 MB/);
	assert.match(await page.locator(".counts").textContent(), /Messages of the stream so far1,234/);
	/* Something was painted, and the table counts it. */
	await becomes(page, () => {
		const [, count] = [...document.querySelectorAll(".self section:first-of-type tbody tr:last-of-type :is(th, td)")].map((it) => it.textContent);
		return Number(count) > 0;
	});
	const painted = () => page.evaluate(() => {
		const canvas = document.querySelector(".phases canvas");
		return canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.some((it) => it > 0);
	});
	assert.ok(await painted());
	const shown = () => page.locator(".self .toolbar .span").textContent();
	await page.keyboard.press("Space");
	await hasText(page, '.self .button[aria-pressed="false"]', "Follow");
	const still = await shown();
	await page.keyboard.press("w");
	await becomes(page, (was) => document.querySelector(".self .toolbar .span").textContent !== was, still);
	await page.keyboard.press("Space");
	await hasText(page, '.self .button[aria-pressed="true"]', "Follow");
	assert.deepEqual(tools.broker.posts, []);
});

/* Ink of the values, from the top of lane @n of a drawing to its foot. */
const heightsIn = (page, section, n) => page.evaluate(([section, n]) => {
	const canvas = document.querySelector(`[aria-labelledby="${section}"] .told canvas`);
	const dense = canvas.height / canvas.clientHeight;
	const [top, high] = [Math.round((30 + 34 * n + 2) * dense), Math.round(28 * dense)];
	const probe = document.createElement("i");
	probe.style.color = "var(--span-sub)";
	canvas.parentElement.append(probe);
	const g = new OffscreenCanvas(1, 1).getContext("2d");
	g.fillStyle = getComputedStyle(probe).color;
	probe.remove();
	g.fillRect(0, 0, 1, 1);
	const [r, green, b] = g.getImageData(0, 0, 1, 1).data;
	const { data } = canvas.getContext("2d").getImageData(0, top, canvas.width, high);
	return Array.from({ length: canvas.width }, (_, x) => {
		let tall = 0;
		for (let y = 0; y < high; y++) {
			const at = 4 * (y * canvas.width + x);
			if (Math.abs(data[at] - r) + Math.abs(data[at + 1] - green) + Math.abs(data[at + 2] - b) < 6) tall++;
		}
		return Math.round(tall / dense);
	});
}, [section, n]);
const told = (page) => page.evaluate(() => window.__perch.self.figures());

scene("the broker's and the harnesses' figures are lanes over the time the screen was open", async ({ broker, open }) => {
	/* What is told first, second, and from then on. */
	const [{ self }, answers] = [broker, []];
	for (const [messages, queueEvents] of [[1234, 12], [1834, 48], [1834, 12]])
		answers.push({
			...self, broker: { ...self.broker, messages, messageBytes: 567_890 + (messages > 1234 ? 1003 : 0) },
			harnesses: [{ agent: lanes.claude.agent, atMs: Date.now(), replayed: 2, figures: { ...FIGURES, queueEvents } }],
		});
	Object.defineProperty(broker, "self", { get: () => (answers.length > 1 ? answers.shift() : answers[0]) });
	const page = await open("/self");
	await becomes(page, () => window.__perch.self.figures?.().length >= 3);
	await drawn(page);
	const [a, b, c] = await told(page);
	assert.deepEqual(a.broker, { messages: 1234, messageBytes: 567_890, ringBytes: 90_000, rowBytes: 7_000_000, spanBytes: 123_456, missing: 0 });
	assert.deepEqual([a, b, c].map((it) => it[lanes.claude.agent]), [12, 48, 12].map((queueEvents) =>
		({ queueEvents, inFlight: 3, sealUs: 1540, missing: 0, replayed: 2 })));
	/* What grows is a rate, what is a level stays one. */
	assert.deepEqual(await page.locator(".told .value").allTextContents(), [
		`≤ ${(600_000 / (b.t - a.t)).toFixed(1)}`, `≤ ${Math.round(1_003_000 / (b.t - a.t))} bytes`, "≤ 90 KB", "≤ 7.0 MB", "≤ 123 KB", "≤ 0",
		"≤ 48", "≤ 3", "≤ 1.54 ms", "≤ 0", "≤ 2",
	]);
	/* Nothing is known before the first; then 48, then a quarter of it. */
	const steps = async () => (await heightsIn(page, "self-harnesses", 0)).filter((tall, x, all) => tall !== all[x - 1]);
	assert.deepEqual(await steps(), [0, 24, 6]);
	assert.ok((await heightsIn(page, "self-harnesses", 3)).every((tall) => !tall));

	/* The time at another screen is a gap. */
	await chord(page, "g", "f");
	await page.waitForSelector(".fleet-row");
	const before = (await told(page)).length;
	await chord(page, "g", "p");
	await becomes(page, (before) => window.__perch.self.figures?.().length > before, before);
	await drawn(page);
	assert.deepEqual((await steps()).slice(0, 4), [0, 24, 6, 0]);
});

scene("a broker that does not answer is a sentence, and the page's own phases stay", async ({ broker, open }) => {
	const page = await open();
	await page.waitForSelector(".fleet-row");
	broker.refuse = { status: 503, error: "the observer is starting" };
	await chord(page, "g", "p");
	await hasText(page, ".self", "No figures: the observer is starting.");
	await page.waitForSelector(".phases canvas");
	broker.refuse = null;
	await hasText(page, ".self", "Rows in memory");
});

scene("axe finds nothing on the self screen, in both themes, wide and on a phone; the phone fits", async (tools) => {
	tools.broker.publish({ agents: [agent(0, { missing: 3 })] });
	const page = await openSelf(tools);
	await becomes(page, () => window.__perch.self.figures?.().length > 1);
	await page.evaluate(axe);
	for (const [width, height] of [[1440, 900], [375, 667]])
		for (const colorScheme of ["dark", "light"]) {
			await page.setViewportSize({ width, height });
			await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
			await drawn(page);
			assert.ok((await heightsIn(page, "self-harnesses", 0)).some((tall) => tall), `${width} ${colorScheme}`);
			const found = await page.evaluate(async () =>
				(await window.axe.run(document, { resultTypes: ["violations"] })).violations.map(
					({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map(({ html }) => html.slice(0, 160)).join(" | ")}`));
			assert.deepEqual(found, [], `${width} ${colorScheme}`);
		}
	await comesTo(page, pageWidth, 375);
});
