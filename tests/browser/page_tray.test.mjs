import assert from "node:assert/strict";
import { comesTo, drawn, hasText, pageTests } from "./support/page.mjs";
import { card, cards, lanes } from "./support/scene.mjs";

const scene = pageTests();
const cardOf = (id) => `.card[data-card="${id}"]`;

scene(
	"A allows the oldest request once; its card goes only when the broker says so",
	async ({ broker, open }) => {
		const page = await open();
		await page.waitForSelector(cardOf("card-1"));
		await page.keyboard.press("a");
		await broker.until(() => broker.posts.length);
		assert.deepEqual(broker.posts, [
			{
				agent: lanes.claude.agent,
				channel: lanes.claude.channel,
				type: "permission_decision",
				card: "card-1",
				option: "ok",
			},
		]);
		await hasText(page, `${cardOf("card-1")} .receipt`, "is being sent");
		assert.equal(await page.locator(`${cardOf("card-1")} button`).count(), 0);
		for (const [state, words] of [
			["sent", "waiting for the relay"],
			["relayed", "waiting for claude to apply it"],
		]) {
			broker.publish({ cards: [{ ...cards.claude, state, picked: "ok" }] });
			await hasText(page, `${cardOf("card-1")} .receipt`, words);
		}
		broker.publish({
			cards: [{ ...cards.claude, state: "over", picked: "ok", outcome: "applied" }],
		});
		await hasText(
			page,
			`${cardOf("card-1")} .receipt`,
			/Allow once sent\s*relayed\s*applied/,
		);
		assert.equal(await page.title(), "(1) Fleet · perch");
		broker.publish({ removedCards: ["card-1"] });
		await page.locator(cardOf("card-1")).waitFor({ state: "detached" });
		assert.equal(await page.locator(cardOf("card-2")).count(), 1);
	},
);

scene(
	"D denies, and a number picks the option in the order shown",
	async ({ broker, open }) => {
		const page = await open();
		await page.waitForSelector(cardOf("card-1"));
		assert.deepEqual(
			await page.locator(`${cardOf("card-1")} .card-options > *`).allInnerTexts(),
			["Allow once\nA", "Deny\nD", "Always allow make\n3", "Open\nO"],
		);
		await page.keyboard.press("3");
		await broker.until(() => broker.posts.length === 1);
		assert.equal(broker.posts[0].option, "always");
		await page.locator(`${cardOf("card-2")} .card-body`).click();
		await page.keyboard.press("d");
		await broker.until(() => broker.posts.length === 2);
		assert.deepEqual(
			[broker.posts[1].card, broker.posts[1].option],
			["card-2", "no"],
		);
	},
);

scene(
	"a key still in the fingers does not answer the card that moved up",
	async ({ broker, open }) => {
		const page = await open();
		await page.waitForSelector(cardOf("card-2"));
		/* Pressed at once, and heard of late: the page was busy. */
		await page.evaluate(() => {
			const [first, second] = [0, 1].map(() => new KeyboardEvent("keydown", { key: "a", bubbles: true }));
			document.body.dispatchEvent(first);
			const begun = performance.now();
			while (performance.now() < begun + 700);
			document.body.dispatchEvent(second);
		});
		await hasText(page, `${cardOf("card-1")} .receipt`, "is being sent");
		/* What was picked is shown at once, and comes to the broker when it comes. */
		assert.equal(await page.locator(`${cardOf("card-2")} .receipt`).count(), 0);
		await broker.until(() => broker.posts.length);
		await drawn(page);
		assert.deepEqual(broker.posts.map(({ card }) => card), ["card-1"]);
	},
);

scene(
	"no answer is given by a held key, a chord, or a letter typed into a prompt",
	async ({ broker, openAgent }) => {
		const page = await openAgent();
		await page.waitForSelector(cardOf("card-1"));
		await page.keyboard.press("Control+a");
		await page.evaluate(() =>
			window.dispatchEvent(
				new KeyboardEvent("keydown", { key: "a", repeat: true, bubbles: true }),
			),
		);
		await page.locator("textarea").fill("");
		await page.locator("textarea").pressSequentially("ad1");
		await drawn(page);
		assert.equal(await page.locator("textarea").inputValue(), "ad1");
		assert.deepEqual(broker.posts, []);
	},
);

