import assert from "node:assert/strict";
import { pageAssets } from "./support/fake-broker.mjs";
import { becomes, drawn, hasText, pageTests, saysAfter } from "./support/page.mjs";
import { agent, lane, lanes } from "./support/scene.mjs";

const scene = pageTests();
const rowOf = (one) => `.fleet-row[data-lane="${one.id}"]`;

scene(
	"the fleet shows every lane once, in the groups that matter first",
	async ({ open }) => {
		const page = await open();
		await page.waitForSelector(".fleet-row");
		assert.deepEqual(
			(await page.locator(".group-head").allInnerTexts()).map((text) =>
				text.replace("\n", " "),
			),
			[
				"Needs you 2",
				"Working 4, 1 stalled",
				"Failed 1",
				"Finished 2",
				"Offline 1",
			],
		);
		assert.deepEqual(await page.locator(".fleet-row .where").allInnerTexts(), [
			"api-server",
			"web",
			"infra",
			"build #4127",
			"billing",
			"docs",
			"edge",
			"mobile",
			"changelog",
			"nightly",
		]);
		assert.match(
			await page.locator(rowOf(lanes.gemini)).innerText(),
			/Running npm run build:docs/,
		);
		assert.equal(await page.title(), "(2) Fleet · perch");
	},
);

scene(
	"a lane that fails moves to its group, and the nodes of the others stay",
	async ({ broker, open }) => {
		const page = await open();
		await page.waitForSelector(".fleet-row");
		const other = await page.locator(rowOf(lanes.billing)).elementHandle();
		broker.publish({
			lanes: [
				{
					...lanes.gemini,
					state: "failed",
					verb: "Build failed",
					object: null,
					sinceMs: Date.now(),
				},
			],
		});
		await hasText(page, "[aria-labelledby=group-failed] .fleet-row", "Build failed");
		assert.ok(await other.evaluate((node) => node.isConnected));
		assert.equal(await page.locator(rowOf(lanes.gemini)).count(), 1);
	},
);

scene("elapsed times tick without drawing the row again", async ({ open }) => {
	const page = await open();
	await page.waitForSelector(".fleet-row");
	const changed = await page.evaluate(
		(selector) =>
			new Promise((resolve) => {
				const kinds = new Set();
				new MutationObserver((records) => {
					for (const { type } of records) kinds.add(type);
					resolve([...kinds]);
				}).observe(document.querySelector(selector), {
					subtree: true,
					childList: true,
					attributes: true,
					characterData: true,
				});
			}),
		rowOf(lanes.gemini),
	);
	assert.deepEqual(changed, ["characterData"]);
});

scene("J, K and Enter open an agent, B goes back", async ({ open }) => {
	const page = await open();
	await page.waitForSelector(".fleet-row");
	for (const key of ["j", "j", "j", "k"]) await page.keyboard.press(key);
	assert.equal(await page.locator(".fleet-row[data-focus] .where").innerText(), "web");
	await page.keyboard.press("Enter");
	await hasText(page, ".agent-head .where", "web");
	await page.keyboard.press("b");
	await page.waitForSelector(".fleet-row");
});

scene(
	"a row keeps the focus when its lane moves to another group, and when the reader comes back",
	async ({ broker, open }) => {
		const page = await open();
		const focused = () =>
			page.evaluate(() => document.activeElement?.dataset.lane ?? null);
		await page.locator(rowOf(lanes.gemini)).focus();
		broker.publish({
			lanes: [{ ...lanes.gemini, state: "failed", verb: "Build failed" }],
		});
		await hasText(page, "[aria-labelledby=group-failed] .fleet-row", "Build failed");
		await becomes(page, () => document.activeElement?.dataset?.lane);
		assert.equal(await focused(), lanes.gemini.id);
		await page.keyboard.press("Enter");
		await page.waitForSelector(".transcript");
		await page.keyboard.press("b");
		await page.waitForSelector(".fleet-row");
		await becomes(page, () => document.activeElement?.dataset?.lane);
		assert.equal(await focused(), lanes.gemini.id);
	},
);

