/* One browser for a file of tests; for each test a broker of its own and tabs that must end
 * without an error, a dialog or a violation of the policy. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { openBrowser } from "./chromium.mjs";
import { FakeBroker } from "./fake-broker.mjs";
import { lanes, populate } from "./scene.mjs";

export function pageTests(options) {
	let browser;
	before(async () => {
		browser = await openBrowser(options);
	});
	after(() => browser?.close());

	return (name, body, { empty = false } = {}) =>
		test(name, { timeout: 60_000 }, async () => {
			const broker = await new FakeBroker().start();
			if (!empty) populate(broker);
			const tabs = [];
			const open = async (path = "") => {
				const page = await browser.tab(`${broker.url}${path}`);
				tabs.push(page);
				return page;
			};
			const openAgent = async (lane = lanes.claude, row = "") => {
				const page = await open(`/lane/${lane.id}${row && `/${row}`}`);
				await page.waitForSelector(".transcript");
				return page;
			};
			try {
				await body({ broker, browser, open, openAgent });
				for (const page of tabs) {
					assert.deepEqual(page.violations, []);
					assert.deepEqual(page.errors, []);
					assert.deepEqual(page.dialogs, []);
				}
			} finally {
				for (const page of tabs) await page.close();
				await broker.stop();
			}
		});
}

/* Two frames: what was asked for before them is drawn. */
export const drawn = (page) =>
	page.evaluate(
		() =>
			new Promise((resolve) =>
				requestAnimationFrame(() => requestAnimationFrame(() => resolve(null))),
			),
	);

/* Until the page says so, asked once a frame: by the debugger, as its policy lets nothing be
 * evaluated inside. */
export async function becomes(page, what, value) {
	while (!(await page.evaluate(what, value))) await drawn(page);
}

export const hasText = (page, selector, text) =>
	page.locator(selector).filter({ hasText: text }).first().waitFor();
