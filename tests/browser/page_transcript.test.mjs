import assert from "node:assert/strict";
import { becomes, comesTo, drawn, hasText, pageTests } from "./support/page.mjs";
import { agent, lane, lanes, pos, row } from "./support/scene.mjs";

const scene = pageTests();
const of = lanes.claude;

/* Rows of unequal height, numbered from 1. */
function fill(broker, count) {
	broker.rows.set(
		of.id,
		Array.from({ length: count }, (_, i) => line(i + 1)),
	);
}
const started = Date.now();
const line = (n) =>
	row(of, n, "message", {
		role: "agent",
		time: "model",
		text: `line ${n}. ${"More of it. ".repeat((n * 7) % 40)}`,
		t: started + n,
		end: started + n + 100,
	});

const scroller = (page) => page.locator(".transcript");
const atBottom = (page) =>
	becomes(page, () => {
		const e = document.querySelector(".transcript");
		return Math.round(e.scrollHeight - e.clientHeight - e.scrollTop) <= 1;
	});
/* The reader's turn of the wheel is over: the view has not moved from one frame to the next. */
async function rested(page) {
	const top = () => scroller(page).evaluate((e) => e.scrollTop);
	for (let was = null, now = await top(); was !== now; now = await top()) {
		was = now;
		await drawn(page);
	}
}
/* Where a row stands on the screen. */
const placeOf = (page, n) =>
	page
		.locator(`.entry[data-row=row-${n}]`)
		.evaluate((e) => Math.round(e.getBoundingClientRect().top));
/* A row that is wholly in view. */
const inView = (page) =>
	scroller(page).evaluate((view) => {
		const { top, bottom } = view.getBoundingClientRect();
		return [...view.querySelectorAll(".entry")]
			.find(
				(e) =>
					e.getBoundingClientRect().top > top + 20 &&
					e.getBoundingClientRect().bottom < bottom,
			)
			.dataset.row.slice(4);
	});

scene(
	"the view follows the newest row until the reader scrolls up",
	async ({ broker, openAgent }) => {
		fill(broker, 100);
		const page = await openAgent();
		await hasText(page, ".entry", /line 100\./);
		broker.publish({ rows: [line(101)] });
		await hasText(page, ".entry", /line 101\./);
		await atBottom(page);
		await scroller(page).hover();
		await page.mouse.wheel(0, -400);
		await page.waitForFunction(() => {
			const e = document.querySelector(".transcript");
			return e.scrollHeight - e.clientHeight - e.scrollTop > 300;
		});
		await rested(page);
		const n = await inView(page);
		const before = await placeOf(page, n);
		broker.publish({ rows: [line(102), line(103)] });
		await hasText(page, ".new-rows", "2 new ↓");
		await comesTo(page, () => placeOf(page, n), before);
		await page.locator(".new-rows").click();
		await hasText(page, ".entry", /line 103\./);
		await atBottom(page);
		await page.locator(".new-rows").waitFor({ state: "detached" });
	},
);

scene(
	"scrolling back to the real bottom follows again",
	async ({ broker, openAgent }) => {
		fill(broker, 60);
		const page = await openAgent();
		await hasText(page, ".entry", /line 60\./);
		await scroller(page).hover();
		await page.mouse.wheel(0, -300);
		await page.waitForFunction(() => {
			const e = document.querySelector(".transcript");
			return e.scrollHeight - e.clientHeight - e.scrollTop > 200;
		});
		await page.mouse.wheel(0, 3000);
		await page.waitForFunction(() => {
			const e = document.querySelector(".transcript");
			return e.scrollHeight - e.clientHeight - e.scrollTop < 2;
		});
		broker.publish({ rows: [line(61)] });
		await hasText(page, ".entry", /line 61\./);
		await atBottom(page);
	},
);

