/* What is peculiar to a phone: little room, and a keyboard that takes the half of it. */

import assert from "node:assert/strict";
import { becomes, comesTo, pageTests } from "./support/page.mjs";
import { card, lanes } from "./support/scene.mjs";

/* A browser that only pushes the page up under its keyboard: told so by window.seen. */
const scene = pageTests({
	viewport: { width: 375, height: 667 },
	init: () => {
		const seen = Object.assign(new EventTarget(), { height: innerHeight, offsetTop: 0, scale: 1 });
		Object.defineProperty(window, "visualViewport", { value: seen });
		window.seen = (to) => {
			Object.assign(seen, to);
			seen.dispatchEvent(new Event("resize"));
		};
	},
});

const boxesOf = (page, selector) =>
	page.evaluate(
		(of) =>
			[...document.querySelectorAll(of)].map((element) => {
				const { left, right, top, bottom } = element.getBoundingClientRect();
				return {
					text: element.textContent,
					left, right, top, bottom,
					cut: element.scrollWidth > element.clientWidth || element.scrollHeight > element.clientHeight,
				};
			}),
		selector,
	);
/* The page knows it when it is back. */
async function resize(page, height) {
	await page.setViewportSize({ width: 375, height });
	await becomes(page, (height) => innerHeight === height, height);
}
const within = ({ left, right, top, bottom }, [width, from, to]) =>
	left >= 0 && right <= width && top >= from && bottom <= to;

/* Every option of the card, whole and to be pressed where it stands. */
async function optionsInSight(page, id, count) {
	const wrong = async () => {
		const options = await boxesOf(page, `.card[data-card="${id}"] .card-options > *`);
		const reached = await page.evaluate(
			(of) =>
				[...document.querySelectorAll(of)].every((element) => {
					const { left, top, width, height } = element.getBoundingClientRect();
					return element.contains(document.elementFromPoint(left + width / 2, top + height / 2));
				}),
			`.card[data-card="${id}"] .card-options > *`,
		);
		return [
			...(options.length === count ? [] : [`${options.length} options`]),
			...options.filter((option) => !within(option, [375, 0, 667]) || option.cut ||
				option.bottom - option.top < 44 || option.right - option.left < 44),
			...(reached ? [] : ["something lies over one"]),
		];
	};
	await comesTo(page, wrong, []);
}

scene("every option of a card is in sight, and its text has two lines at least", async ({ open }) => {
	const page = await open();
	await page.waitForSelector(".card[data-card=card-1]");
	await optionsInSight(page, "card-1", 4);
	const [body] = await boxesOf(page, ".card[data-card=card-1] .card-body");
	assert.ok(body.bottom - body.top >= 42);
	const [tray] = await boxesOf(page, ".tray");
	assert.ok(tray.bottom - tray.top <= 667 / 3 + 1, `${tray.bottom - tray.top}`);
});

scene("options with long names are whole too", async ({ broker, open }) => {
	broker.cards.clear();
	const options = [
		["Yes, proceed", "allow_once"],
		["Yes, and don't ask again for commands that start with `npm run build`", "allow_always"],
		["No, and tell it what to do differently", "reject_once"],
		["Never", "reject_always"],
	].map(([name, kind], i) => ({ id: `o${i}`, name, kind }));
	const long = card(lanes.codex, "long", { options, text: "make\n".repeat(200) });
	broker.cards.set(long.id, long);
	const page = await open();
	await page.waitForSelector(".card[data-card=long]");
	await optionsInSight(page, "long", 5);
	const [tray] = await boxesOf(page, ".tray");
	assert.ok(tray.bottom - tray.top <= (667 * 2) / 3);
});

