/* Debian's Chromium with a fresh profile, and pages that keep what went wrong in them. */

import { existsSync } from "node:fs";
import { chromium } from "playwright-core";
import { TIMEOUT_MS } from "../../program/support/timeout.mjs";

export const ARGS = [
	"--headless",
	"--no-sandbox",
	"--disable-gpu",
	"--disable-quic",
	"--no-first-run",
	"--disable-background-networking",
	"--disable-component-update",
	"--disable-sync",
];

export const CHROMIUM = process.env.PERCH_CHROMIUM ?? "/usr/bin/chromium";

/* A browser with one profile, so that its pages are tabs of each other. */
export async function openBrowser(options = {}) {
	if (!existsSync(CHROMIUM))
		throw new Error(
			`no Chromium at ${CHROMIUM}: apt-get install chromium, or set PERCH_CHROMIUM`,
		);
	/* No folder: one that goes with the browser, once nothing writes into it any more. */
	const context = await chromium.launchPersistentContext("", {
		executablePath: CHROMIUM,
		args: ARGS,
		viewport: { width: 1440, height: 900 },
		timeout: TIMEOUT_MS,
		...options,
	});
	context.setDefaultTimeout(TIMEOUT_MS);
	/* Chromium tells of a violation by an event in the page it happened in. */
	await context.exposeBinding("tellViolation", ({ page }, text) =>
		page.violations.push(text),
	);
	await context.addInitScript(() =>
		addEventListener("securitypolicyviolation", (event) =>
			window.tellViolation(
				`${event.violatedDirective} ${event.blockedURI} ${event.sample}`,
			),
		),
	);
	return {
		context,
		async tab(url) {
			const page = await context.newPage();
			page.violations = [];
			page.errors = [];
			page.dialogs = [];
			page.on("pageerror", (error) =>
				page.errors.push(String(error.stack ?? error)),
			);
			page.on("dialog", (dialog) => {
				page.dialogs.push(dialog.message());
				void dialog.dismiss();
			});
			if (url) await page.goto(url);
			return page;
		},
		close: () => context.close(),
	};
}