scene(
	"earlier rows come in while reading, and nothing moves",
	async ({ broker, openAgent }) => {
		fill(broker, 900);
		const page = await openAgent();
		await hasText(page, ".entry", /line 900\./);
		await scroller(page).hover();
		await page.mouse.wheel(0, -100);
		await scroller(page).evaluate((e) => {
			e.scrollTop = 900;
		});
		const asked = new RegExp("GET /api/rows.*before=");
		await broker.until(() => broker.requests.some((request) => asked.test(request)));
		await rested(page);
		const n = await inView(page);
		const before = await placeOf(page, n);
		await drawn(page);
		await comesTo(page, () => placeOf(page, n), before);
		/* All the way up, page by page. */
		await scroller(page).focus();
		await page.waitForFunction(() => {
			document.querySelector(".transcript").scrollTop = 0;
			return document.querySelector(".entry[data-row=row-1]");
		});
	},
);

scene(
	"five thousand rows have DOM for those in view only",
	async ({ broker, openAgent }) => {
		fill(broker, 5000);
		const page = await openAgent();
		await hasText(page, ".entry", /line 5000\./);
		await scroller(page).hover();
		for (let i = 0; i < 30; i++) await page.mouse.wheel(0, -2000);
		await rested(page);
		await becomes(page, () => document.querySelectorAll(".entry").length < 120);
	},
);

scene(
	"a growing message changes its last block only; a finished row keeps its nodes",
	async ({ broker, openAgent }) => {
		broker.rows.clear();
		const text = "First block.\n\nSecond *block*.\n\nThird";
		const message = (over) =>
			row(of, 2, "message", { role: "agent", open: true, ...over });
		broker.putRow(line(1));
		broker.putRow(message({ text }));
		const page = await openAgent();
		await hasText(page, ".prose", "Third");
		const nodes = await page.evaluateHandle(() =>
			[...document.querySelectorAll(".entry[data-row=row-2] .prose > *")]
				.slice(0, 2)
				.concat(document.querySelector(".entry[data-row=row-1] .prose p")),
		);
		await page.evaluate(() => {
			window.touched = 0;
			const count = new MutationObserver((records) => {
				window.touched += records.length;
			});
			for (const node of [
				...document.querySelectorAll(".entry[data-row=row-2] .prose > *"),
			]
				.slice(0, 2)
				.concat(document.querySelector(".entry[data-row=row-1]")))
				count.observe(node, {
					subtree: true,
					childList: true,
					characterData: true,
					attributes: true,
				});
		});
		broker.publish({ rows: [message({ text: `${text} block, longer.` }), line(1)] });
		await hasText(page, ".prose", "Third block, longer.");
		broker.publish({
			rows: [
				message({
					text: `${text} block, longer.\n\nFourth.`,
					open: false,
					end: Date.now(),
				}),
			],
		});
		await hasText(page, ".prose", "Fourth.");
		assert.ok(await nodes.evaluate((all) => all.every((node) => node.isConnected)));
		assert.equal(await page.evaluate(() => window.touched), 0);
	},
);

scene("a tool call is one row from start to end", async ({ broker, openAgent }) => {
	broker.rows.clear();
	const call = (over) =>
		row(of, 1, "tool", {
			call: "c",
			kind: "execute",
			verb: "Running",
			object: "make",
			status: "in_progress",
			...over,
		});
	broker.putRow(call());
	const page = await openAgent();
	await hasText(page, ".entry", "Running make");
	const entry = await page.locator(".entry").elementHandle();
	broker.publish({
		rows: [
			call({
				verb: "Ran",
				outcome: "failed (2)",
				status: "failed",
				end: Date.now(),
				parts: [{ type: "output", text: "no rule\n", bytes: 8 }],
			}),
		],
	});
	await hasText(page, ".entry[data-state=failed]", "Ran make failed (2)");
	await hasText(page, ".terminal", "no rule");
	assert.ok(await entry.evaluate((node) => node.isConnected));
	broker.publish({ removedRows: [{ lane: of.id, id: "row-1" }] });
	await hasText(page, ".transcript", "Nothing has happened here yet.");
});

