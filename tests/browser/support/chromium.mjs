/* Debian's Chromium with a fresh profile, and pages that keep what went wrong in them. */

import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

const ARGS = [
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
	const profile = mkdtempSync(join(tmpdir(), "perch-chromium-"));
	const context = await chromium.launchPersistentContext(profile, {
		executablePath: CHROMIUM,
		args: ARGS,
		viewport: { width: 1440, height: 900 },
		...options,
	});
	context.setDefaultTimeout(30_000);
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
		async close() {
			await context.close();
			rmSync(profile, { recursive: true, force: true });
		},
	};
}