scene("a screen that came before it was asked for is shown", async ({ broker, browser }) => {
	const page = await browser.tab();
	/* No frame and no timer until they are let go, as where there is no time to draw. */
	await page.addInitScript(() => {
		const held = [];
		const real = { requestAnimationFrame, setTimeout };
		for (const [name, make] of Object.entries(real))
			window[name] = (...args) => {
				held.push(() => make(...args));
				return 0;
			};
		window.letGo = () => {
			Object.assign(window, real);
			for (const go of held) go();
		};
	});
	await page.goto(`${broker.url}/lane/${lanes.claude.id}`);
	/* It is fetched ahead, whatever is shown. */
	const path = [...pageAssets().keys()].find((it) => it.startsWith("/agent-"));
	await broker.until(() => broker.requests.includes(`GET ${path}`));
	await page.evaluate((it) => import(it), path);
	assert.equal(await page.locator(".transcript").count(), 0);
	await page.evaluate(() => window.letGo());
	await page.waitForSelector(".transcript");
	assert.deepEqual(page.errors, []);
	await page.close();
});

scene("what was seen days ago has its day", async ({ broker, open }) => {
	const seenMs = Date.now() - 3 * 86_400_000;
	broker.agents.set(agent(4).id, agent(4, { online: false, seenMs }));
	broker.health = { ...broker.health, completeMs: seenMs };
	const page = await open();
	const day = /^\d{1,2} \w{3,4}, \d\d:\d\d$/;
	const words = await page.locator(`${rowOf(lanes.nightly)} .since`).innerText();
	assert.match(words.replace("last seen ", ""), day);
	assert.match(await page.locator(".health time").innerText(), day);
});

scene("? lists the keys and Esc closes them", async ({ open }) => {
	const page = await open();
	await page.waitForSelector(".fleet-row");
	await page.keyboard.press("?");
	await page.getByRole("dialog").waitFor();
	assert.equal(await page.getByRole("dialog").evaluate((it) => (it.scrollHeight > it.clientHeight ? it.scrollTop : "all fits")), 0);
	await page.keyboard.press("Escape");
	await page.getByRole("dialog").waitFor({ state: "hidden" });
});

scene(
	"the theme button forces light, then dark, and the choice lasts",
	async ({ open }) => {
		const page = await open();
		await page.getByRole("button", { name: "System" }).click();
		await page.getByRole("button", { name: "Light" }).click();
		await page.getByRole("button", { name: "Dark" }).waitFor();
		await page.reload();
		await page.getByRole("button", { name: "Dark" }).waitFor();
		assert.equal(
			await page.evaluate(
				() => getComputedStyle(document.documentElement).colorScheme,
			),
			"dark",
		);
		await page.getByRole("button", { name: "Dark" }).click();
	},
);

scene(
	"with no agent there are three commands and the owner's words, until one comes",
	async ({ broker, open }) => {
		broker.owner = { npub: "npub1owner", words: "copper lantern orbit maple" };
		const page = await open();
		await hasText(page, "h1", "No agent yet");
		assert.deepEqual(await page.locator(".command code").allInnerTexts(), [
			"perch up --name claude -- claude-agent-acp",
			"perch proxy -- gemini --experimental-acp",
			"perch run -- make test",
			"perch invite laptop --relay wss://relay.example",
		]);
		await hasText(page, ".words", "copper lantern orbit maple");
		broker.publish({ agents: [agent(0)], lanes: [lane(0, 1)] });
		await page.waitForSelector(".fleet-row");
	},
	{ empty: true },
);

scene(
	"the commands name a relay that is not where commands look by themselves",
	async ({ broker, open }) => {
		broker.health = {
			...broker.health,
			relay: { state: "ready", url: "wss://relay.example:7447", rttMs: 12 },
		};
		broker.owner = { npub: "npub1owner", words: "copper lantern orbit maple" };
		const page = await open();
		await hasText(page, "h1", "No agent yet");
		assert.deepEqual(
			(await page.locator(".command code").allInnerTexts()).slice(1),
			[
				"perch proxy --relay wss://relay.example:7447 -- gemini --experimental-acp",
				"perch run --relay wss://relay.example:7447 -- make test",
				"perch invite laptop",
			],
		);
	},
	{ empty: true },
);