scene(
	"a selection outlives new rows and a long scroll",
	async ({ broker, openAgent }) => {
		fill(broker, 400);
		const page = await openAgent();
		await hasText(page, ".entry", /line 400\./);
		await page.locator(".entry[data-row=row-400] .prose").selectText();
		const selected = await page.evaluate(() => String(getSelection()));
		assert.match(selected, /line 400/);
		await scroller(page).hover();
		for (let i = 0; i < 12; i++) await page.mouse.wheel(0, -1000);
		broker.publish({ rows: [line(401), line(402)] });
		await hasText(page, ".new-rows", "2 new");
		assert.equal(await page.evaluate(() => String(getSelection())), selected);
	},
);

scene(
	"folds say their size, open on demand and stay as they were left",
	async ({ broker, openAgent }) => {
		fill(broker, 200);
		broker.putRow(
			row(of, 200, "thought", {
				text: "one two three",
				end: Date.now(),
				time: "model",
			}),
		);
		broker.putRow(
			row(of, 201, "raw", { kind: "x-custom", json: '{"a":1}', bytes: 9000 }),
		);
		broker.raw.set(of.id, [
			{ pos: pos(201), t: 1, kind: "x-custom", text: '{"whole":"event"}' },
		]);
		const page = await openAgent();
		await hasText(page, ".fold", /Thought for .*, 3 words/);
		assert.equal(await page.getByText("one two three").count(), 0);
		await page.locator(".fold").first().click();
		await page.getByText("one two three").waitFor();
		await hasText(page, ".fold", "x-custom, 9.0 KB");
		await page.getByText("x-custom").click();
		await page.getByRole("button", { name: "Show the event" }).click();
		await hasText(page, ".terminal", '"whole": "event"');
		await scroller(page).hover();
		for (let i = 0; i < 10; i++) await page.mouse.wheel(0, -1500);
		await page.locator(".entry[data-row=row-200]").waitFor({ state: "detached" });
		await page.keyboard.press("g");
		await page.getByText("one two three").waitFor();
	},
);

scene("a link to a row far back finds it", async ({ broker, openAgent }) => {
	fill(broker, 900);
	const page = await openAgent(of, "row-250");
	await page.waitForSelector(".entry[data-row=row-250][data-current]");
	assert.ok(await page.locator(".entry[data-row=row-250]").isVisible());
});

scene(
	"a lane that only the archive has is read there; one that nobody has is said to be none",
	async ({ broker, open }) => {
		const gone = lane(0, 77);
		for (let seq = 1; seq <= 40; seq++)
			broker.putRow(row(gone, seq, "message", { text: `Said ${seq}`, end: Date.now() }));
		const page = await open(`/lane/${gone.id}/row-12?at=${pos(12)}`);
		await page.waitForSelector(".entry[data-row=row-12][data-current]");
		await hasText(page, ".agent-head", "in the archive");
		assert.equal(await page.locator(".composer").count(), 0);
		await page.evaluate((id) => {
			location.hash = `#/lane/${id}`;
		}, lane(0, 78).id);
		await hasText(page, "h1", "No such agent here");
	},
);

