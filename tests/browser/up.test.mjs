// The whole of Perch in a real browser: real agents, a real relay, the page they end up on.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { portToKeep } from "../program/support/perch.mjs";
import { Up, until } from "../program/support/up.mjs";
import { TIMEOUT_MS } from "../program/support/timeout.mjs";
import { openBrowser } from "./support/chromium.mjs";
import { becomes, chord } from "./support/page.mjs";

const SDK_AGENT = fileURLToPath(new URL("../program/support/acp-agent.mjs", import.meta.url));

let browser;
before(async () => { browser = await openBrowser(); });
after(async () => { await browser.close(); });

/** `perch up` with the SDK agent, its first prompt already played; and the page of its lane. */
async function withAgent(run, { permissions = "ask", more = [] } = {}) {
	const up = await new Up(["--name", "sdk", "--channel", "lab", "--permissions", permissions, ...more,
		"--", process.execPath, SDK_AGENT]).ready();
	let page;
	try {
		const lane = await until(async () => (await up.fleet()).lanes.find((it) => it.channelName === "lab"), "the lane");
		page = await browser.tab(up.url.href);
		await page.getByRole("link", { name: /sdk/ }).first().click();
		await page.locator("textarea").waitFor();
		await run({ up, page, lane });
		assert.deepEqual(page.violations, []);
		assert.deepEqual(page.errors, []);
	} finally {
		await page?.close();
		await up.stop();
	}
}

async function prompt(page, text) {
	await page.locator("textarea").fill(text);
	await page.locator("textarea").press("Control+Enter");
}

const rowsOf = (up, lane) => up.rows(lane.id);
const turnsOf = (rows) => rows.filter((row) => row.type === "turn");

test("the demo is seen in the fleet, and its permission is answered by one key", { timeout: 300_000 }, async () => {
	const up = await new Up(["--demo"]).ready();
	const page = await browser.tab(up.url.href);
	try {
		await page.locator(".card").first().waitFor();
		const card = (await up.fleet()).cards[0];
		await becomes(page, () => document.title.startsWith("(1)"));
		await page.keyboard.press("a");
		await until(async () => (await up.rows(card.lane)).some((row) =>
			row.type === "permission" && row.nonce === card.id && row.state === "allowed" && row.by === "you"), "the receipt");
		await page.locator(".card").waitFor({ state: "detached" });
		assert.deepEqual(page.violations, []);
		assert.deepEqual(page.errors, []);
	} finally {
		await page.close();
		await up.stop();
	}
});

test("what the demo did is on the timeline and in the report", { timeout: 300_000 }, async () => {
	const up = await new Up(["--demo"]).ready();
	const page = await browser.tab(up.url.href);
	try {
		await page.locator(".card").first().waitFor();
		await chord(page, "g", "t");
		await page.locator(".lanes li").first().waitFor();
		/* It waits for the owner, in the strip and as a span. */
		await until(() => page.evaluate(() => window.__perch.timeline.spans().some(({ kind, open }) => kind === 3 && open)), "the wait");
		await chord(page, "g", "r");
		await page.locator(".report tbody tr").filter({ hasText: "Waiting for you" }).waitFor();
		await page.keyboard.press("2");
		await page.locator(".report tbody tr").filter({ hasText: "Turn" }).first().waitFor();
		assert.deepEqual(page.violations, []);
		assert.deepEqual(page.errors, []);
	} finally {
		await page.close();
		await up.stop();
	}
});

test("a permission approved in the page reaches the agent; the card goes only on its receipt", { timeout: 300_000 }, () =>
	withAgent(async ({ up, page, lane }) => {
		await prompt(page, "permission\nsay done");
		const card = page.locator(".card").first();
		await card.waitFor();
		// The harness is frozen: the decision is sent and relayed, and the card must stay.
		const harness = up.part("agent");
		process.kill(harness, "SIGSTOP");
		await card.getByRole("button", { name: /Allow once/ }).click();
		await page.locator(".card .receipt", { hasText: /relayed/ }).waitFor();
		assert.equal(await card.count(), 1);
		process.kill(harness, "SIGCONT");
		await card.waitFor({ state: "detached" });
		await page.locator(".transcript", { hasText: "done" }).waitFor();
		const rows = await until(async () => {
			const got = await rowsOf(up, lane);
			return got.some((row) => row.type === "tool" && row.status === "completed") && got;
		}, "the end of the call");
		assert.equal(rows.filter((row) => row.type === "permission" && row.state === "allowed").length, 1);
	}));

