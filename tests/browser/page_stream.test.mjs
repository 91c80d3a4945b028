import assert from "node:assert/strict";
import { becomes, hasText, holderOf, pageTests } from "./support/page.mjs";
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
			await broker.until(() => broker.streams.size === 1);
			broker.publish({ lanes: [{ ...lanes.gemini, object: "npm run deploy" }] });
			for (const page of [first, second])
				await hasText(page, rowOf(lanes.gemini), "npm run deploy");
			await broker.until(() => broker.streams.size === 1);
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
		broker.kill();
		await hasText(
			page,
			".health[data-level=warn]",
			/broker gone \d:\d\d, trying again/,
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
		broker.revive();
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
		broker.silent = true; /* an empty line would end the last one */
		for (let i = 0; i < bytes.length; i += 7) stream.write(bytes.subarray(i, i + 7));
		await hasText(page, rowOf(lanes.gemini), "thirteen");
		stream.write("\n");
		await hasText(page, rowOf(lanes.gemini), "vierzehn ✓");
	},
);

/* A tab in the background may be stopped by its system with the lock in its hand. */
scene(
	"a leading tab that sleeps is led on by one that is looked at, and catches up when it wakes",
	async ({ broker, browser, open }) => {
		const tabs = [];
		for (let i = 0; i < 3; i++) {
			tabs.push(await open());
			await tabs[i].waitForSelector(".fleet-row");
		}
		await broker.until(() => broker.streams.size === 1);
		const asleep = await holderOf(tabs, "perch-stream");
		const [second, third] = tabs.filter((tab) => tab !== asleep);
		const debug = await browser.context.newCDPSession(asleep);
		await debug.send("Debugger.enable");
		const paused = new Promise((resolve) => debug.once("Debugger.paused", resolve));
		await debug.send("Debugger.pause");
		await paused;
		broker.publish({ lanes: [{ ...lanes.gemini, object: "npm run asleep" }] });
		/* As when a tab comes back to the front: time has passed. */
		await second.evaluate(() => {
			const real = Date.now;
			Date.now = () => real() + 60_000;
		});
		for (const page of [second, third])
			await hasText(page, rowOf(lanes.gemini), "npm run asleep");
		/* Which the others did not have from the one that sleeps. */
		await broker.until(() => broker.streams.size === 2);
		broker.publish({ lanes: [{ ...lanes.gemini, object: "npm run awake" }] });
		await debug.send("Debugger.resume");
		await debug.send("Debugger.disable");
		for (const page of [asleep, second, third])
			await hasText(page, rowOf(lanes.gemini), "npm run awake");
		await broker.until(() => broker.streams.size === 1);
		broker.publish({ lanes: [{ ...lanes.gemini, object: "npm run on" }] });
		for (const page of [asleep, second, third])
			await hasText(page, rowOf(lanes.gemini), "npm run on");
		/* It is in line again. */
		await third.close();
		await second.close();
		await broker.until(() => broker.streams.size === 1);
		broker.publish({ lanes: [{ ...lanes.gemini, object: "npm run alone" }] });
		await hasText(asleep, rowOf(lanes.gemini), "npm run alone");
	},
);

scene(
	"after a sleep a connection that says nothing is not waited for, and nothing is amber",
	async ({ broker, open }) => {
		const page = await open();
		await page.waitForSelector(".fleet-row");
		broker.silent = true;
		broker.publish({ lanes: [{ ...lanes.gemini, object: "npm run before" }] });
		await hasText(page, rowOf(lanes.gemini), "npm run before");
		await page.evaluate(() => {
			window.levels = [];
			new MutationObserver(() =>
				window.levels.push(document.querySelector(".health").dataset.level),
			).observe(document.body, { subtree: true, childList: true, attributes: true, characterData: true });
		});
		const opened = () => broker.requests.filter((line) => line.includes("/api/stream"));
		const before = opened().length;
		await page.evaluate(() => {
			const real = Date.now;
			Date.now = () => real() + 600_000;
		});
		await broker.until(() => opened().length > before);
		assert.match(opened().at(-1), /\?cursor=ring-1$/);
		broker.publish({ lanes: [{ ...lanes.gemini, object: "npm run after" }] });
		await hasText(page, rowOf(lanes.gemini), "npm run after");
		await becomes(page, () => window.levels.length > 0);
		assert.deepEqual([...new Set(await page.evaluate(() => window.levels))], ["ok"]);
		await broker.until(() => broker.streams.size === 1);
	},
);