scene("every kind of row says what happened", async ({ openAgent }) => {
	const page = await openAgent(of, "row-1");
	for (const [id, words] of [
		["row-1", "Agent started"],
		["row-2", "Split the router out of server.c"],
		["row-4", /Thought for .*, 12 words/],
		["row-11", "three callers reach into route_table directly"],
		["row-12", /Plan 3 of 5[^]*Rebuild from clean and stage it/],
		["row-14", /Read 4 files[^]*src\/server\.h/],
		["row-20", /Edited src\/router\.c\s+\+5 −2/],
		["row-31", /17 frames are missing: the agent was asked for them[^]*frames 4,812–4,828/],
		["row-39", /You allowed make test once\s*44 s/],
		[
			"row-83",
			/Ran make test failed \(2\)[^]*FAIL[^]*Its beginning and its end, \d+ bytes of 18 KB/,
		],
		["row-110", /Ran make test 224 checks pass[^]*Output, 1 line, 14 bytes/],
		["row-card-1", "Wants to run rm -rf build"],
	]) {
		await page.waitForSelector(`.entry[data-row=${id}]`);
		assert.match(
			(await page.locator(`.entry[data-row=${id}]`).innerText()).replaceAll(
				"’",
				"'",
			),
			words instanceof RegExp
				? words
				: new RegExp(words.replace(/[.*+?]/g, "\\$&"), "i"),
		);
		if (id === "row-31") await page.keyboard.press("g");
	}
});

scene(
	"rows that cannot be read say so and are asked for again",
	async ({ broker, open }) => {
		const page = await open();
		await page.waitForSelector(".fleet-row");
		broker.refuse = { status: 503, error: "the archive is busy" };
		await page.locator(`.fleet-row[data-lane="${of.id}"]`).click();
		await hasText(page, ".transcript", "the archive is busy");
		broker.refuse = null;
		await page.getByRole("button", { name: "Try again" }).click();
		await page.waitForSelector(".entry");
	},
);

scene("a call that waits for its permission looks as if it waits", async ({
	broker,
	openAgent,
}) => {
	const tool = (over) =>
		row(of, 1, "tool", {
			kind: "execute",
			object: "make",
			status: "pending",
			parts: [],
			...over,
		});
	broker.rows.set(of.id, [tool({ verb: "Waiting to run", time: "you" })]);
	const page = await openAgent();
	const entry = page.locator(".entry[data-row=row-1]");
	await entry.locator("[data-state=needs-you]").waitFor();
	assert.equal(await entry.getAttribute("data-time"), "you");
	broker.publish({ rows: [tool({ verb: "Running", time: "tool" })] });
	await entry.locator("[data-state=working]").waitFor();
	assert.equal(await entry.getAttribute("data-time"), "tool");
});

scene("a call and the question that it waits for are one row, whichever of them is meant", async ({
	broker,
	openAgent,
}) => {
	const said = (seq) => row(of, seq, "message", { role: "agent", text: `Said ${seq}`, end: Date.now() });
	const call = (over) =>
		row(of, 2, "tool", {
			call: "c1",
			kind: "other",
			verb: "Waiting to use",
			object: "deploy",
			time: "you",
			status: "pending",
			input: '{"to":"stage"}',
			parts: [],
			...over,
		});
	const question = (over) =>
		row(of, 3, "permission", {
			call: "c1",
			verb: "wants to use",
			text: "deploy",
			time: "you",
			state: "pending",
			...over,
		});
	const ids = (page) => page.locator(".entry").evaluateAll((all) => all.map((e) => e.dataset.row));
	const lit = (page) =>
		page.locator(".entry[data-current]").evaluateAll((all) => all.map((e) => e.dataset.row));
	broker.rows.set(of.id, [said(1), call(), question(), said(4)]);
	const page = await openAgent(of, "row-3");
	const entry = page.locator(".entry[data-row=row-2]");
	await entry.locator("[data-state=needs-you]").waitFor();
	assert.match(await entry.innerText(), /Wants to use deploy\s*\d+:\d\d\s*Arguments, 14 bytes/);
	assert.doesNotMatch(await page.locator(".transcript").innerText(), /Waiting to/);
	assert.deepEqual(await ids(page), ["row-1", "row-2", "row-4"]);
	/* A link to the question is one to the row that asks it; so it is in a story. */
	assert.deepEqual(await lit(page), ["row-2"]);
	await page.keyboard.press("Enter");
	await hasText(page, ".entry[data-row=row-2] .terminal", '"to": "stage"');
	await page.keyboard.press("Shift+Z");
	await page.waitForSelector(".entry-story[data-row=row-2][data-current]");
	await page.keyboard.press("z");
	/* Up and down it is one step. */
	await page.waitForSelector(".entry:not(.entry-story)[data-row=row-2][data-current]");
	for (const [key, id] of [["k", "row-1"], ["j", "row-2"], ["j", "row-4"], ["k", "row-2"]]) {
		await page.keyboard.press(key);
		await comesTo(page, lit, [id]);
	}
	/* Once it is answered each says its own; another call's question is no part of this one. */
	broker.publish({ rows: [call({ verb: "Using", time: "tool" }), question({ state: "allowed", by: "you" })] });
	await comesTo(page, ids, ["row-1", "row-2", "row-3", "row-4"]);
	await hasText(page, ".entry[data-row=row-2]", /Using deploy/);
	await hasText(page, ".entry[data-row=row-3]", /You allowed deploy/);
	broker.publish({ rows: [call(), question({ call: "c2" })] });
	await hasText(page, ".entry[data-row=row-2]", /Waiting to use deploy/);
	assert.deepEqual(await ids(page), ["row-1", "row-2", "row-3", "row-4"]);
});

