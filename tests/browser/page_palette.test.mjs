import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { becomes, comesTo, hasText, pageTests } from "./support/page.mjs";
import { lanes } from "./support/scene.mjs";

const scene = pageTests();
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

const field = (page, name) => page.getByRole("combobox", { name });
const options = (page) => page.locator(".palette [role=option]");
const chosen = (page) => page.locator(".palette [aria-selected=true]");
const gone = (page) => page.locator(".palette[open]").waitFor({ state: "detached" });

scene("Ctrl P finds a lane: on the timeline there, wherever it is hidden, elsewhere its transcript", async ({ open }) => {
	const page = await open("/timeline?q=docs");
	await page.waitForSelector(".lanes li");
	await page.locator(".lanes li a").first().focus();
	await page.keyboard.press("h");
	await becomes(page, () => !document.querySelector(".lanes li"));
	await page.keyboard.press("Control+p");
	await field(page, "Find a lane").waitFor();
	await becomes(page, () => document.activeElement.getAttribute("role") === "combobox");
	await becomes(page, () => document.querySelectorAll(".palette [role=option]").length === 10);
	await page.keyboard.type("docs gem");
	await becomes(page, () => document.querySelectorAll(".palette [role=option]").length === 1);
	await page.keyboard.press("Enter");
	await gone(page);
	await becomes(page, () => document.activeElement.closest(".lanes li")?.textContent.includes("docs"));
	/* One that the filter leaves out. */
	await page.keyboard.press("Control+p");
	await field(page, "Find a lane").waitFor();
	await page.keyboard.type("billing");
	await hasText(page, ".palette [aria-selected=true]", "billing");
	await page.keyboard.press("Enter");
	await becomes(page, () => document.activeElement.closest(".lanes li")?.textContent.includes("billing"));
	assert.ok(!(await page.evaluate(() => location.hash)).includes("q="));
	await page.goto(page.url().replace(/#.*/, "#/"));
	await page.waitForSelector(".fleet-row");
	await page.keyboard.press("Meta+p");
	await field(page, "Find a lane").waitFor();
	await page.keyboard.type("api-server");
	await hasText(page, ".palette [aria-selected=true]", "api-server");
	await page.keyboard.press("Enter");
	await page.waitForSelector(".transcript");
	assert.ok((await page.evaluate(() => location.hash)).includes(lanes.claude.id));
});

scene("Ctrl Shift P has the commands of the screen with their keys; Escape does nothing and gives the focus back", async ({ open, broker }) => {
	const page = await open("/timeline");
	await page.waitForSelector(".lanes canvas");
	await page.locator(".lanes").focus();
	await page.keyboard.press("Control+Shift+P");
	await field(page, "Find a command").waitFor();
	await hasText(page, ".palette [role=option]", "Follow now");
	const fit = options(page).filter({ hasText: "Fit all" });
	assert.equal(await fit.locator("kbd").textContent(), "Home");
	/* Up from the first is the last. */
	await page.keyboard.press("ArrowUp");
	await hasText(page, ".palette [aria-selected=true]", "All keys");
	await page.keyboard.press("ArrowDown");
	await hasText(page, ".palette [aria-selected=true]", "Zoom in");
	assert.equal(await field(page, "Find a command").getAttribute("aria-activedescendant"), await chosen(page).getAttribute("id"));
	await page.keyboard.type("xyzzy");
	await hasText(page, ".palette [role=status]", "No command has these words.");
	const hash = await page.evaluate(() => location.hash);
	await page.keyboard.press("Escape");
	await gone(page);
	await becomes(page, () => document.activeElement.classList.contains("lanes"));
	assert.equal(await page.evaluate(() => location.hash), hash);
	/* It runs what the key would. */
	await page.keyboard.press("Control+Shift+P");
	await field(page, "Find a command").waitFor();
	await page.keyboard.type("fit all");
	await hasText(page, ".palette [aria-selected=true]", "Fit all");
	await page.keyboard.press("Enter");
	await gone(page);
	await becomes(page, () => !window.__perch.timeline.follow);
	await page.keyboard.press("Control+Shift+P");
	await field(page, "Find a command").waitFor();
	await page.keyboard.type("go to: self");
	await hasText(page, ".palette [aria-selected=true]", "Self");
	await chosen(page).click();
	await page.waitForSelector("main.self");
	/* From the one palette into the other. */
	await page.keyboard.press("Control+Shift+P");
	await field(page, "Find a command").waitFor();
	await page.keyboard.type("find a lane");
	await hasText(page, ".palette [aria-selected=true]", "Find a lane");
	await page.keyboard.press("Enter");
	await field(page, "Find a lane").waitFor();
	await becomes(page, () => document.querySelectorAll(".palette [role=option]").length === 10);
	await page.keyboard.press("Escape");
	await gone(page);
	assert.deepEqual(broker.posts, []);
});

scene("a request is answered from the commands where its key means another thing", async ({ open, broker }) => {
	const page = await open("/timeline");
	await page.waitForSelector(".lanes canvas");
	await page.keyboard.press("Control+Shift+P");
	await field(page, "Find a command").waitFor();
	await page.keyboard.type("allow once");
	await hasText(page, ".palette [aria-selected=true]", "allow the focused one once");
	assert.equal(await chosen(page).locator("kbd").count(), 0);
	await page.keyboard.press("Enter");
	await broker.until(() => broker.posts.length === 1);
	assert.equal(broker.posts[0].type, "permission_decision");
	assert.equal(broker.posts[0].option, "ok");
});

scene("axe finds nothing in the palettes, wide and on a phone, where a button opens them", async ({ open }) => {
	const page = await open("/timeline");
	await page.waitForSelector(".lanes canvas");
	for (const [width, height] of [[1440, 900], [375, 667]])
		for (const colorScheme of ["light", "dark"]) {
			await page.setViewportSize({ width, height });
			await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
			if (width === 375) await page.getByRole("button", { name: "Find" }).click();
			else await page.keyboard.press("Control+Shift+P");
			await page.waitForSelector(".palette [role=option]");
			await page.evaluate(axe);
			const found = await page.evaluate(async () => (await window.axe.run(document, { resultTypes: ["violations"] })).violations.map(({ id, nodes }) => `${id} ${nodes[0].html}`));
			assert.deepEqual(found, [], `${width} ${colorScheme}`);
			await becomes(page, () => document.documentElement.scrollWidth <= innerWidth);
			await page.keyboard.press("Escape");
			await gone(page);
		}
});

scene("what J and K move on the timeline and in a report is among the commands", async ({ open }) => {
	const page = await open("/timeline");
	await page.waitForSelector(".lanes li");
	const say = async (words, command) => {
		await page.keyboard.press("Control+Shift+P");
		await field(page, "Find a command").waitFor();
		await page.keyboard.type(words);
		await hasText(page, ".palette [aria-selected=true]", command);
		await page.keyboard.press("Enter");
		await gone(page);
	};
	const lane = (page) =>
		page.evaluate(() => [...document.querySelectorAll(".lanes li")].indexOf(document.activeElement.closest(".lanes li")));
	await say("next lane", "Next lane");
	await comesTo(page, lane, 0);
	await say("next lane", "Next lane");
	await comesTo(page, lane, 1);
	await say("lane before", "Lane before");
	await comesTo(page, lane, 0);
	await page.getByRole("link", { name: "Report", exact: true }).click();
	await page.waitForSelector(".report tbody tr");
	const row = (page) =>
		page.evaluate(() => [...document.querySelectorAll(".report tbody tr")].findIndex((it) => it.hasAttribute("data-current")));
	await say("next row", "Next row");
	await comesTo(page, row, 0);
	await say("next row", "Next row");
	await comesTo(page, row, 1);
	await say("row before", "Row before");
	await comesTo(page, row, 0);
});