scene(
	"a trimmed request cannot be allowed before its body is here, but denied",
	async ({ broker, open }) => {
		broker.cards.clear();
		const trimmed = card(lanes.claude, "card-t", {
			trimmed: true,
			bodyReady: false,
			text: "head …[elided 41000 bytes]… tail",
			bytes: 44_000,
		});
		broker.cards.set(trimmed.id, trimmed);
		const page = await open();
		await hasText(
			page,
			`${cardOf("card-t")} .warning`,
			"Came trimmed: fetch it whole to allow it.",
		);
		await page.keyboard.press("a");
		await page.keyboard.press("3");
		assert.ok(await page.getByRole("button", { name: "Allow once" }).isDisabled());
		assert.ok(await page.getByRole("button", { name: "Deny" }).isEnabled());
		await page.getByRole("button", { name: "Fetch" }).click();
		await broker.until(() => broker.posts.length);
		assert.deepEqual(broker.posts, [
			{
				agent: lanes.claude.agent,
				channel: lanes.claude.channel,
				type: "fetch_body",
				card: "card-t",
			},
		]);
		broker.publish({ cards: [{ ...trimmed, bodyReady: true, text: "all of it" }] });
		await hasText(page, `${cardOf("card-t")} pre`, "all of it");
		await page.getByRole("button", { name: "Allow once" }).click();
		await broker.until(() => broker.posts.length === 2);
		assert.equal(broker.posts[1].option, "ok");
	},
);

scene(
	"an answer that was not taken says why and can be given again",
	async ({ broker, open }) => {
		const page = await open();
		await page.waitForSelector(cardOf("card-1"));
		broker.refuse = { status: 503, error: "the relay is not connected" };
		await page.keyboard.press("a");
		await hasText(
			page,
			`${cardOf("card-1")} .warning`,
			"Not sent: the relay is not connected",
		);
		broker.refuse = null;
		await page.getByRole("button", { name: "Allow once" }).first().click();
		await broker.until(() => broker.posts.length);
	},
);

scene("a card in proxy mode sends the owner to the editor", async ({ broker, open }) => {
	broker.cards.clear();
	broker.agents.set(lanes.claude.agent, {
		...broker.agents.get(lanes.claude.agent),
		mode: "proxy",
	});
	broker.cards.set("card-p", card(lanes.claude, "card-p", { actionable: false }));
	const page = await open();
	await hasText(page, cardOf("card-p"), "Answer in your editor.");
	assert.equal(await page.locator(`${cardOf("card-p")} button`).count(), 0);
	await page.keyboard.press("a");
	await drawn(page);
	assert.deepEqual(broker.posts, []);
});

scene("a card that ends without our answer says how", async ({ broker, open }) => {
	const page = await open();
	await page.waitForSelector(cardOf("card-1"));
	for (const [outcome, words] of [
		["timed_out", "nobody answered in time"],
		["turn_ended", "the turn ended"],
		["restarted", "started again"],
		["uncertain", "not known"],
	]) {
		broker.publish({ cards: [{ ...cards.claude, state: "over", outcome }] });
		await hasText(page, `${cardOf("card-1")} .receipt`, words);
	}
});

scene(
	"characters that would not show are shown, counted and measured",
	async ({ open }) => {
		const page = await open();
		await hasText(page, cardOf("card-2"), "63 bytes");
		await hasText(page, `${cardOf("card-2")} .unseen`, "U+200B");
		await hasText(
			page,
			`${cardOf("card-2")} .warning`,
			"1 character that does not show",
		);
	},
);

