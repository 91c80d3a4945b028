/* Text that wants to do harm, and text that is too much: in every zoom it is text, it is marked,
 * and there is never more of it in the document than a screen can show. */

import assert from "node:assert/strict";
import { becomes, drawn, hasText, pageTests } from "./support/page.mjs";
import { lanes, pos, row } from "./support/scene.mjs";

const scene = pageTests();
const of = lanes.claude;

const ZOOMS = { detail: ".entry:not(.entry-story, .entry-raw)", story: ".entry-story", raw: ".entry-raw" };
const NODES = ":is(script, iframe, object, embed, img, svg, style, link, form, base, meta, video)";

const HTML = '<img src=x onerror=alert(1)><script>alert(2)</script><svg onload=alert(3)>[x](javascript:alert(4))';
const BIDI = "safe\u202egnp.exe\u2066x\u2069\u200b\ufeff";
const ANSI = "\u001b[31mred\u001b[0m\u001b]0;title\u0007\u001b[2J\u009b1mx\rover";
const LINE_10MB = "x".repeat(65_536);
const BASE64 = `data:image/png;base64,${"iVBORw0KGgo".repeat(6000)}`;

const tool = (seq, parts, over = {}) =>
	row(of, seq, "tool", {
		kind: "execute",
		status: "failed",
		verb: "Ran",
		object: "x",
		outcome: "failed (1)",
		parts,
		...over,
	});
/* What the broker says of each: cut as it cuts. */
const CORPORA = {
	"HTML": [HTML, (text) => row(of, 1, "message", { role: "agent", text, story: { text } })],
	"bidi": [BIDI, (text) => row(of, 1, "note", { text, level: "info" })],
	"escapes": [ANSI, (text) => tool(1, [{ type: "output", text, bytes: 60 }], { object: text })],
	"a line of 10 MB": [
		LINE_10MB,
		(text) =>
			row(of, 1, "message", { role: "agent", text, bytes: 10_000_000, story: { text: `${text.slice(0, 240)}…` } }),
		10_000_000,
	],
	"an output of 1.4 MB": [
		"one of many lines\n".repeat(3600),
		(text) => tool(1, [{ type: "output", text: text.slice(0, 16_384), bytes: 1_400_000, more: true }]),
		1_400_000,
	],
	"a diff of 20,000 lines": [
		`{"oldText":"${"a\\n".repeat(20_000)}"}`,
		() =>
			tool(1, [
				{
					type: "diff",
					path: "/package-lock.json",
					added: 20_000,
					removed: 20_000,
					hunks: [{ old: 1, new: 1, lines: Array.from({ length: 200 }, (_, i) => `+${i} ${"y".repeat(2000)}`) }],
					more: true,
				},
			], { kind: "edit", verb: "Edited", story: { like: "files", added: 20_000, removed: 20_000 } }),
		900_000,
	],
	"images in base64": [
		BASE64,
		(text) =>
			tool(1, [
				{ type: "image", mime: "image/png", bytes: 50_000 },
				{ type: "text", text: `![](${text.slice(0, 60_000)})` },
			], { kind: "other", input: text.slice(0, 2048) }),
	],
};

const measure = (page) =>
	page.evaluate(() => {
		let text = 0;
		const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
		while (walk.nextNode()) text += walk.currentNode.data.length;
		return { nodes: document.querySelectorAll("*").length, text, width: document.documentElement.scrollWidth };
	});

/* Unfolds all that the row has, one after another: what is inside comes when it is asked for. */
async function openAll(page) {
	const folded = page.locator(".entry[data-row=row-1] details:not([open]) > summary");
	while ((await folded.count()) > 0) {
		await folded.first().click();
		await drawn(page);
	}
}

for (const [name, [text, make, bytes]] of Object.entries(CORPORA))
	for (const [zoom, there] of Object.entries(ZOOMS))
		scene(`${name}: in ${zoom} it is text, and no more than a screen can show`, async ({ broker, open }) => {
			broker.rows.set(of.id, [make(text), row(of, 9, "note", { text: "the last row" })]);
			const whole = JSON.stringify({ jsonrpc: "2.0", text });
			broker.raw.set(of.id, [
				{ pos: pos(1), t: 1, kind: "acp_read", direction: "read", name: "session/update", text: whole, bytes: bytes ?? Buffer.byteLength(whole) },
				{ pos: pos(9), t: 1, kind: "note", text: '{"text":"the last row"}' },
			]);
			const page = await open(`/lane/${of.id}${zoom === "detail" ? "" : `?zoom=${zoom}`}`);
			await page.waitForSelector(`${there}[data-row=row-9]`);
			await hasText(page, ".entry", "the last row");
			if (zoom === "raw") await hasText(page, ".raw-line", "session/update");
			await openAll(page);
			if (zoom === "raw") await page.waitForSelector(".entry[data-row=row-1] pre");
			const { nodes, text: length, width } = await measure(page);
			assert.ok(nodes < 3000, `${nodes} elements`);
			assert.ok(length < 600_000, `${length} characters`);
			assert.equal(width, 1440);
			assert.equal(await page.locator(`.transcript ${NODES}`).count(), 0);
			const seen = await page.locator(".entry[data-row=row-1]").innerText();
			assert.doesNotMatch(seen, /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b\u202a-\u202e\u2066-\u2069\ufeff]/);
			if (name === "bidi") assert.match(seen, /U\+202E/);
			if (name === "HTML" && zoom !== "raw") assert.match(seen, /onerror=alert/);
			/* The page goes on: its keys work, and what comes is shown. */
			broker.publish({ rows: [row(of, 10, "note", { text: "and on it goes" })] });
			broker.raw.get(of.id).push({ pos: pos(10), t: 1, kind: "note", text: '{"text":"and on it goes"}' });
			await page.keyboard.press("g");
			await hasText(page, ".entry", "and on it goes");
			await page.keyboard.press("z");
			await becomes(page, (was) => !document.querySelector(was), there);
		});
