/* One browser for a file of tests; for each test a broker of its own and tabs that must end
 * without an error, a dialog or a violation of the policy. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { isDeepStrictEqual } from "node:util";
import { TIMEOUT_MS } from "../../program/support/timeout.mjs";
import { openBrowser } from "./chromium.mjs";
import { FakeBroker, pageAssets } from "./fake-broker.mjs";
import { lanes, populate, renew } from "./scene.mjs";

/* A test has several waits. */
const TEST_MS = 5 * TIMEOUT_MS;

/* init: runs in every page before its own script. */
export function pageTests({ init, ...options } = {}) {
	let browser;
	before(async () => {
		/* Else the first page of all has to be built within the time that it has to come. */
		pageAssets();
		browser = await openBrowser(options);
		if (init) await browser.context.addInitScript(init);
	});
	after(() => browser?.close());

	return (name, body, { empty = false } = {}) =>
		test(name, { timeout: TEST_MS }, async () => {
			const broker = await new FakeBroker().start();
			renew();
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
	const end = Date.now() + TIMEOUT_MS;
	while (!(await page.evaluate(what, value))) {
		if (Date.now() > end) throw new Error(`it never became: ${what} of ${JSON.stringify(value)}`);
		await drawn(page);
	}
}

/* Until @ask answers @wanted, asked once a frame; fails with what it answered last. */
export async function comesTo(page, ask, wanted, words) {
	const end = Date.now() + TIMEOUT_MS;
	for (;;) {
		const found = await ask(page);
		if (isDeepStrictEqual(found, wanted)) return;
		if (Date.now() > end) assert.deepEqual(found, wanted, words);
		await drawn(page);
	}
}

export const hasText = (page, selector, text) =>
	page.locator(selector).filter({ hasText: text }).first().waitFor();

/* Keys that mean something together if they follow each other at once: pressed by the page itself,
 * where nothing comes between them however busy the machine is. */
export const chord = (page, ...keys) =>
	page.evaluate((keys) => {
		for (const key of keys)
			(document.activeElement ?? document.body).dispatchEvent(
				new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }),
			);
	}, keys);

/* What @selector says once the page has drawn what these keys did, all of it at once: of words that
 * go again by themselves, which whoever asks afterwards may be too late for. */
export const saysAfter = (page, selector, ...keys) =>
	page.evaluate(
		async ([selector, keys]) => {
			for (const key of keys)
				document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
			await new Promise((resolve) => setTimeout(resolve));
			return document.querySelector(selector)?.textContent ?? `no ${selector}`;
		},
		[selector, keys],
	);

/* What the locks of this browser call a tab. */
const clientOf = (page) =>
	page.evaluate(() =>
		navigator.locks.request(crypto.randomUUID(), async ({ name }) =>
			(await navigator.locks.query()).held.find((it) => it.name === name).clientId,
		),
	);

/* The tab of these that has that lock, once one has it: a tab that is slow may lose it to another.
 * Each is asked: what one was given before it answers it knows. */
export async function holderOf(pages, lock) {
	const ids = await Promise.all(pages.map(clientOf));
	const end = Date.now() + TIMEOUT_MS;
	for (;;) {
		let at = -1;
		for (const page of pages) {
			const id = await page.evaluate(
				async (lock) => (await navigator.locks.query()).held.find(({ name }) => name === lock)?.clientId,
				lock,
			);
			at = ids.indexOf(id);
		}
		if (at >= 0) return pages[at];
		if (Date.now() > end) throw new Error(`none of ${pages.length} tabs has ${lock}`);
		await drawn(pages[0]);
	}
}

export const width = (page) => page.evaluate(() => document.documentElement.scrollWidth);

/* What a thumb would miss. */
export const tooSmall = (page) =>
	page.evaluate(() =>
		[...document.querySelectorAll("button, textarea, select, .button, .screens a")]
			.filter((e) => e.checkVisibility() && !e.classList.contains("link"))
			.map((e) => [e.textContent.slice(0, 20), e.getBoundingClientRect()])
			.filter(([, box]) => box.width && box.height < 43.5)
			.map(([text, { height }]) => `${text} ${height}`),
	);