scene(
	"ten thousand lines scroll inside their card; its buttons and warnings stay in sight",
	async ({ broker, open }) => {
		broker.cards.clear();
		broker.cards.set(
			"card-l",
			card(lanes.claude, "card-l", {
				text: "echo line\n".repeat(10_000),
				redacted: true,
				bodyReady: false,
			}),
		);
		const page = await open();
		await page.waitForSelector(cardOf("card-l"));
		/* All of one moment. */
		const wrong = () =>
			page.evaluate(() => {
				const tray = document.querySelector(".tray").getBoundingClientRect();
				const out = tray.height <= 900 / 3 + 1 ? [] : [`the tray is ${tray.height} high`];
				const buttons = [...document.querySelectorAll(".card-options button")];
				for (const name of ["Deny", "Fetch"])
					if (!buttons.some((it) => it.textContent.startsWith(name))) out.push(`no ${name}`);
				for (const element of [...buttons, document.querySelector(".card-note .warning")]) {
					const { bottom } = element.getBoundingClientRect();
					if (bottom > tray.bottom) out.push(`${element.textContent} ends at ${bottom} of ${tray.bottom}`);
				}
				return out;
			});
		await comesTo(page, wrong, []);
	},
);

scene("T folds the tray to a line and never away", async ({ broker, open }) => {
	const page = await open();
	await page.waitForSelector(cardOf("card-1"));
	await page.keyboard.press("t");
	await page.waitForSelector(".tray[data-folded]");
	assert.ok((await page.locator(".tray").boundingBox()).height < 50);
	assert.match(
		await page.locator(".tray").innerText(),
		/claude[^]*rm -rf build[^]*and 1 more/,
	);
	/* An answered card waits no more, though its receipt is there for a while. */
	const answered = { state: "over", picked: "ok", outcome: "applied" };
	broker.publish({ cards: [{ ...cards.claude, ...answered }] });
	await hasText(page, ".tray[data-folded]", /^codex(?!.*more)/s);
	broker.publish({ cards: [{ ...cards.codex, ...answered }] });
	await hasText(page, ".tray[data-folded]", "answered");
	assert.equal(await page.locator(".tray time").count(), 0);
	await page.keyboard.press("t");
	await page.waitForSelector(cardOf("card-1"));
});

scene("O opens the place in the transcript", async ({ open }) => {
	const page = await open();
	await page.waitForSelector(cardOf("card-1"));
	await page.keyboard.press("o");
	await page.waitForSelector(".entry[data-row=row-card-1][data-current]");
});

scene("an edit shows its diff in the card", async ({ broker, open }) => {
	broker.cards.clear();
	broker.cards.set(
		"card-d",
		card(lanes.codex, "card-d", {
			verb: "wants to edit",
			kind: "edit",
			text: null,
			diffs: [
				{
					type: "diff",
					path: "deploy/nginx.conf",
					added: 1,
					removed: 1,
					hunks: [{ old: 1, new: 1, lines: ["-listen 80;", "+listen 443;"] }],
					more: false,
				},
			],
		}),
	);
	const page = await open();
	await hasText(page, `${cardOf("card-d")} .card-body`, "deploy/nginx.conf");
	await hasText(page, `${cardOf("card-d")} .added`, "listen 443;");
	await hasText(page, `${cardOf("card-d")} .removed`, "listen 80;");
});

scene("five requests of three agents are in sight at once, each with its options", async ({ broker, open }) => {
	for (const [i, of] of [lanes.claude, lanes.codex, lanes.opencode].entries()) {
		const more = card(of, `more-${i}`, { text: "make\n".repeat(50) });
		broker.cards.set(more.id, more);
	}
	const page = await open();
	await page.waitForSelector(cardOf("more-2"));
	await comesTo(page, () => page.locator(".card-options > *").count(), 4 + 3 + 3 * 4);
	/* All of one moment; of each card two lines of what is asked for. */
	const wrong = () =>
		page.evaluate(() => {
			const tray = document.querySelector(".tray").getBoundingClientRect();
			const out = tray.height <= 900 / 3 + 1 ? [] : [`the tray is ${tray.height} high`];
			for (const element of document.querySelectorAll(".card-options > *")) {
				const { top, bottom, left, width } = element.getBoundingClientRect();
				if (bottom > tray.bottom || !element.contains(document.elementFromPoint(left + width / 2, (top + bottom) / 2)))
					out.push(`${element.textContent} ends at ${bottom} of ${tray.bottom}`);
			}
			for (const body of document.querySelectorAll(".card-body"))
				if (body.getBoundingClientRect().height < 36) out.push(`${body.getBoundingClientRect().height} of a body`);
			return out;
		});
	await comesTo(page, wrong, []);
});
