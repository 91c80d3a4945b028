// Full-text search: /api/search and perch search, of what the archive has, live and later.
import assert from "node:assert/strict";
import { test } from "node:test";
import { channelId, chunk, Harness, makeHome, run, startObserver } from "./support/observer.mjs";
import { startRelay } from "./support/perch.mjs";
import { until } from "./support/up.mjs";

async function begin() {
	const relay = await startRelay(), home = makeHome();
	const observer = await startObserver(relay.url, home);
	await observer.connected();
	return { relay, home, observer };
}

async function end({ relay, home, observer }, ...harnesses) {
	for (const harness of harnesses)
		await harness.close();
	await observer.end();
	await relay.stop();
	home.remove();
}

/** The answer, not one that was ended early: a search has its time by the clock, also on a machine that is busy elsewhere. */
const ask = (observer, q, more = "") => until(async () => {
	const answer = (await observer.get(`/api/search?q=${encodeURIComponent(q)}${more}`)).json();
	return !answer.incomplete && answer;
}, `all that has ${q}`);

/** The answer with so many hits: for what just came a search has its time by the clock, too. */
const found = (observer, q, count) => until(async () => {
	const answer = await ask(observer, q);
	return answer.hits.length === count && answer;
}, `${count} that have ${q}`);

/** What `perch search` says when it was not ended early. */
const search = (home, ...words) => until(async () => {
	const answer = await run(home, "search", ...words);
	return !answer.stderr.includes("took too long") && answer;
}, `perch search ${words}`);

const say = (harness, channel, text) => harness.event("note", { text }, { channel });

test("what streams is found, whose it is and where; words of two events are one row's", async () => {
	const all = await begin(), { relay, home, observer } = all, channel = channelId();
	const page = await observer.page();
	const harness = await Harness.open(relay.url, home.owner);
	await harness.send(harness.started_event(channel));
	await harness.send(harness.event("turn_started", { promptId: "p" }, { channel, turn: "t1" }));
	await harness.send(harness.event("acp_read", chunk("the rou"), { channel, turn: "t1" }));
	await harness.send(harness.event("acp_read", chunk("ter & <b>it</b>"), { channel, turn: "t1" }));
	const row = await page.row(({ type, text }) => type === "message" && text.includes("router"));
	const { hits, more, indexing } = await found(observer, "router", 1);
	assert.equal(hits.length, 1);
	assert.deepEqual(
		{ row: hits[0].row, lane: hits[0].lane, agent: hits[0].agent, pos: hits[0].pos, type: hits[0].type },
		{ row: row.id, lane: `${harness.id}/${channel}`, agent: harness.id, pos: row.pos, type: "message" });
	assert.deepEqual(hits[0].snippet, ["the ", "router", " & <b>it</b>"]);
	assert.deepEqual([hits[0].agentName, hits[0].channelName], ["claude", "api-server"]);
	/* A lane that only the archive could know is named as far as it can be. */
	const rows = await (await observer.get(`/api/rows?lane=${harness.id}/${channelId()}`)).json();
	assert.deepEqual([rows.rows, rows.agentName, rows.channelName], [[], "claude", undefined]);
	assert.equal(more, false);
	assert.equal(indexing, false);
	await harness.send(harness.event("acp_read", chunk(" goes on"), { channel, turn: "t1" }));
	await page.row(({ type, text }) => type === "message" && text.endsWith("goes on"));
	await found(observer, "router goes", 1);
	assert.equal((await ask(observer, "router goes kind:tool")).hits.length, 0);
	page.close();
	await end(all, harness);
});

test("two agents say the same: agent: tells them apart, by name, its beginning, or key", async () => {
	const all = await begin(), { relay, home, observer } = all, channel = channelId();
	const page = await observer.page();
	const one = await Harness.open(relay.url, home.owner), two = await Harness.open(relay.url, home.owner);
	const renamed = two.started_event(channel);
	renamed.payload.name = "Codex";
	await one.send(one.started_event(channel));
	await two.send(renamed);
	await one.send(say(one, channel, "shared secret & more"));
	await two.send(say(two, channel, "shared secret & more"));
	for (const { id } of [one, two])
		await page.row(({ type, lane }) => type === "note" && lane.startsWith(id));
	await found(observer, "shared", 2);
	for (const [name, harness] of [["claude", one], ["codex", two], ["COD", two], [two.id, two]]) {
		const { hits } = await ask(observer, `"secret & more" agent:${name}`);
		assert.deepEqual(hits.map(({ agent }) => agent), [harness.id], name);
	}
	assert.equal((await ask(observer, "shared agent:nobody")).hits.length, 0);
	page.close();
	await end(all, one, two);
});

