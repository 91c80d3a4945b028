import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chord, comesTo, drawn, hasText, pageTests, tooSmall, width } from "./support/page.mjs";
import { lanes, pos } from "./support/scene.mjs";

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
	"a diff side by side": async ({ broker, openAgent }) => {
		const edited = (broker.rows.get(lanes.claude.id) ?? []).find(({ parts }) =>
			parts?.some(({ type }) => type === "diff"),
		);
		broker.putRow({ ...edited, partsAt: pos(20) });
		const page = await openAgent(lanes.claude);
		await page.evaluate(() => localStorage.setItem("perch.diff", "side"));
		await page.reload();
		await page.waitForSelector(".diff.side");
		await page.evaluate(() => localStorage.removeItem("perch.diff"));
		return page;
	},
	story: async ({ openAgent }) => {
		const page = await openAgent(lanes.claude);
		await page.waitForSelector(".entry[data-row=row-card-1]");
		await page.keyboard.press("Shift+Z");
		await page.waitForSelector(".entry-story");
		return page;
	},
	raw: async ({ broker, openAgent }) => {
		broker.raw.set(
			lanes.claude.id,
			["acp_read", "acp_write", "turn_started"].map((kind, i) => ({
				pos: pos(2 + i),
				t: Date.now(),
				kind,
				direction: ["read", "write"][i],
				text: '{"jsonrpc":"2.0","a":"\u202e"}',
				...(i ? {} : { trimmed: 70_000 }),
			})),
		);
		const page = await openAgent(lanes.claude);
		await page.waitForSelector(".entry[data-row=row-card-1]");
		await page.keyboard.press("z");
		await page.waitForSelector(".raw-line");
		await page.locator(".raw-line summary").first().click();
		await page.waitForSelector(".raw-line pre");
		return page;
	},
	now: async ({ openAgent }) => {
		const page = await openAgent(lanes.claude);
		await page.setViewportSize({ width: 375, height: 667 });
		await page.getByRole("button", { name: "Now" }).click();
		await page.getByRole("complementary", { name: "Now" }).waitFor();
		await hasText(page, ".aside", "122 k of 200 k");
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
	alerts: async ({ open }) => {
		const page = await open();
		await page.waitForSelector(".fleet-row");
		await page.getByRole("button", { name: "Alerts" }).click();
		await page.getByRole("dialog").waitFor();
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

for (const name of ["fleet", "agent", "story", "raw"])
	scene(`every number has a tooltip that says what it is: ${name}`, async (tools) => {
		const page = await SCREENS[name](tools);
		/* What a term stands before is said by that. */
		const bare = await page.evaluate(() =>
			[...document.querySelectorAll(".number, .count, time, .tally .state, .since")]
				.filter((e) => e.textContent.trim() && !e.closest("[title]:not([title='']), dd"))
				.map(({ outerHTML }) => outerHTML.slice(0, 120)),
		);
		assert.deepEqual(bare, []);
	});

for (const name of ["fleet", "agent", "now", "story", "raw", "first run"])
	scene(
		`on a phone ${name} fits, and its controls are big enough for a thumb`,
		async (tools) => {
			const page = await SCREENS[name](tools);
			await page.setViewportSize({ width: 375, height: 667 });
			await drawn(page);
			await comesTo(page, width, 375);
			await comesTo(page, tooSmall, []);
		},
		{ empty: name === "first run" },
	);

scene("on a phone every screen is in the bar, and theme and UTC are under Alerts", async ({
	open,
}) => {
	const page = await open();
	await page.setViewportSize({ width: 375, height: 667 });
	await page.waitForSelector(".fleet-row");
	for (const name of ["Fleet", "Timeline", "Report", "Search", "Self"])
		assert.ok(await page.getByRole("link", { name, exact: true }).isVisible(), name);
	await page.getByRole("button", { name: "Alerts" }).click();
	const dialog = page.getByRole("dialog");
	await dialog.getByLabel("Theme").selectOption("dark");
	await dialog.getByLabel("Times in UTC").check();
	await hasText(page, ".health time", "UTC");
	assert.equal(
		await page.evaluate(() => getComputedStyle(document.documentElement).colorScheme),
		"dark",
	);
	await dialog.getByLabel("Theme").selectOption("");
	await dialog.getByLabel("Times in UTC").uncheck();
});

scene(
	"on a phone the tray is a sheet above the tab bar, within a third, and Stop is there",
	async ({ openAgent }) => {
		const page = await openAgent();
		await page.setViewportSize({ width: 375, height: 667 });
		await page.getByRole("button", { name: "Stop" }).waitFor();
		/* All of one moment. */
		const wrong = () =>
			page.evaluate(() => {
				const box = (selector) => document.querySelector(selector).getBoundingClientRect();
				const [tray, bar] = [box(".tray"), box(".screens")];
				const allow = [...document.querySelectorAll(".card button")]
					.find(({ textContent }) => textContent.startsWith("Allow once"))
					.getBoundingClientRect();
				const is = {
					"the tray is high": tray.height <= innerHeight / 3 + 1,
					"it ends where the bar begins": Math.abs(tray.bottom - bar.top) <= 1,
					"the answer is above the bar": allow.bottom <= bar.top,
				};
				return Object.keys(is).filter((words) => !is[words]);
			});
		await comesTo(page, wrong, []);
	},
);

/* facts: open, approve, stop, prompt, search, a range, its report; no pointer at all. */
scene("the whole way by keys alone", async ({ broker, open }) => {
	const page = await open();
	await page.waitForSelector(".fleet-row");
	const post = (type) => broker.until(() => broker.posts.some((it) => it.type === type));
	await page.keyboard.press("j");
	await page.keyboard.press("Enter");
	await page.waitForSelector(".transcript .entry");
	await page.keyboard.press("a");
	await post("permission_decision");
	await chord(page, "Escape", "Escape");
	await post("cancel_turn");
	await page.keyboard.press("i");
	await page.keyboard.type("Go on");
	await page.keyboard.press("Control+Enter");
	await post("prompt");
	await page.keyboard.press("Escape");
	await page.keyboard.press("/");
	await page.waitForSelector(".search .field:focus");
	await page.keyboard.type("rate");
	await page.keyboard.press("Escape");
	await chord(page, "g", "t");
	await page.waitForSelector(".lanes li");
	while (!(await page.locator(".strip").isVisible())) {
		await page.keyboard.press(".");
		await page.keyboard.press("r");
		await drawn(page);
	}
	await chord(page, "g", "r");
	await page.waitForSelector(".report tbody tr");
});
