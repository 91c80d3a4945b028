/* What twenty agents that only live cost the page: nothing is drawn again for them. */

import assert from "node:assert/strict";
import { becomes, hasText, pageTests } from "./support/page.mjs";
import { agent, lane, lanes } from "./support/scene.mjs";

const scene = pageTests();
const rowOf = (one) => `.fleet-row[data-lane="${one.id}"]`;

/* Its agent said last half a minute ago that it lives. */
const old = (broker) => {
	const one = { ...lanes.gemini, lastMs: Date.now() - 31_000, turn: { id: "t1", state: "running", timeMs: { model: 1 } } };
	broker.publish({ lanes: [one] });
	return one;
};

scene("a frame that only says that an agent lives changes texts with the clock, and draws nothing again", async ({ broker, open }) => {
	const one = old(broker);
	broker.publish({ health: { ...broker.health, completeMs: Date.now() - 31_000 } });
	const page = await open();
	await hasText(page, `${rowOf(one)} .frame-age`, "late");
	await page.evaluate(() => {
		window.changed = new Set();
		const observer = new MutationObserver((records) => {
			for (const { type, target, attributeName } of records)
				window.changed.add(type === "attributes" ? `${target.nodeName.toLowerCase()} ${attributeName}` : type);
		});
		for (const part of document.querySelectorAll(".fleet, .health"))
			observer.observe(part, { subtree: true, childList: true, attributes: true, characterData: true });
	});
	/* Ahead, so that it is new however slow this machine is. */
	const now = Date.now() + 600_000;
	broker.publish({
		health: { ...broker.health, frameAtMs: now, completeMs: now },
		agents: [{ ...broker.agents.get(one.agent), seenMs: now, completeMs: now }],
		lanes: [{ ...one, lastMs: now, activity: [...one.activity.slice(1), 30], turn: { ...one.turn, timeMs: { model: 1, tool: 2, you: 3 } } }],
	});
	await becomes(page, (row) => document.querySelector(`${row} .frame-age`).textContent === "< 5 s", rowOf(one));
	const changed = await page.evaluate(() => [...window.changed].sort());
	assert.deepEqual(changed, ["characterData", "path d", "span title", "time datetime"]);
});

/* Ten agents work, and one of them sends no more than pulses, until @done says so of the page: how
 * many @changes there were in it, each all that one task did, so each a frame asked of the browser;
 * and how many @steps of its clock. */
async function pulses({ broker, open }, activity, done) {
	const one = lanes.gemini;
	for (const card of [...broker.cards.values()]) broker.publish({ removedCards: [card.id] });
	broker.publish({ lanes: [...broker.lanes.values()].map((it) => ({ ...it, state: "working", sinceMs: Date.now() - 31_000 })) });
	const page = await open();
	await page.waitForSelector(".fleet-row");
	await page.evaluate(() => {
		window.quiet = { changes: 0, from: window.__perch.clock.steps };
		const observer = new MutationObserver(() => window.quiet.changes++);
		for (const part of document.querySelectorAll(".fleet, .health"))
			observer.observe(part, { subtree: true, childList: true, attributes: true, characterData: true });
	});
	for (let n = 1; ; n++) {
		const now = Date.now() + 600_000 + n;
		broker.publish({
			health: { ...broker.health, frameAtMs: now, completeMs: now },
			agents: [{ ...broker.agents.get(one.agent), seenMs: now, completeMs: now }],
			lanes: [{ ...broker.lanes.get(one.id), lastMs: now, activity: activity(n) }],
		});
		const { ticks, ...seen } = await page.evaluate(() => {
			const { changes, from } = window.quiet;
			const { ticks, steps } = window.__perch.clock;
			return { changes, ticks, steps: steps - from };
		});
		if (done(seen)) return seen;
		await becomes(page, (ticks) => window.__perch.clock.ticks > ticks, ticks);
	}
}

