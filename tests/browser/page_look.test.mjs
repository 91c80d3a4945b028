import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { drawn, pageTests } from "./support/page.mjs";
import { lanes } from "./support/scene.mjs";

const scene = pageTests();
const axe = readFileSync(
	createRequire(import.meta.url).resolve("axe-core/axe.min.js"),
	"utf8",
);

const SIZES = [
	[1440, 900],
	[375, 667],
];
const SCREENS = {
	fleet: async ({ open }) => {
		const page = await open();
		await page.waitForSelector(".fleet-row");
		return page;
	},
	agent: async ({ openAgent }) => {
		const page = await openAgent(lanes.claude);
		await page.waitForSelector(".entry[data-row=row-card-1]");
		return page;
	},
	"first run": async ({ open }) => {
		const page = await open();
		await page.waitForSelector(".ways");
		return page;
	},
	"no token": async ({ broker, open }) => {
		broker.token = "another";
		const page = await open();
		await page.waitForSelector(".command");
		return page;
	},
	keys: async ({ open }) => {
		const page = await open();
		await page.waitForSelector(".fleet-row");
		await page.keyboard.press("?");
		await page.getByRole("dialog").waitFor();
		return page;
	},
};

for (const [name, screen] of Object.entries(SCREENS))
	scene(
		`axe finds nothing on: ${name}, in both themes, wide and on a phone`,
		async (tools) => {
			tools.broker.owner = {
				npub: "npub1owner",
				words: "copper lantern orbit maple",
			};
			const page = await screen(tools);
			/* By the debugger: the page's own policy lets no such script in. */
			await page.evaluate(axe);
			for (const [width, height] of SIZES)
				for (const colorScheme of ["dark", "light"]) {
					await page.setViewportSize({ width, height });
					await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
					await drawn(page);
					const found = await page.evaluate(async () => {
						const { violations } = await window.axe.run(document, {
							resultTypes: ["violations"],
						});
						return violations.map(
							({ id, nodes }) =>
								`${id}: ${nodes
									.slice(0, 3)
									.map(({ html }) => html.slice(0, 160))
									.join(" | ")}`,
						);
					});
					assert.deepEqual(found, [], `${width} ${colorScheme}`);
				}
		},
		{ empty: name === "first run" },
	);

for (const name of ["fleet", "agent", "first run"])
	scene(
		`on a phone ${name} fits, and its controls are big enough for a thumb`,
		async (tools) => {
			const page = await SCREENS[name](tools);
			await page.setViewportSize({ width: 375, height: 667 });
			await drawn(page);
			assert.equal(
				await page.evaluate(() => document.documentElement.scrollWidth),
				375,
			);
			const small = await page.evaluate(() =>
				[
					...document.querySelectorAll(
						"button, textarea, select, .button, .screens a",
					),
				]
					.filter((e) => e.checkVisibility() && !e.classList.contains("link"))
					.map((e) => [e.textContent.slice(0, 20), e.getBoundingClientRect()])
					.filter(([, box]) => box.width && box.height < 43.5)
					.map(([text, { height }]) => `${text} ${height}`),
			);
			assert.deepEqual(small, []);
		},
		{ empty: name === "first run" },
	);

scene(
	"on a phone the tray is a sheet above the tab bar, within a third, and Stop is there",
	async ({ openAgent }) => {
		const page = await openAgent();
		await page.setViewportSize({ width: 375, height: 667 });
		await drawn(page);
		const tray = await page.locator(".tray").boundingBox();
		const bar = await page.locator(".screens").boundingBox();
		assert.ok(tray.height <= 667 / 3 + 1);
		assert.ok(Math.abs(tray.y + tray.height - bar.y) <= 1);
		assert.ok(await page.getByRole("button", { name: "Stop" }).isVisible());
		const allow = await page
			.getByRole("button", { name: "Allow once" })
			.first()
			.boundingBox();
		assert.ok(allow.y + allow.height <= bar.y);
	},
);