scene("what an agent left open when it went does not go on", async ({ broker, openAgent }) => {
	const one = row(of, 1, "tool", { kind: "execute", verb: "Running", object: "make", status: "in_progress", parts: [] });
	broker.rows.set(of.id, [one]);
	broker.agents.set(of.agent, agent(0, { online: false, seenMs: one.t + 42_000 }));
	const page = await openAgent();
	const took = (page) => page.locator(".entry[data-row=row-1] .number").innerText();
	await comesTo(page, took, "0:42");
	await page.keyboard.press("Shift+Z");
	await page.waitForSelector(".entry-story");
	await comesTo(page, took, "0:42");
	/* It comes back, and has gone on meanwhile. */
	broker.publish({ agents: [agent(0)] });
	await becomes(page, () => /^[4-9]:\d\d$/.test(document.querySelector(".entry[data-row=row-1] .number").innerText));
});

scene("counts of an edit are said once", async ({ broker, openAgent }) => {
	broker.rows.set(of.id, [
		row(of, 1, "tool", {
			verb: "Edited",
			object: "src/bucket.c",
			outcome: "+2 −0",
			status: "completed",
			kind: "edit",
			end: Date.now(),
			parts: [
				{
					type: "diff",
					path: "/repo/src/bucket.c",
					added: 2,
					removed: 0,
					hunks: [{ old: 1, new: 1, lines: [" a", "+b", "+c"] }],
				},
			],
		}),
	]);
	const page = await openAgent();
	const entry = page.locator(".entry[data-row=row-1]");
	await entry.waitFor();
	assert.equal((await entry.innerText()).match(/\+2/g).length, 1);
});

scene("the turns of the transcript are listed, newest first, and lead to it", async ({
	broker,
	openAgent,
}) => {
	broker.rows.set(of.id, [
		row(of, 1, "prompt", { turn: "t1", text: "Read it\nall" }),
		row(of, 2, "turn", { turn: "t1", state: "completed", durationMs: 48_000 }),
		row(of, 3, "prompt", { turn: "t2", text: "Split the router" }),
	]);
	const page = await openAgent();
	const turns = page.locator(".aside section").filter({ hasText: /^Turns/ });
	await turns.waitFor();
	assert.deepEqual(
		(await turns.locator("dt a").allInnerTexts()).map((text) => text.trim()),
		["Split the router", "Read it"],
	);
	const times = await turns.locator("dd").allInnerTexts();
	assert.match(times[0], /open$/);
	assert.equal(times[1], "48 s");
	await turns.getByRole("link", { name: "Read it" }).click();
	await page.locator(".entry[data-row=row-1][data-current]").waitFor();
});