test("pages of hits go back in time; questions that are none get a sentence", async () => {
	const all = await begin(), { relay, home, observer } = all, channel = channelId();
	const page = await observer.page();
	const harness = await Harness.open(relay.url, home.owner);
	await harness.send(harness.started_event(channel));
	await harness.send(harness.batch(Array.from({ length: 45 }, (_, i) => say(harness, channel, `needle n${i}`))));
	await page.row(({ text }) => text === "needle n44");
	await until(async () => (await ask(observer, "needle", "&limit=100")).hits.length === 45, "all needles");
	const seen = [];
	let before = "", pages = 0;
	for (let more = true; more; pages++) {
		const answer = await ask(observer, "needle", `&limit=20${before}`);
		seen.push(...answer.hits.map(({ snippet }) => snippet.join("")));
		more = answer.more;
		before = `&before=${answer.before}`;
	}
	assert.equal(pages, 3);
	assert.deepEqual(new Set(seen), new Set(Array.from({ length: 45 }, (_, i) => `needle n${i}`)));
	assert.equal(seen.length, 45);
	for (const [path, error] of [
		["/api/search", /there is nothing to look for/],
		["/api/search?q=%22%22", /there is nothing to look for/],
		["/api/search?q=%FF", /UTF-8/],
		["/api/search?q=kind:cat", /kind:cat is none: prompt, /],
		[`/api/search?q=since:${"\u00e9".repeat(30)}`, /takes a moment|too long/],
		["/api/search?q=a&limit=0", /limit must be 1 to 100/],
		["/api/search?q=a&limit=101", /limit must be 1 to 100/],
		["/api/search?q=a&before=-1", /before must be the id of a hit/],
		["/api/search?q=a&before=x", /before must be the id of a hit/],
	]) {
		const { status, json } = await observer.get(encodeURI(path).replaceAll("%25", "%"));
		assert.equal(status, 400, path);
		assert.match(json().error, error, path);
	}
	for (const q of ["\"", "a AND", "(", "NEAR(a b)", "text:a", "*", "a*b*", "' OR 1=1; --", "+ +", "%"])
		assert.ok([200, 400].includes((await observer.get(`/api/search?q=${encodeURIComponent(q)}`)).status), q);
	assert.equal((await observer.get("/api/search?q=a", { headers: { authorization: "" } })).status, 401);
	page.close();
	await end(all, harness);
});

test("perch search prints hits for people and as JSON; nothing is found of what was forgotten", async () => {
	const all = await begin(), { relay, home } = all, channel = channelId();
	const page = await all.observer.page();
	const harness = await Harness.open(relay.url, home.owner);
	await harness.send(harness.started_event(channel));
	await harness.send(say(harness, channel, "an \u001b[31mAlpha\u001b[0m beta\u202e\nsecond line"));
	await harness.send(say(harness, channel, "alphabet"));
	await page.row(({ text }) => text === "alphabet");
	page.close();
	await found(all.observer, "alpha*", 2);
	const told = await search(home, "ALPHA", "beta");
	assert.equal(told.code, 0, told.stderr);
	assert.match(told.stdout, /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d claude@atlas +api-server +note +an Alpha beta/);
	assert.ok(!/[\u001b\u202e]/.test(told.stdout));
	assert.equal(told.stdout.split("\n").length, 2);
	const lines = (await search(home, "--json", "alpha*")).stdout.trim().split("\n").map((line) => JSON.parse(line));
	assert.deepEqual(lines.map(({ snippet }) => snippet[1]).sort(), ["Alpha", "alphabet"]);
	assert.equal((await search(home, "--json", "--count", "1", "alpha*")).stdout.trim().split("\n").length, 1);
	const none = await search(home, "nowhere");
	assert.deepEqual([none.code, none.stdout], [1, ""]);
	assert.match(none.stderr, /nothing found/);
	assert.equal((await search(home)).code, 2);
	assert.match((await search(home, "kind:cat")).stderr, /kind:cat is none/);
	await all.observer.end();
	assert.match((await search(home, "alpha")).stderr, /no observer runs here/);
	assert.equal((await run(home, "forget", "--yes", "claude")).code, 0);
	all.observer = await startObserver(relay.url, home);
	assert.equal((await ask(all.observer, "alpha*")).hits.length, 0);
	await end(all, harness);
});

test("a search is answered beside a stream of frames, and after a restart finds the same", async () => {
	const all = await begin(), { relay, home } = all, channel = channelId();
	const page = await all.observer.page();
	const harness = await Harness.open(relay.url, home.owner);
	await harness.send(harness.started_event(channel));
	for (let i = 0; i < 30; i++) {
		await harness.send(harness.batch(Array.from({ length: 20 }, (_, k) => say(harness, channel, `stream of ${i} ${k}`))));
		assert.ok((await ask(all.observer, "stream", "&limit=1")).hits.length <= 1);
	}
	await page.row(({ text }) => text === "stream of 29 19");
	page.close();
	const { hits } = await found(all.observer, "\"29 19\"", 1);
	await all.observer.end();
	all.observer = await startObserver(relay.url, home);
	assert.deepEqual((await found(all.observer, "\"29 19\"", 1)).hits, hits);
	await end(all, harness);
});
