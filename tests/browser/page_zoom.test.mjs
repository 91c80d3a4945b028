import assert from "node:assert/strict";
import { becomes, comesTo, drawn, hasText, pageTests } from "./support/page.mjs";
import { lanes, pos, row } from "./support/scene.mjs";

const scene = pageTests();
const of = lanes.claude;

const scroller = (page) => page.locator(".transcript");
const placeOf = (page, id) =>
	page
		.locator(`.entry[data-row="${id}"]`)
		.evaluate((e) => Math.round(e.getBoundingClientRect().top));
const sentences = (page) =>
	page
		.locator(".entry-story .sentence")
		.evaluateAll((all) => all.map((e) => e.textContent));
const zoomButton = (page, name) =>
	page.getByRole("group", { name: "Zoom" }).getByRole("button", { name });
const hash = (page) => page.evaluate(() => location.hash);

const read = (seq, object, over = {}) =>
	row(of, seq, "tool", {
		kind: "read",
		status: "completed",
		verb: "Read",
		object,
		outcome: null,
		story: { like: "files" },
		parts: [],
		...over,
	});
const edit = (seq, object, added, removed) =>
	read(seq, object, {
		kind: "edit",
		verb: "Edited",
		outcome: `+${added} −${removed}`,
		story: { like: "files", added, removed },
	});
const ran = (seq, object, outcome = null) =>
	read(seq, object, { kind: "execute", verb: "Ran", outcome, story: undefined, status: outcome ? "failed" : "completed" });
const said = (seq, text, over = {}) =>
	row(of, seq, "message", {
		role: "agent",
		time: "model",
		text: `${text} And ${"more of it. ".repeat((seq * 7) % 40)}`,
		story: { text },
		end: Date.now(),
		...over,
	});
const line = (seq, text, over = {}) => ({
	pos: pos(seq),
	t: Date.now(),
	kind: "acp_read",
	direction: "read",
	name: "session/update agent_message_chunk",
	text,
	...over,
});

/* Rows 1, 11, 21, …, each with the lines 1–10, 11–20, … */
function fill(broker, count) {
	broker.rows.set(
		of.id,
		Array.from({ length: count }, (_, i) => said(10 * i + 1, `line ${i + 1}.`)),
	);
	broker.raw.set(
		of.id,
		Array.from({ length: 10 * count }, (_, i) =>
			line(i + 1, JSON.stringify({ jsonrpc: "2.0", line: i + 1 })),
		),
	);
}

scene(
	"the story is one sentence a row, and like rows that follow each other are one",
	async ({ broker, openAgent }) => {
		broker.rows.set(of.id, [
			read(1, "src/a.c"),
			read(2, "src/b.c"),
			read(3, "src/a.c"),
			edit(4, "src/a.c", 12, 3),
			ran(5, "make", "failed (2)"),
			ran(6, "make", "failed (2)"),
			ran(7, "make"),
			edit(8, "src/a.c", 1, 0),
			edit(9, "src/b.c", 2, 5),
			read(10, "src/c.c", { outcome: "failed", status: "failed" }),
			read(11, "src/d.c"),
			row(of, 12, "turn", { state: "completed", text: "Finished" }),
		]);
		const page = await openAgent();
		await hasText(page, ".entry", "Finished");
		await page.keyboard.press("Shift+Z");
		await page.waitForSelector(".entry-story");
		assert.deepEqual(await sentences(page), [
			"Read 2 files",
			"Edited src/a.c +12 −3",
			"Ran make, 2 times: failed (2)",
			"Ran make",
			"Edited 2 files +3 −5",
			"Read src/c.c: failed",
			"Read src/d.c",
			"Finished",
		]);
		/* A row that joins changes the sentence in place. */
		const mark = await page.locator(".entry-story").last().evaluateHandle((e) => e);
		broker.publish({ rows: [read(13, "src/e.c"), read(14, "src/f.c")] });
		await hasText(page, ".sentence", "Read 2 files");
		const finished = page.locator(".entry-story[data-row=row-12]");
		assert.ok(await finished.evaluate((e, was) => e === was, mark));
		broker.publish({ rows: [read(15, "src/g.c")] });
		await hasText(page, ".sentence", "Read 3 files");
		assert.equal(await page.locator(".entry").count(), 9);
	},
);

scene(
	"z goes through the zooms, the address says which, and back and a link show it again",
	async ({ broker, open, openAgent }) => {
		fill(broker, 3);
		const page = await openAgent();
		await hasText(page, ".entry", /line 3\./);
		assert.equal(
			await zoomButton(page, "Detail").getAttribute("aria-pressed"),
			"true",
		);
		const plain = await hash(page);
		await page.keyboard.press("z");
		await page.waitForSelector(".entry-raw .raw-line");
		assert.equal(await hash(page), `${plain}?zoom=raw`);
		await page.keyboard.press("z");
		await page.waitForSelector(".entry-story");
		assert.equal(await hash(page), `${plain}?zoom=story`);
		await page.keyboard.press("z");
		await page.waitForSelector(".entry:not(.entry-story, .entry-raw)");
		assert.equal(await hash(page), plain);
		await zoomButton(page, "Story").click();
		await page.waitForSelector(".entry-story");
		/* Another agent is looked at as near. */
		await page.locator(".others a").nth(1).click();
		await becomes(
			page,
			(was) => location.hash !== was && location.hash.endsWith("?zoom=story"),
			`${plain}?zoom=story`,
		);
		await page.goBack();
		await becomes(page, (was) => location.hash === was, `${plain}?zoom=story`);
		const other = await open(`${plain.slice(1)}?zoom=raw`);
		await other.waitForSelector(".entry-raw .raw-line");
		const odd = await open(`${plain.slice(1)}?zoom=%3Cb%3E`);
		await odd.waitForSelector(".entry:not(.entry-story, .entry-raw)");
	},
);

