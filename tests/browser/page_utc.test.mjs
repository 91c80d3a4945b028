/* Where the hours and days of the timeline's ruler begin: as its reader's clock has them, or UTC's. */

import assert from "node:assert/strict";
import { becomes, comesTo, pageTests } from "./support/page.mjs";

/* What was written on the ruler last, and where. */
function init() {
	const { fillText, clearRect } = CanvasRenderingContext2D.prototype;
	CanvasRenderingContext2D.prototype.clearRect = function (...box) {
		if (this.canvas.closest(".ruler")) window.ruler = [];
		return clearRect.apply(this, box);
	};
	CanvasRenderingContext2D.prototype.fillText = function (text, x, ...rest) {
		if (this.canvas.closest(".ruler")) window.ruler?.push([text, x]);
		return fillText.call(this, text, x, ...rest);
	};
}
const india = pageTests({ init, timezoneId: "Asia/Kolkata" });
const berlin = pageTests({ init, timezoneId: "Europe/Berlin" });
const HOUR_MS = 3_600_000;

async function openAt(open, from, to) {
	const page = await open(`/timeline?view=${from}-${to}`);
	await becomes(page, () => window.ruler?.length > 2);
	return page;
}
const words = (page) => page.evaluate(() => window.ruler.map(([text]) => text));
/* When each of them is, to a pixel. */
const times = (page) =>
	page.evaluate(() => {
		const { from, to } = window.__perch.timeline.view;
		const { width } = document.querySelector(".ruler canvas").getBoundingClientRect();
		return window.ruler.map(([, x]) => from + ((x - 4) * (to - from)) / width);
	});
const round = (list, unit) => list.map((t) => Math.round(t / unit) * unit);

india("hours begin where the clock that is shown has them", async ({ open }) => {
	const from = Date.UTC(2026, 10, 30, 6, 10);
	const page = await openAt(open, from, from + 7.5 * HOUR_MS);
	/* 11:40 there. */
	const local = ["12:00", "13:00", "14:00", "15:00", "16:00", "17:00", "18:00"];
	await comesTo(page, words, local);
	const quarters = async () => round(await times(page), HOUR_MS / 4);
	await comesTo(page, quarters, local.map((_, i) => Date.UTC(2026, 10, 30, 6, 30) + i * HOUR_MS));
	await page.keyboard.press("u");
	const utc = ["07:00", "08:00", "09:00", "10:00", "11:00", "12:00", "13:00"];
	await comesTo(page, words, utc);
	await comesTo(page, quarters, utc.map((_, i) => Date.UTC(2026, 10, 30, 7) + i * HOUR_MS));
	await page.keyboard.press("u");
	await comesTo(page, words, local);
});

india("days, too, and today of a report", async ({ broker, open }) => {
	const from = Date.UTC(2026, 10, 27, 20);
	const page = await openAt(open, from, from + 100 * HOUR_MS);
	const hours = (n) => n * HOUR_MS;
	const begins = (t) => async () =>
		Math.abs((await times(page))[(await words(page)).indexOf("29 Nov")] - t) < hours(0.1);
	await comesTo(page, begins(Date.UTC(2026, 10, 29) - hours(5.5)), true);
	await page.keyboard.press("u");
	await comesTo(page, begins(Date.UTC(2026, 10, 29)), true);

	const todays = () => broker.requests.filter((line) => line.includes("/api/report")).map((line) => Number(/from=(\d+)/.exec(line)?.[1]));
	const report = await open("/report?range=today");
	await report.waitForSelector(".report-head");
	await broker.until(() => todays().length > 0);
	/* The choice is the browser's, not the tab's. */
	assert.equal(todays().at(-1) % hours(24), 0);
	await report.keyboard.press("u");
	await broker.until(() => todays().at(-1) % hours(24) === hours(18.5));
});

berlin("days begin at midnight on either side of a change of clocks", async ({ open }) => {
	/* From two hours ahead to one, on 25 October 2026. */
	const from = Date.UTC(2026, 9, 22, 12);
	const page = await openAt(open, from, from + 9 * 24 * HOUR_MS);
	const days = [23, 24, 25, 26, 27, 28, 29, 30, 31];
	await comesTo(page, words, days.map((day) => `2026-10-${day}`));
	await comesTo(
		page,
		async () => round(await times(page), HOUR_MS),
		days.map((day) => Date.UTC(2026, 9, day) - (day <= 25 ? 2 : 1) * HOUR_MS),
	);
});
