import assert from "node:assert/strict";
import { drawn, hasText, pageTests } from "./support/page.mjs";
import { lanes, pos, row } from "./support/scene.mjs";

const scene = pageTests();
const of = lanes.claude;
const LINES = Array.from({ length: 2500 }, (_, i) => `\u001b[32mline ${i + 1}\u001b[0m of all`);
const WHOLE = `${LINES.join("\n")}\n`;

const ran = (over = {}) =>
	row(of, 1, "tool", {
		kind: "execute",
		status: "completed",
		verb: "Ran",
		object: "make",
		partsAt: pos(7),
		parts: [
			{ type: "text", text: "first" },
			{ type: "output", text: `${LINES[0]}\n… left out …\n${LINES.at(-1)}\n`, bytes: WHOLE.length, more: true },
		],
		...over,
	});
async function openOutput({ broker, openAgent }, over) {
	broker.rows.set(of.id, [ran(over)]);
	const page = await openAgent();
	await page.locator("summary", { hasText: "Output," }).click();
	await page.waitForSelector(".terminal");
	return page;
}
const shown = (page) => page.locator(".terminal").evaluate((pre) => pre.textContent.split("\n"));
const press = (page, name) => page.getByRole("button", { name }).click();
const plain = (lines) => lines.map((line) => line.replaceAll(/\u001b\[\d+m/g, ""));

scene("an output is shown whole on demand, page by page, in its colours, and copied", async (tools) => {
	const asked = [];
	tools.broker.part = (query) => {
		asked.push(query);
		return { text: WHOLE };
	};
	const page = await openOutput(tools);
	await hasText(page, ".panel-foot", /Its beginning and its end, \d+ bytes of \d+ KB/);
	assert.deepEqual(asked, []);
	await press(page, "Show all");
	await hasText(page, ".panel-foot", "Lines 1–1,000 of 2,500");
	assert.deepEqual(asked, [{ agent: of.agent, at: pos(7), part: "1", side: "text" }]);
	assert.deepEqual(await shown(page), plain(LINES.slice(0, 1000)));
	assert.equal(await page.locator(".terminal .sgr-green").count(), 1000);
	assert.equal(await page.getByRole("button", { name: "Earlier lines" }).isDisabled(), true);
	await press(page, "Later lines");
	await press(page, "Later lines");
	await hasText(page, ".panel-foot", "Lines 2,001–2,500 of 2,500");
	assert.deepEqual(await shown(page), plain(LINES.slice(2000)));
	assert.equal(await page.getByRole("button", { name: "Later lines" }).isDisabled(), true);
	await press(page, "Earlier lines");
	await hasText(page, ".panel-foot", "Lines 1,001–2,000 of 2,500");
	await page.evaluate(() => {
		navigator.clipboard.writeText = async (text) => {
			window.copied = text;
		};
	});
	await press(page, "Copy all");
	await hasText(page, ".panel-foot", "Copied");
	assert.equal(await page.evaluate(() => window.copied), LINES.join("\n"));
	assert.equal(asked.length, 1, "asked once");
});

scene("what the harness left out of it is not said to be there", async (tools) => {
	const page = await openOutput(tools);
	tools.broker.part = () => ({ text: "begin\n…[elided 81920 bytes]…\nend\n", elided: 81_920 });
	await press(page, "Show all");
	await hasText(page, ".panel-foot", "Lines 1–3 of 3 · 82 KB left out by the harness: too long to be sent");
	assert.deepEqual(await shown(page), ["begin", "…[elided 81920 bytes]…", "end"]);
});

scene("why it is not shown whole is a sentence", async (tools) => {
	const page = await openOutput(tools);
	await press(page, "Show all");
	await hasText(page, ".panel-foot [role=status]", /^there is no diff at this place\.$/i);
	assert.deepEqual((await shown(page))[1], "… left out …");
	tools.broker.part = () => ({ text: "all of it\n" });
	await press(page, "Show all");
	await hasText(page, ".panel-foot", "Lines 1–1 of 1");
	assert.equal(await page.getByRole("button", { name: "Later lines" }).count(), 0);
});

scene("what has no place in the archive offers nothing", async (tools) => {
	const page = await openOutput(tools, { partsAt: undefined });
	await drawn(page);
	assert.equal(await page.getByRole("button", { name: "Show all" }).count(), 0);
});
