/* What scrolls inside of what scrolls is no trap: at its end the wheel moves what it is in. */

import assert from "node:assert/strict";
import { TIMEOUT_MS } from "../program/support/timeout.mjs";
import { becomes, drawn, pageTests } from "./support/page.mjs";
import { lanes, row } from "./support/scene.mjs";

const scene = pageTests();
const of = lanes.claude;
const PANEL = "[data-row=row-30] .terminal";
const note = (seq) => row(of, seq, "note", { text: `note ${seq}\n\n`.repeat(3) });

/* A long output between rows that fill more than a screen. */
async function openLong({ broker, openAgent }) {
	broker.rows.set(of.id, [
		...Array.from({ length: 29 }, (_, i) => note(i + 1)),
		row(of, 30, "output", { stream: "stdout", text: Array.from({ length: 200 }, (_, i) => `line ${i}`).join("\n") }),
		...Array.from({ length: 29 }, (_, i) => note(i + 31)),
	]);
	const page = await openAgent(of, "row-30");
	await page.waitForSelector(PANEL);
	await page.locator(PANEL).scrollIntoViewIfNeeded();
	await page.locator(PANEL).hover();
	return page;
}
const at = (page) =>
	page.evaluate((panel) => ({
		inner: document.querySelector(panel).scrollTop,
		outer: document.querySelector(".transcript").scrollTop,
		most: document.querySelector(panel).scrollHeight - document.querySelector(panel).clientHeight,
	}), PANEL);

for (const [name, by] of [["down", 100], ["up", -100]])
	scene(`the wheel over a long output goes ${name} in it, and from its end on in the transcript`, async (tools) => {
		const page = await openLong(tools);
		const { most } = await at(page);
		assert.ok(most > 1000, `${most} px of output out of sight`);
		/* It is in the middle: the wheel moves it alone. */
		await page.evaluate(([panel, top]) => { document.querySelector(panel).scrollTop = top; }, [PANEL, Math.round(most / 2)]);
		const was = await at(page);
		await page.mouse.wheel(0, by);
		await becomes(page, ([panel, inner, by]) => (document.querySelector(panel).scrollTop - inner) * by > 0, [PANEL, was.inner, by]);
		assert.equal((await at(page)).outer, was.outer);
		/* At its end: what follows a wheel that rests moves the rows around it. */
		await page.evaluate(([panel, top]) => { document.querySelector(panel).scrollTop = top; }, [PANEL, by > 0 ? most + 100 : 0]);
		const { outer } = await at(page);
		const end = Date.now() + TIMEOUT_MS;
		while (((await at(page)).outer - outer) * by <= 0) {
			assert.ok(Date.now() < end, "the wheel is caught in the output");
			await page.mouse.wheel(0, by);
			await drawn(page);
		}
	});

scene("nothing that scrolls in the transcript keeps the wheel to itself", async (tools) => {
	const page = await openLong(tools);
	const kept = await page.evaluate(() =>
		[...document.querySelectorAll(".transcript *")]
			.filter((it) => getComputedStyle(it).overscrollBehaviorY !== "auto")
			.map(({ className }) => className));
	assert.deepEqual(kept, []);
});