scene(
	"the demo agent is played by the button or P, once, and what is wrong is said",
	async ({ broker, open }) => {
		broker.demo = "the demo agent runs already";
		const page = await open();
		const asked = () => broker.requests.filter((line) => line === "POST /api/demo").length;
		await page.getByRole("button", { name: "Play the demo agent" }).click();
		await hasText(page, ".demo", "Not started: the demo agent runs already.");
		broker.demo = null;
		assert.match(
			await saysAfter(page, ".demo:has(button:disabled)", "p", "p"),
			/It starts, and shows up here by itself\./,
		);
		await broker.until(() => asked() >= 2);
		await drawn(page);
		assert.equal(asked(), 2);
	},
	{ empty: true },
);

scene(
	"what is counted on top is what there is of, and says when nothing works",
	async ({ broker, open }) => {
		const page = await open();
		const tally = page.locator(".tally");
		await hasText(page, ".tally", "3 working");
		assert.deepEqual(
			(await tally.locator(".state").allInnerTexts()).map((text) =>
				text.replace(/\s+/g, " "),
			),
			["3 working", "1 stalled", "1 failed", "2 need you"],
		);
		broker.publish({
			lanes: [...broker.lanes.values()].map((it) => ({ ...it, state: "finished" })),
			removedCards: [...broker.cards.keys()],
		});
		await hasText(page, ".tally", "none working");
		assert.equal(await tally.locator(".state").count(), 0);
	},
);

scene(
	"a lane and an agent that were forgotten leave the page, and come again when they speak",
	async ({ broker, open }) => {
		const page = await open();
		const row = page.locator(rowOf(lanes.gemini));
		const { id, agent: whose } = lanes.gemini;
		const [its, theirs] = [broker.lanes.get(id), broker.agents.get(whose)];
		assert.ok(its && theirs);
		await row.waitFor();
		broker.publish({ removedLanes: [id], removedAgents: [whose] });
		await row.waitFor({ state: "detached" });
		assert.equal(await page.locator(".fleet-row").count(), 9);
		broker.publish({ agents: [theirs], lanes: [its] });
		await row.waitFor();
	},
);

scene("the token leaves the address at once and survives a reload", async ({ open }) => {
	const page = await open();
	await page.waitForSelector(".fleet-row");
	assert.equal(new URL(page.url()).hash, "#/");
	await page.reload();
	await page.waitForSelector(".fleet-row");
});

scene(
	"without a valid token the page says how to get one, and asks for nothing",
	async ({ broker, browser, open }) => {
		broker.token = "another";
		const page = await open();
		await hasText(page, "main", "perch open");
		const asked = broker.requests.filter((line) => line.includes("/api/")).length;
		await drawn(page);
		assert.equal(
			broker.requests.filter((line) => line.includes("/api/")).length,
			asked,
		);
		assert.equal(await page.locator(".fleet-row").count(), 0);

		const fresh = await browser.tab(`${broker.origin}/`);
		await hasText(fresh, "main", "perch open");
		await fresh.close();
	},
);

scene(
	"two tabs with a token that is refused do not hand it back and forth",
	async ({ broker, browser, open }) => {
		const first = await open();
		await first.waitForSelector(".fleet-row");
		const second = await browser.tab(`${broker.origin}/`);
		await second.waitForSelector(".fleet-row");
		broker.token = "rotated";
		for (const stream of broker.streams.keys()) stream.destroy();
		for (const page of [first, second]) await hasText(page, "main", "perch open");
		const asked = broker.requests.filter((line) =>
			line.includes("/api/stream"),
		).length;
		assert.ok(asked <= 10, `${asked} requests`);
		/* The new token, given to one, serves both. */
		await first.goto(`${broker.origin}/#rotated`);
		for (const page of [first, second]) await page.waitForSelector(".fleet-row");
		await second.close();
	},
);

