import assert from "node:assert/strict";
import { hasText, pageTests } from "./support/page.mjs";
import { cards, lane, lanes, row } from "./support/scene.mjs";

const scene = pageTests();
const rowOf = (one) => `.fleet-row[data-lane="${one.id}"]`;

scene(
	"two tabs share one stream, and both see what it says",
	async ({ broker, browser, open }) => {
		const first = await open();
		await first.waitForSelector(".fleet-row");
		/* No token in its address: the first tab hands it over. */
		const second = await browser.tab(`${broker.origin}/`);
		try {
			await second.waitForSelector(".fleet-row");
			assert.equal(broker.streams.size, 1);
			broker.publish({ lanes: [{ ...lanes.gemini, object: "npm run deploy" }] });
			for (const page of [first, second])
				await hasText(page, rowOf(lanes.gemini), "npm run deploy");
			assert.equal(broker.streams.size, 1);
			assert.deepEqual(second.violations, []);
		} finally {
			await second.close();
		}
	},
);

scene(
	"when the leading tab closes another takes over at its cursor, and misses nothing",
	async ({ broker, browser, open }) => {
		const first = await browser.tab(broker.url);
		await first.waitForSelector(".fleet-row");
		const second = await open();
		await second.waitForSelector(".fleet-row");
		broker.publish({ lanes: [{ ...lanes.gemini, object: "before" }] });
		await hasText(second, rowOf(lanes.gemini), "before");
		const kept = await second.locator(rowOf(lanes.gemini)).elementHandle();
		await first.close();
		broker.publish({ lanes: [{ ...lanes.gemini, object: "between" }] });
		await broker.until(() => [...broker.streams.values()].some(Boolean));
		await hasText(second, rowOf(lanes.gemini), "between");
		broker.publish({ lanes: [{ ...lanes.gemini, object: "after" }] });
		await hasText(second, rowOf(lanes.gemini), "after");
		assert.ok(await kept.evaluate((node) => node.isConnected));
	},
);

scene(
	"a broker that is killed shows at once in amber; when it is back the page catches up without a reload",
	async ({ broker, openAgent }) => {
		const page = await openAgent();
		await page.waitForSelector(".entry[data-row=row-card-1]");
		await page.evaluate(() => {
			window.sameDocument = true;
		});
		const { port } = broker;
		await broker.stop();
		await hasText(
			page,
			".health[data-level=warn]",
			/broker gone 0:0\d, trying again/,
		);
		/* Meanwhile: a row, the end of another, one that never was; and the ring is new. */
		broker.forget();
		broker.putRow(
			row(lanes.claude, 140, "message", {
				role: "agent",
				text: "while you were away",
			}),
		);
		broker.putRow(
			row(lanes.claude, 110, "tool", {
				verb: "Ran",
				object: "make test",
				outcome: "225 checks pass",
				status: "completed",
				end: Date.now(),
			}),
		);
		broker.rows.set(
			lanes.claude.id,
			broker.rows.get(lanes.claude.id).filter(({ id }) => id !== "row-98"),
		);
		broker.cards.delete("card-1");
		await broker.start(port);
		await hasText(page, ".entry", "while you were away");
		await hasText(page, ".entry", "225 checks pass");
		await page.locator(".entry[data-row=row-98]").waitFor({ state: "detached" });
		await page.locator(".card[data-card=card-1]").waitFor({ state: "detached" });
		await page.waitForSelector(".health[data-level=ok]");
		const ids = await page
			.locator(".entry")
			.evaluateAll((all) => all.map((e) => e.dataset.row));
		assert.equal(new Set(ids).size, ids.length);
		assert.ok(await page.evaluate(() => window.sameDocument));
	},
);

scene(
	"a broken connection resumes at its cursor and asks for no snapshot",
	async ({ broker, open }) => {
		const page = await open();
		await page.waitForSelector(".fleet-row");
		broker.publish({ lanes: [{ ...lanes.gemini, object: "one" }] });
		await hasText(page, rowOf(lanes.gemini), "one");
		for (const stream of broker.streams.keys()) stream.destroy();
		await broker.until(() => broker.streams.size === 0);
		broker.publish({ lanes: [{ ...lanes.gemini, object: "two" }] });
		await hasText(page, rowOf(lanes.gemini), "two");
		assert.match(
			broker.requests.filter((line) => line.includes("/api/stream")).at(-1),
			/\?cursor=ring-1$/,
		);
	},
);

scene("a snapshot replaces what was known", async ({ broker, open }) => {
	const page = await open();
	await page.waitForSelector(rowOf(lanes.gemini));
	broker.lanes.delete(lanes.gemini.id);
	const fresh = lane(1, 77, { channelName: "fresh" });
	broker.lanes.set(fresh.id, fresh);
	broker.forget();
	for (const stream of broker.streams.keys()) stream.destroy();
	await page.waitForSelector(rowOf(fresh));
	assert.equal(await page.locator(rowOf(lanes.gemini)).count(), 0);
	assert.equal(await page.locator(".card").count(), Object.keys(cards).length);
});

scene(
	"messages in pieces and several at once are all taken",
	async ({ broker, open }) => {
		const page = await open();
		await page.waitForSelector(".fleet-row");
		const message = (object) =>
			JSON.stringify({
				cursor: `c-${object}`,
				lanes: [{ ...lanes.gemini, object }],
			});
		const [stream] = broker.streams.keys();
		const text = `${message("zwölf ✓")}\n\n${message("thirteen")}\n${message("vierzehn ✓")}`;
		const bytes = Buffer.from(text);
		for (let i = 0; i < bytes.length; i += 7) stream.write(bytes.subarray(i, i + 7));
		await hasText(page, rowOf(lanes.gemini), "thirteen");
		stream.write("\n");
		await hasText(page, rowOf(lanes.gemini), "vierzehn ✓");
	},
);
