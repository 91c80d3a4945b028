import assert from "node:assert/strict";
import { chord, drawn, hasText, pageTests, saysAfter } from "./support/page.mjs";
import { lanes } from "./support/scene.mjs";

const scene = pageTests();
const of = lanes.claude;
const to = { agent: of.agent, channel: of.channel };

scene(
	"Ctrl Enter sends the prompt; Enter alone is a new line",
	async ({ broker, openAgent }) => {
		const page = await openAgent();
		await page.keyboard.press("i");
		await page.keyboard.type("first");
		await page.keyboard.press("Enter");
		await page.keyboard.type("second");
		assert.deepEqual(broker.posts, []);
		await page.keyboard.press("Control+Enter");
		await broker.until(() => broker.posts.length);
		assert.deepEqual(broker.posts, [
			{ ...to, type: "prompt", text: "first\nsecond" },
		]);
		await page.waitForFunction(() => document.querySelector("textarea").value === "");
	},
);

scene(
	"a prompt that was not taken stays in the field, with the reason",
	async ({ broker, openAgent }) => {
		const page = await openAgent();
		await page.locator("textarea").fill("do it");
		broker.refuse = { status: 429, error: "more than 10 controls a second" };
		await page.getByRole("button", { name: "Send" }).click();
		await hasText(page, ".answers", "Not sent: more than 10 controls a second.");
		assert.equal(await page.locator("textarea").inputValue(), "do it");
	},
);

scene("a draft outlives a look at another agent", async ({ openAgent }) => {
	const page = await openAgent();
	await page.locator("textarea").fill("half a thought");
	await page.locator(".others a").nth(1).click();
	await hasText(page, ".agent-head .where", "web");
	assert.equal(await page.locator("textarea").inputValue(), "");
	await page.locator(".others a").nth(0).click();
	await hasText(page, ".agent-head .where", "api-server");
	assert.equal(await page.locator("textarea").inputValue(), "half a thought");
});

scene("each queued prompt shows its state", async ({ broker, openAgent }) => {
	const page = await openAgent();
	await hasText(page, ".queue li", /Queued\s*Then add a line.*\s*1st in line/);
	for (const [state, over, words] of [
		["sent", {}, "waiting for the relay"],
		["relayed", {}, "waiting for its answer"],
		["queued", { position: 2 }, "2nd in line"],
		["refused", { detail: "above --control" }, "refused: above --control"],
		["expired", {}, "not delivered in time"],
	]) {
		broker.publish({
			lanes: [
				{
					...of,
					queue: [
						{
							requestId: "r1",
							text: "next",
							state,
							position: null,
							detail: null,
							...over,
						},
					],
				},
			],
		});
		await hasText(page, ".queue li", words);
	}
});

scene("Esc twice stops the turn, once only asks", async ({ broker, openAgent }) => {
	const page = await openAgent();
	await page.waitForSelector(".entry");
	assert.match(await saysAfter(page, ".answers", "Escape"), /Esc again to stop/);
	assert.deepEqual(broker.posts, []);
	/* Within two seconds: of these, or of the first and one of these. */
	await chord(page, "Escape", "Escape");
	await broker.until(() => broker.posts.length);
	assert.deepEqual(broker.posts, [{ ...to, type: "cancel_turn" }]);
	const stop = {
		requestId: "s1",
		agent: of.agent,
		lane: of.id,
		type: "cancel_turn",
		/* Ahead: an answer stays in sight for eight seconds. */
		atMs: Date.now() + 600_000,
	};
	for (const [over, words] of [
		[{ state: "sent" }, "Stop sent"],
		[{ state: "relayed" }, "Stop relayed, waiting for claude"],
		[{ state: "answered", status: "sent" }, "Stop: passed on to the agent"],
	]) {
		broker.publish({ controls: [{ ...stop, ...over }] });
		await hasText(page, ".answers", words);
	}
});

scene(
	"a held queue says what it means and is released",
	async ({ broker, openAgent }) => {
		const page = await openAgent();
		broker.publish({
			lanes: [
				{
					...of,
					held: true,
					turn: { ...of.turn, state: "cancelled", cancelledBy: "owner" },
				},
			],
		});
		await hasText(page, ".held", /Held\s*Its prompts wait since you stopped it/);
		assert.ok(await page.getByRole("button", { name: "Stop" }).isDisabled());
		await page.getByRole("button", { name: "Release" }).click();
		await broker.until(() => broker.posts.length);
		assert.deepEqual(broker.posts, [{ ...to, type: "release_queue" }]);
	},
);

scene(
	"pickers show the value in force until the agent says another",
	async ({ broker, openAgent }) => {
		const page = await openAgent();
		const model = page.getByLabel("Model in force");
		await model.selectOption("haiku");
		await broker.until(() => broker.posts.length);
		assert.deepEqual(broker.posts[0], {
			...to,
			type: "switch_model",
			model: "haiku",
		});
		await drawn(page);
		assert.equal(await model.inputValue(), "opus");
		broker.publish({
			lanes: [{ ...of, models: { ...of.models, current: "haiku" } }],
		});
		await page.waitForFunction(
			() =>
				document.querySelector("[aria-label='Model in force']").value === "haiku",
		);
		await page.getByLabel("Mode in force").selectOption("auto");
		await broker.until(() => broker.posts.length === 2);
		assert.deepEqual(broker.posts[1], { ...to, type: "set_mode", mode: "auto" });
	},
);

for (const [over, words] of [
	[{ control: "approve" }, "only answers and stops from here"],
	[{ control: "none" }, "takes nothing from here"],
	[{ mode: "proxy" }, "driven by its editor"],
	[{ mode: "run" }, "is a command"],
])
	scene(
		`an agent with ${JSON.stringify(over)} takes no prompt and says why`,
		async ({ broker, openAgent }) => {
			broker.agents.set(of.agent, { ...broker.agents.get(of.agent), ...over });
			const page = await openAgent();
			await page.waitForSelector(".composer textarea:disabled");
			assert.match(
				await page.locator("textarea").getAttribute("placeholder"),
				new RegExp(words),
			);
			assert.ok(await page.getByRole("button", { name: "Send" }).isDisabled());
			assert.equal(
				await page.getByRole("button", { name: "Stop" }).isDisabled(),
				over.control !== "approve",
			);
		},
	);