scene("a keyboard over the page leaves what is typed in sight, and the tray is one line", async ({ openAgent }) => {
	const page = await openAgent(lanes.claude);
	await page.waitForSelector(".card[data-card=card-1]");
	await page.locator(".composer textarea").focus();
	/* The browser has pushed the page up by 120 to show the field. */
	await page.evaluate(() => window.seen({ height: 340, offsetTop: 120 }));
	await page.locator(".tray[data-folded]").waitFor();
	const seen = [375, 120, 460];
	for (const part of [".frame", ".tray", ".composer-box", ".agent-head"])
		await comesTo(page, async () => (await boxesOf(page, part)).filter((box) => !within(box, seen)), [], part);
	await page.locator(".screens").waitFor({ state: "hidden" });
	/* And some of the transcript. */
	await becomes(page, () => document.querySelector(".transcript").clientHeight >= 80);
	/* Enlarged by two fingers is no keyboard. */
	await page.evaluate(() => window.seen({ height: 300, offsetTop: 40, scale: 2 }));
	await page.locator(".tray:not([data-folded])").waitFor();
	await page.evaluate(() => window.seen({ height: 667, offsetTop: 0, scale: 1 }));
	await becomes(page, () => document.body.getBoundingClientRect().height === innerHeight && document.body.getBoundingClientRect().top === 0);
	await optionsInSight(page, "card-1", 4);
	await page.locator(".screens").waitFor();
});

scene("a page made low by its keyboard folds the tray too, and unfolds it as it was", async ({ openAgent }) => {
	const page = await openAgent(lanes.claude);
	await page.waitForSelector(".card[data-card=card-1]");
	await resize(page, 400);
	await page.evaluate(() => window.seen({ height: 400 }));
	await page.locator(".tray[data-folded]").waitFor();
	await comesTo(page, async () => (await boxesOf(page, ".composer-box")).filter((box) => !within(box, [375, 0, 400])), []);
	/* Whoever wants the cards has them. */
	await page.locator(".tray button").click();
	await page.locator(".tray:not([data-folded])").waitFor();
	await resize(page, 667);
	await page.evaluate(() => window.seen({ height: 667 }));
	await optionsInSight(page, "card-1", 4);
});

const LONG = "an-agent-with-a-name-that-nobody-would-give-to-one-that-is-looked-at-on-a-phone";

scene("names too long for their place leave room for what stands beside them", async ({ broker, openAgent }) => {
	for (const one of broker.agents.values()) broker.agents.set(one.id, { ...one, name: LONG });
	const page = await openAgent(lanes.claude);
	for (const width of [375, 1440]) {
		await page.setViewportSize({ width, height: 800 });
		await page.waitForSelector(".card[data-card=card-1]");
		const wrong = async () => {
			const parts = [".agent-head .choice", ".card[data-card=card-1] .card-head time", ".card[data-card=card-1] .card-head .verb"];
			const out = [];
			for (const part of parts) {
				const [box] = await boxesOf(page, part);
				if (!within(box, [width, 0, 800]) || box.right <= box.left) out.push([part, box]);
			}
			const [left] = await boxesOf(page, ".card[data-card=card-1] .card-head time");
			const [card] = await boxesOf(page, ".card[data-card=card-1]");
			if (left.right > card.right) out.push(["the time and its card", left.right, card.right]);
			const [head] = await boxesOf(page, ".agent-head");
			for (const { text, right } of await boxesOf(page, ".agent-head > *"))
				if (right > head.right) out.push(["in the head", text, right, head.right]);
			return out;
		};
		await comesTo(page, wrong, [], `${width} wide`);
	}
});

scene("model and mode are chosen under Now, where the composer has no room for them", async ({ broker, openAgent }) => {
	const page = await openAgent(lanes.claude);
	const model = page.getByLabel("Model in force");
	assert.equal(await model.isVisible(), false);
	await page.getByRole("button", { name: "Now" }).click();
	await model.selectOption("haiku");
	await broker.until(() => broker.posts.length);
	assert.deepEqual(broker.posts.map(({ type, model: to }) => [type, to]), [["switch_model", "haiku"]]);
	/* It shows the value in force until the agent says another. */
	assert.equal(await model.inputValue(), "opus");
	await page.setViewportSize({ width: 1440, height: 800 });
	await page.locator(".composer").getByLabel("Model in force").waitFor();
	await comesTo(page, () => model.count(), 1);
});