scene("agents that only live change the page at the clock's steps, not by the second", async (tools) => {
	const alive = (n) => Array.from({ length: 60 }, (_, i) => (i + n) % 2);
	const { changes, steps } = await pulses(tools, alive, ({ steps }) => steps >= 2);
	assert.ok(changes > 0 && changes <= steps, `${changes} changes in ${steps} steps`);
});

scene("an agent that does something moves its strokes between the steps, too", async (tools) => {
	await pulses(tools, (n) => Array(60).fill(2 + (n % 2)), ({ changes, steps }) => changes > steps);
});

scene("the strokes of a lane that says nothing move on with the clock", async ({ broker, open }) => {
	const at = Math.floor(Date.now() / 10_000) - 20;
	const activity = [...Array(59).fill(0), 30];
	broker.publish({ lanes: [{ ...lanes.gemini, activity, activityMs: at * 10_000 }] });
	const page = await open();
	await page.waitForSelector(rowOf(lanes.gemini));
	const asNow = ([row, at]) =>
		document.querySelector(`${row} .spark path:not([class])`).getAttribute("d") ===
			`M${(59 - (Math.floor(Date.now() / 10_000) - at)) * 2 + 0.5} 18v-16`;
	await becomes(page, asNow, [rowOf(lanes.gemini), at]);
});

scene("what is held back never undoes what came after it", async ({ broker, open }) => {
	const one = old(broker);
	const page = await open();
	await hasText(page, `${rowOf(one)} .frame-age`, "late");
	broker.publish({ lanes: [{ ...one, lastMs: Date.now() }] });
	broker.publish({ lanes: [{ ...one, lastMs: Date.now(), state: "failed", verb: "Build failed", object: null }] });
	await hasText(page, "[aria-labelledby=group-failed] .fleet-row", "Build failed");
	/* Two ticks of another row. */
	const text = () => page.locator(`${rowOf(lanes.billing)} .since`).textContent();
	for (let ticks = 0; ticks < 2; ticks++) {
		const was = await text();
		await becomes(page, ([row, was]) => document.querySelector(`${row} .since`).textContent !== was, [rowOf(lanes.billing), was]);
	}
	assert.equal(await page.locator(rowOf(one)).getAttribute("data-state"), "failed");
});

scene("a second tab has what the first one holds back", async ({ broker, open }) => {
	const one = old(broker);
	const page = await open();
	await hasText(page, `${rowOf(one)} .frame-age`, "late");
	broker.publish({ lanes: [{ ...one, lastMs: Date.now() + 600_000 }] });
	const second = await open();
	await becomes(second, (row) => document.querySelector(`${row} .frame-age`)?.textContent === "< 5 s", rowOf(one));
	await broker.until(() => broker.streams.size === 1);
});

scene("a new agent, lane or trouble is shown at once", async ({ broker, open }) => {
	const page = await open();
	await page.waitForSelector(".fleet-row");
	const more = agent(40, { name: "newcomer" });
	broker.publish({ agents: [more], lanes: [lane(40, 77, { channelName: "porch" })] });
	await hasText(page, ".fleet-row", "porch");
	broker.publish({ health: { ...broker.health, missing: [{ agent: more.id, frames: 17, state: "asked" }] } });
	await hasText(page, ".health", "17 frames missing");
	broker.publish({ health: { ...broker.health, missing: [] } });
	await becomes(page, () => !document.querySelector(".health").textContent.includes("missing"));
});

scene("what an agent sent last is when it was last seen, though it said before that it stops", async ({ broker, open }) => {
	const one = { ...broker.agents.get(lanes.gemini.agent), online: false, seenMs: Date.UTC(2020, 0, 2, 3, 4) };
	broker.publish({ agents: [one], lanes: [{ ...lanes.gemini, state: "offline" }] });
	const page = await open();
	await hasText(page, rowOf(lanes.gemini), "last seen 2 Jan");
	broker.publish({ agents: [{ ...one, seenMs: Date.UTC(2020, 4, 6, 7, 8) }] });
	await hasText(page, rowOf(lanes.gemini), "last seen 6 May");
});