scene(
	"raw has every line once, under the row whose time it was, and what comes live",
	async ({ broker, openAgent }) => {
		fill(broker, 3);
		const page = await openAgent();
		await page.keyboard.press("z");
		const numbers = () =>
			page
				.locator(".raw-line code")
				.evaluateAll((all) => all.map((e) => JSON.parse(e.textContent).line));
		await becomes(page, () => document.querySelectorAll(".raw-line").length === 30);
		assert.deepEqual(
			await numbers(),
			Array.from({ length: 30 }, (_, i) => i + 1),
		);
		const inRow = await page
			.locator(".entry[data-row=row-11] .raw-line")
			.count();
		assert.equal(inRow, 10);
		/* A line that changes no row comes with the next row that changes. */
		broker.raw.get(of.id).push(line(31, '{"line":31}'));
		broker.publish({ rows: [said(21, "line 3 grew.")] });
		await becomes(page, () => document.querySelectorAll(".raw-line").length === 31);
		/* A new row takes what is from its place on. */
		broker.raw.get(of.id).push(line(32, '{"line":32}'), line(33, '{"line":33}'));
		broker.publish({ rows: [said(32, "line 4.")] });
		await becomes(page, () => document.querySelectorAll(".raw-line").length === 33);
		assert.deepEqual(
			await numbers(),
			Array.from({ length: 33 }, (_, i) => i + 1),
		);
		assert.equal(
			await page.locator(".entry[data-row=row-32] .raw-line").count(),
			2,
		);
	},
);

scene(
	"a line is opened as it was, its direction said, and what hides in it shown",
	async ({ broker, openAgent }) => {
		const long = JSON.stringify({ data: "A".repeat(90_000) });
		broker.rows.set(of.id, [said(1, "one.")]);
		broker.raw.set(of.id, [
			line(1, '{"id":1,"method":"session/prompt"}', {
				kind: "acp_write",
				direction: "write",
				name: "session/prompt",
			}),
			line(2, '{"path":"a\u202eb\u200bc"}'),
			line(3, long, { text: long }),
			line(4, '{"text":"harness"}', {
				kind: "turn_started",
				direction: undefined,
				name: undefined,
			}),
		]);
		const page = await openAgent();
		await page.keyboard.press("z");
		await becomes(page, () => document.querySelectorAll(".raw-line").length === 4);
		const lines = page.locator(".raw-line");
		await hasText(page, ".raw-line", "to the agent");
		assert.match(await lines.nth(1).textContent(), /from the agent/);
		assert.match(await lines.nth(3).textContent(), /of the harness.*turn_started/);
		await lines.nth(0).locator("summary").click();
		await hasText(page, ".raw-line pre", '"method": "session/prompt"');
		await lines.nth(1).locator("summary").click();
		await hasText(page, ".raw-line pre", "U+202E");
		assert.equal(await lines.nth(1).locator("pre .unseen").count(), 2);
		/* Only the first 64 KB of a long one, and no line of it endless. */
		await lines.nth(2).locator("summary").click();
		await hasText(page, ".raw-line .panel-foot", "The first 66 KB of 90 KB");
		assert.ok((await lines.nth(2).locator("pre").textContent()).length < 5000);
	},
);

scene(
	"a line that was cut says so and is fetched",
	async ({ broker, openAgent }) => {
		broker.rows.set(of.id, [said(1, "one.")]);
		broker.raw.set(of.id, [
			line(1, '{"text":"cut"}', { trimmed: 90_000 }),
			line(2, '{"text":"[secret]"}', { redacted: true }),
		]);
		const page = await openAgent();
		await page.keyboard.press("z");
		await hasText(page, ".raw-cut", "Cut before it was sent: it was 90 KB");
		await hasText(page, ".raw-cut", "Secrets were taken out");
		await page.getByRole("button", { name: "Fetch it whole" }).first().click();
		await broker.until(() => broker.posts.length === 1);
		assert.deepEqual(broker.posts[0], {
			agent: of.agent,
			channel: of.channel,
			type: "fetch_body",
			epoch: pos(1).slice(0, 16),
			seq: 1,
		});
		broker.raw.get(of.id)[0] = line(1, '{"text":"all of it"}');
		await hasText(page, ".raw-line", "all of it");
		assert.equal(await page.locator(".raw-cut").count(), 1);
	},
);

