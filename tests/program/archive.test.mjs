// The archive: what a broken, foreign or unusable file means, and what is let go.
import assert from "node:assert/strict";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { channelId, Harness, makeAgent, makeHome, startObserver } from "./support/observer.mjs";
import { logged, startRelay } from "./support/perch.mjs";

const note = (harness, channel, text) => harness.event("note", { text }, { channel });

test("a file that is no database is moved aside, and what is missing is asked for again", async () => {
	const relay = await startRelay(), home = makeHome(), channel = channelId();
	const path = join(home.dir, "archive.db"), junk = "no database at all. ".repeat(1000);
	writeFileSync(path, junk, { mode: 0o600 });
	const observer = await startObserver(relay.url, home);
	await observer.connected();
	await logged(observer, /warn archive: moved to \S+archive\.db\.broken-\d+; a new one is filled/);
	const aside = readdirSync(home.dir).filter((name) => name.startsWith("archive.db.broken-"));
	assert.equal(aside.length, 1);
	assert.equal(readFileSync(join(home.dir, aside[0]), "utf8"), junk);
	const page = await observer.page();
	await page.until(({ health }) => health?.archive.state === "ok" && health.archive.aside?.endsWith(aside[0]));
	page.close();
	const harness = await Harness.open(relay.url, home.owner);
	await harness.send(harness.started_event(channel), { number: 5 });
	for (;;) {
		const { requestId, want } = await harness.control("feed_sync");
		await harness.send(harness.event("feed_state", {
			requestId, epochs: [{ epoch: harness.epoch, first: 1, last: 6 }], gone: [],
		}), { number: 6 });
		if (want.length) {
			assert.deepEqual(want, [{ epoch: harness.epoch, frames: [[1, 4]] }]);
			break;
		}
	}
	await harness.close();
	await observer.end();
	const again = await startObserver(relay.url, home);
	assert.doesNotMatch(again.stderr(), /moved/);
	await again.end();
	await relay.stop();
	home.remove();
});

test("where the disk refuses, what comes is shown all the same, and health says why", async () => {
	const relay = await startRelay(), home = makeHome(), channel = channelId();
	mkdirSync(join(home.dir, "archive.db"));
	const observer = await startObserver(relay.url, home);
	const harness = await Harness.open(relay.url, home.owner);
	const page = await observer.page();
	await page.until(({ health }) => health?.archive.state === "failing" &&
		health.archive.inMemory && /is no regular file/.test(health.archive.reason));
	await harness.send(harness.started_event(channel));
	await harness.send(note(harness, channel, "seen"));
	await page.row((row) => JSON.stringify(row).includes("seen"));
	page.close();
	await harness.close();
	await observer.end();
	assert.equal(observer.stderr().match(/kept in memory only/g).length, 1);
	await relay.stop();
	home.remove();
});

test("an agent that was attested is asked as soon as there is a relay, though it says nothing", async () => {
	const relay = await startRelay(), home = makeHome(), key = makeAgent(home.owner);
	mkdirSync(join(home.dir, "attested"));
	writeFileSync(join(home.dir, "attested", key.pub), JSON.stringify(key.auth), { mode: 0o600 });
	const harness = await Harness.open(relay.url, home.owner, { key });
	const observer = await startObserver(relay.url, home);
	assert.deepEqual((await harness.control("feed_sync")).want, []);
	await harness.close();
	await observer.end();
	await relay.stop();
	home.remove();
});