test("stop cancels the turn and holds the queue until it is released", { timeout: 300_000 }, () =>
	withAgent(async ({ up, page, lane }) => {
		await prompt(page, "stall");
		await until(async () => (await up.fleet()).lanes[0].turn?.state === "running", "the turn");
		await prompt(page, "say second");
		await page.locator(".queued", { hasText: "say second" }).waitFor();
		await page.locator("textarea").press("Escape");
		await page.locator(".stop").click();
		const turn = await until(async () => turnsOf(await rowsOf(up, lane))[0], "the end of the turn");
		assert.equal(turn.state, "cancelled");
		assert.equal(turn.cancelledBy, "owner");
		await page.locator(".held").waitFor();
		assert.equal(turnsOf(await rowsOf(up, lane)).length, 1);
		await page.getByRole("button", { name: "Release" }).click();
		await page.locator(".transcript", { hasText: "second" }).waitFor();
		await until(async () => turnsOf(await rowsOf(up, lane)).length === 2, "the second turn");
	}));

test("a relay killed in mid-turn: the page catches up by itself, nothing lost, nothing doubled", { timeout: 300_000 }, async () =>
	withAgent(async ({ up, page, lane }) => {
		await page.evaluate(() => { window.notReloaded = true; });
		await prompt(page, "markers 40 150");
		await page.locator(".transcript", { hasText: /marker 3\]/ }).waitFor();
		const relay = up.part("relay");
		process.kill(relay, "SIGKILL");
		await page.locator(".health[data-level=warn], .health[data-level=bad]").or(page.locator(".health", { hasText: /relay/ })).first().waitFor();
		const rows = await until(async () => {
			const got = await rowsOf(up, lane);
			return turnsOf(got).length === 1 && got;
		}, "the end of the turn", 2 * TIMEOUT_MS);
		const text = rows.filter((row) => row.type === "message").map((row) => row.text).join("");
		const seen = [...text.matchAll(/\[marker (\d+)\]/g)].map((match) => Number(match[1]));
		assert.deepEqual(seen, [...Array(40).keys()]);
		assert.equal(new Set(rows.map((row) => row.id)).size, rows.length);
		await page.locator(".transcript", { hasText: /marker 39\]/ }).waitFor();
		assert.equal(await page.evaluate(() => window.notReloaded), true);
	}, { more: ["--relay-listen", `127.0.0.1:${await portToKeep()}`] }));

test("hostile text in agent output stays text", { timeout: 300_000 }, () =>
	withAgent(async ({ page }) => {
		const evil = `<img src=x onerror=alert(1)><script>alert(2)</script> [x](javascript:alert(3)) \u202eevil\u202c \u001b[31mred\u001b[0m`;
		await prompt(page, `say ${evil}`);
		await page.locator(".transcript .prose", { hasText: "evil" }).first().waitFor();
		assert.equal(await page.locator(".transcript img, .transcript script").count(), 0);
		assert.equal(await page.locator("a[href^='javascript:']").count(), 0);
		assert.deepEqual(page.dialogs, []);
	}));

test("a second tab shows the same and follows live", { timeout: 300_000 }, () =>
	withAgent(async ({ up, page }) => {
		const second = await browser.tab(page.url());
		try {
			await second.locator("textarea").waitFor();
			await prompt(page, "say to-both-tabs");
			await page.locator(".transcript", { hasText: "to-both-tabs" }).waitFor();
			await second.locator(".transcript", { hasText: "to-both-tabs" }).waitFor();
			await prompt(second, "say from-the-second");
			await page.locator(".transcript", { hasText: "from-the-second" }).waitFor();
			assert.deepEqual(second.violations, []);
			assert.equal(up.status, undefined);
		} finally {
			await second.close();
		}
	}));