scene(
	"an agent without a session is there by name",
	async ({ broker, open }) => {
		broker.agents.set(agent(0).id, agent(0));
		const page = await open();
		await hasText(page, "main", "claude: no session yet");
	},
	{ empty: true },
);

scene("a finished lane says what was said last in prose", async ({ broker, open }) => {
	broker.lanes.set(lanes.mobile.id, {
		...lanes.mobile,
		verb: "Finished",
		object: "All **ten** `tests` pass.",
		outcome: null,
	});
	const page = await open();
	await hasText(page, rowOf(lanes.mobile), "Finished: All ten tests pass.");
	assert.equal(await page.locator(`${rowOf(lanes.mobile)} code`).count(), 0);
});

scene(
	"an agent that wants a login says so in its own words",
	async ({ broker, openAgent }) => {
		broker.agents.set(
			agent(0).id,
			agent(0, {
				needsLogin: {
					text: "Run claude login first",
					methods: [
						{ id: "m", name: "Browser", description: "opens a browser" },
					],
				},
			}),
		);
		const page = await openAgent();
		await hasText(page, ".login", "Run claude login first");
	},
);

scene(
	"what is missing and what is down stands in the header, in amber",
	async ({ broker, open }) => {
		const page = await open();
		await page.waitForSelector(".health[data-level=ok]");
		broker.publish({
			health: {
				...broker.health,
				missing: [{ agent: lanes.claude.agent, frames: 17, state: "asked" }],
			},
		});
		await hasText(
			page,
			".health[data-level=warn]",
			"17 frames missing from claude, asked for",
		);
		broker.publish({
			health: {
				...broker.health,
				relay: {
					state: "down",
					url: "ws://x",
					reason: "connection refused",
					retryAtMs: Date.now() + 3000,
					sinceMs: Date.now() - 63_000,
				},
				missing: [],
			},
		});
		await hasText(
			page,
			".health[data-level=warn]",
			/relay gone \d+:\d\d, trying again in \d s: connection refused/,
		);
		broker.publish({
			health: {
				...broker.health,
				relay: { state: "ready", rttMs: 9 },
				missing: [],
			},
		});
		await hasText(page, ".health[data-level=ok]", "relay 9 ms");
	},
);

scene("the health line says what is gone, and how it is with the archive", async ({ broker, open }) => {
	const page = await open();
	await page.waitForSelector(".health[data-level=ok]");
	broker.publish({ health: { ...broker.health, gone: 12, archive: { state: "ok", reason: "", aside: "/data/archive.db.broken-1" } } });
	await hasText(page, ".health[data-level=ok]", /archive begun anew.*complete through .*, 12 frames gone/s);
	broker.publish({ health: { ...broker.health, archive: { state: "failing", reason: "no space left" } } });
	await hasText(page, ".health[data-level=warn]", "archive not written: no space left");
	broker.publish({ health: { ...broker.health, archive: { state: "failing", reason: "read-only", inMemory: true } } });
	await hasText(page, ".health[data-level=warn]", "archive in memory only: read-only");
	broker.publish({ health: { ...broker.health, archive: { state: "ok", reason: "" } } });
	await page.waitForSelector(".health[data-level=ok]");
});

scene("U shows all times in UTC and says so", async ({ broker, open }) => {
	/* Of today: what is long ago has its day. */
	const completeMs = Date.now() - 60_000;
	broker.health = { ...broker.health, completeMs };
	const page = await open();
	await page.waitForSelector(".fleet-row");
	await page.keyboard.press("u");
	await hasText(page, ".health", `complete through ${new Date(completeMs).toISOString().slice(11, 19)} UTC`);
	await page.keyboard.press("u");
	await page.locator(".health", { hasText: "UTC" }).waitFor({ state: "detached" });
});