scene(
	"zooming keeps the place: of the current row, else of the first",
	async ({ broker, openAgent }) => {
		fill(broker, 400);
		const page = await openAgent();
		await hasText(page, ".entry", /line 400\./);
		await scroller(page).hover();
		await scroller(page).evaluate((e) => {
			e.scrollTop = e.scrollHeight / 2;
		});
		await page.waitForSelector(".new-rows", { state: "detached" });
		await drawn(page);
		const first = () =>
			scroller(page).evaluate((view) => {
				const { top } = view.getBoundingClientRect();
				return [...view.querySelectorAll(".entry")].find(
					(e) => e.getBoundingClientRect().bottom > top + 1,
				)?.dataset.row;
			});
		const was = await first();
		for (const there of [".entry-raw .raw-line", ".entry-story", ".entry-body .prose"]) {
			await page.keyboard.press("z");
			await page.waitForSelector(there);
			await drawn(page);
			await comesTo(page, first, was, there);
		}
		await page.keyboard.press("j");
		await page.keyboard.press("j");
		const current = await page
			.locator(".entry[data-current]")
			.getAttribute("data-row");
		const place = await placeOf(page, current);
		const stands = () => comesTo(page, async () => Math.abs((await placeOf(page, current)) - place) <= 1, true);
		for (const there of [".entry-raw .raw-line", ".entry-story", ".entry-body .prose"]) {
			await page.keyboard.press("z");
			await page.waitForSelector(there);
			await drawn(page);
			await stands();
		}
		/* A row that comes does not move what is read, in no zoom. */
		for (const [i, there] of [".entry-raw .raw-line", ".entry-story"].entries()) {
			await page.keyboard.press("z");
			await page.waitForSelector(there);
			broker.publish({ rows: [said(5001 + i, `new ${i}.`)] });
			await hasText(page, ".new-rows", `${i + 1} new ↓`);
			await drawn(page);
			await stands();
		}
		await page.keyboard.press("g");
		await hasText(page, ".entry-story", "new 1.");
		await page.keyboard.press("z");
		await hasText(page, ".entry", /new 1\./);
		await becomes(page, () => {
			const e = document.querySelector(".transcript");
			return e.scrollHeight - e.clientHeight - e.scrollTop <= 4;
		});
	},
);

scene(
	"a selection stays while rows come and the view moves, in the story and in raw",
	async ({ broker, openAgent }) => {
		fill(broker, 200);
		const page = await openAgent();
		await hasText(page, ".entry", /line 200\./);
		for (const there of [".entry-raw code", ".entry-story .sentence"]) {
			await page.keyboard.press("z");
			await page.waitForSelector(there);
			await drawn(page);
			/* One that is in view: it may still have to come. */
			await becomes(
				page,
				(selector) => {
					const view = document.querySelector(".transcript").getBoundingClientRect();
					const node = [...document.querySelectorAll(selector)].find(
						(e) => e.getBoundingClientRect().top > view.top + 40,
					);
					if (node) getSelection().selectAllChildren(node);
					return !!node;
				},
				there,
			);
			const text = await page.evaluate(() => getSelection().toString());
			assert.ok(text.length > 4);
			await scroller(page).hover();
			for (let i = 0; i < 20; i++) await page.mouse.wheel(0, -1500);
			broker.publish({ rows: [said(9001, `there ${there}.`)] });
			await drawn(page);
			await drawn(page);
			assert.equal(await page.evaluate(() => getSelection().toString()), text);
			await page.evaluate(() => getSelection().removeAllRanges());
			await page.keyboard.press("g");
		}
	},
);

scene("L and its link show the agent in the timeline, above the others", async ({ openAgent }) => {
	const page = await openAgent(lanes.codex);
	const link = page.getByRole("link", { name: "In timeline" });
	assert.equal(
		await link.getAttribute("href"),
		`#/timeline?pin=${encodeURIComponent(lanes.codex.id)}`,
	);
	await page.keyboard.press("l");
	await becomes(
		page,
		(id) =>
			location.hash.startsWith("#/timeline") &&
			new URLSearchParams(location.hash.split("?")[1]).get("pin") === id,
		lanes.codex.id,
	);
});

scene(
	"in the story Enter tells the current row in detail",
	async ({ broker, openAgent }) => {
		broker.rows.set(of.id, [read(1, "a"), read(2, "b"), ran(3, "make")]);
		const page = await openAgent();
		await page.keyboard.press("Shift+Z");
		await page.waitForSelector(".entry-story");
		await scroller(page).focus();
		await page.keyboard.press("k");
		await page.keyboard.press("k");
		assert.equal(
			await page.locator(".entry[data-current]").getAttribute("data-row"),
			"row-1",
		);
		await page.keyboard.press("j");
		assert.equal(
			await page.locator(".entry[data-current]").getAttribute("data-row"),
			"row-3",
		);
		await page.keyboard.press("k");
		await page.keyboard.press("Enter");
		await page.waitForSelector(".entry[data-row=row-2]");
		assert.equal(
			await page.locator(".entry[data-current]").getAttribute("data-row"),
			"row-1",
		);
	},
);
