// Stored kinds, as any Nostr client sees them: NIP-01, 9, 40, 45, 70.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { makeKey, now, sign } from "./support/keys.mjs";
import { Relay, SimplePool } from "./support/nostr_tools.mjs";
import { Peer } from "./support/peer.mjs";
import { spawnPerch, startRelay, stopRelay } from "./support/perch.mjs";

let relay, folder;
before(async () => {
	folder = mkdtempSync(join(tmpdir(), "perch-store-"));
	relay = await startRelay(["--open"]);
});
after(async () => {
	rmSync(folder, { recursive: true, force: true });
	await stopRelay(relay);
});

const ids = (events) => events.map((event) => event.id);
/** Ids in NIP-01's order. */
const sorted = (events) => ids([...events].sort((a, b) =>
	b.created_at - a.created_at || (a.id < b.id ? -1 : 1)));

/** A connection that publishes much: budgets of events are those of a key. */
const bulk = () => Peer.open(relay.url);

async function writer(...keys) {
	return Peer.as(relay.url, ...keys);
}

/** What is stored: the subscription ends with it. */
async function query(peer, ...filters) {
	const events = await peer.subscribe("query", ...filters);
	peer.send("CLOSE", "query");
	return events;
}

async function assertStored(peer, ...events) {
	for (const event of events)
		assert.deepEqual((await peer.publish(event)).slice(2), [true, ""]);
}

test("an event is stored, found by each of its conditions, and counted", async () => {
	const key = makeKey(), other = makeKey();
	const peer = await writer(key);
	const event = sign(key, { kind: 1, content: "héllo \u007f \u2028\n",
		tags: [["t", "store"], ["e", "ab".repeat(32)], ["p", other.pub], ["alt", "no index"]] });
	await assertStored(peer, event);
	for (const filter of [{ ids: [event.id] }, { authors: [key.pub] }, { kinds: [1], authors: [key.pub] },
		{ "#t": ["store"], authors: [key.pub] }, { "#e": ["ab".repeat(32)] }, { "#p": [other.pub] },
		{ authors: [key.pub], since: event.created_at, until: event.created_at }]) {
		const found = await query(peer, filter);
		assert.deepEqual(found, [JSON.parse(JSON.stringify(event))], JSON.stringify(filter));
		peer.send("COUNT", "c", filter);
		assert.deepEqual((await peer.next("COUNT", "c"))[2], { count: 1 });
	}
	for (const filter of [{ authors: [key.pub], since: event.created_at + 1 },
		{ authors: [key.pub], until: event.created_at - 1 }, { authors: [key.pub], kinds: [2] },
		{ authors: [key.pub], "#t": ["stor"] }, { authors: [], kinds: [1] }, { ids: [] }])
		assert.deepEqual(await query(peer, filter), [], JSON.stringify(filter));
	await peer.close();
});

test("a duplicate is OK true, and is not sent again", async () => {
	const key = makeKey();
	const peer = await writer(key);
	const event = sign(key, { kind: 1 });
	assert.deepEqual(await peer.subscribe("live", { authors: [key.pub] }), []);
	await assertStored(peer, event);
	assert.match((await peer.publish(event))[3], /^duplicate: /);
	await peer.settle();
	assert.deepEqual(peer.inbox.map((message) => message[0]), ["EVENT"]);
	await peer.close();
});

test("newest first, ties by the lowest id, limit for each filter and no event twice", async () => {
	const key = makeKey();
	const peer = await bulk();
	const at = now() - 1000;
	const events = Array.from({ length: 30 }, (_, i) => sign(key, {
		kind: 1 + i % 2, created_at: at + Math.floor(i / 6), content: String(i) }));
	await assertStored(peer, ...events);
	assert.deepEqual(ids(await query(peer, { authors: [key.pub] })), sorted(events));
	assert.deepEqual(ids(await query(peer, { authors: [key.pub], limit: 7 })), sorted(events).slice(0, 7));
	assert.deepEqual(ids(await query(peer, { authors: [key.pub], limit: 3, kinds: [2] })),
		sorted(events.filter(({ kind }) => kind === 2)).slice(0, 3));
	const wanted = new Set([...sorted(events).slice(0, 5),
		...sorted(events.filter(({ kind }) => kind === 1)).slice(0, 8)]);
	assert.deepEqual(ids(await query(peer, { authors: [key.pub], limit: 5 },
		{ authors: [key.pub], kinds: [1], limit: 8 })), sorted(events).filter((id) => wanted.has(id)));
	await peer.close();
});

test("limit 0 brings EOSE and stays live", async () => {
	const key = makeKey();
	const peer = await writer(key);
	await assertStored(peer, sign(key, { kind: 1, content: "before" }));
	assert.deepEqual(await peer.subscribe("live", { authors: [key.pub], limit: 0 }), []);
	const event = sign(key, { kind: 1, content: "after" });
	await assertStored(peer, event);
	assert.equal((await peer.next("EVENT", "live"))[2].id, event.id);
	await peer.close();
});

test("of a replaceable event the newest stays, of two at once the lowest id, in either order", async () => {
	const key = makeKey();
	const peer = await writer(key);
	for (const [kind, tags] of [[0, []], [3, []], [10002, []], [30023, [["d", "a:b"]]], [30023, []]]) {
		const at = now() - 100;
		const two = [0, 1].map((n) => sign(key, { kind, tags, created_at: at, content: `${n}` }))
			.sort((a, b) => (a.id < b.id ? -1 : 1));
		const older = sign(key, { kind, tags, created_at: at - 1 });
		const newer = sign(key, { kind, tags, created_at: at + 1 });
		const filter = { authors: [key.pub], kinds: [kind], ...(tags.length ? { "#d": ["a:b"] } : {}) };
		await assertStored(peer, two[1], two[0]);
		assert.deepEqual(ids(await query(peer, filter)), [two[0].id]);
		for (const event of [two[1], older])
			assert.deepEqual((await peer.publish(event)).slice(2), [false, "duplicate: already have a newer version"]);
		await assertStored(peer, newer);
		assert.deepEqual(ids(await query(peer, filter)), [newer.id]);
		assert.deepEqual(await query(peer, { ids: [two[0].id] }), []);
		await assertStored(peer, sign(key, { kind: 5, tags: [["e", newer.id]] }));
	}
	await peer.close();
});

test("a d tag means nothing on a replaceable kind, and its first value counts on an addressable one", async () => {
	const key = makeKey();
	const peer = await writer(key);
	const at = now() - 10;
	const replaceable = [0, 1].map((n) => sign(key, { kind: 10001, created_at: at + n, tags: [["d", `${n}`]] }));
	await assertStored(peer, ...replaceable);
	assert.deepEqual(ids(await query(peer, { kinds: [10001], authors: [key.pub] })), [replaceable[1].id]);
	const addressable = [["d", "x"], ["d", "y"]].map((d, n) => sign(key, {
		kind: 30001, created_at: at + n, tags: [["d"], d] }));
	await assertStored(peer, ...addressable);
	assert.deepEqual(ids(await query(peer, { kinds: [30001], authors: [key.pub] })), [addressable[1].id]);
	await peer.close();
});

test("what its author deletes is gone and stays away; what others delete stays", async () => {
	const key = makeKey(), other = makeKey();
	const peer = await writer(key);
	const event = sign(key, { kind: 1 });
	await assertStored(peer, event);
	await assertStored(peer, sign(other, { kind: 5, tags: [["e", event.id]] }));
	assert.deepEqual(ids(await query(peer, { ids: [event.id] })), [event.id]);
	const deletion = sign(key, { kind: 5, tags: [["e", event.id], ["k", "1"]] });
	await assertStored(peer, deletion);
	for (const filter of [{ ids: [event.id] }, { authors: [key.pub], kinds: [1] }])
		assert.deepEqual(await query(peer, filter), []);
	assert.deepEqual((await peer.publish(event)).slice(2), [false, "blocked: its author has deleted it"]);
	assert.deepEqual(ids(await query(peer, { kinds: [5], authors: [key.pub] })), [deletion.id]);
	await assertStored(peer, sign(key, { kind: 5, tags: [["e", deletion.id]] }));
	assert.deepEqual(ids(await query(peer, { ids: [deletion.id] })), [deletion.id]);
	assert.match((await peer.publish(event))[3], /^blocked: /);
	await peer.close();
});

test("a deletion may come before what it deletes; somebody else's early one means nothing", async () => {
	const key = makeKey(), other = makeKey();
	const peer = await writer(key);
	const event = sign(key, { kind: 1, content: "early" }), spared = sign(key, { kind: 1, content: "spared" });
	await assertStored(peer, sign(key, { kind: 5, tags: [["e", event.id]] }),
		sign(other, { kind: 5, tags: [["e", spared.id]] }));
	assert.match((await peer.publish(event))[3], /^blocked: /);
	await assertStored(peer, spared);
	await peer.close();
});

test("a deletion by address ends the versions up to its time, and only its author's", async () => {
	const key = makeKey(), other = makeKey();
	const peer = await writer(key);
	const at = now() - 100;
	const version = (n) => sign(key, { kind: 30023, created_at: at + n, tags: [["d", "a:b:c"]] });
	const address = `30023:${key.pub}:a:b:c`;
	await assertStored(peer, version(0));
	await assertStored(peer, sign(other, { kind: 5, created_at: at + 50, tags: [["a", address]] }));
	assert.equal((await query(peer, { "#d": ["a:b:c"], authors: [key.pub] })).length, 1);
	await assertStored(peer, sign(key, { kind: 5, created_at: at + 2, tags: [["a", address]] }));
	assert.deepEqual(await query(peer, { "#d": ["a:b:c"], authors: [key.pub] }), []);
	for (const n of [1, 2])
		assert.match((await peer.publish(version(n)))[3], /^blocked: /);
	await assertStored(peer, version(3));
	await assertStored(peer, sign(key, { kind: 5, created_at: at + 2, tags: [["a", address]], content: "again" }));
	assert.deepEqual(ids(await query(peer, { "#d": ["a:b:c"], authors: [key.pub] })), [version(3).id]);
	await peer.close();
});

test("an expired event is refused, one that will expire is not", async () => {
	const key = makeKey();
	const peer = await writer(key);
	const expires = (at) => sign(key, { kind: 1, tags: [["expiration", String(at)]] });
	assert.match((await peer.publish(expires(now() - 1)))[3], /^invalid: .*expired/);
	const later = expires(now() + 1000);
	await assertStored(peer, later);
	assert.deepEqual(ids(await query(peer, { authors: [key.pub] })), [later.id]);
	await peer.close();
});

test("a protected event is taken from its author only, and a repost that carries one is not", async () => {
	const key = makeKey(), other = makeKey();
	const event = sign(key, { kind: 1, tags: [["-"]] });
	const peer = await writer(other);
	assert.match((await peer.publish(event))[3], /^restricted: /);
	for (const kind of [6, 16])
		assert.match((await peer.publish(sign(other, { kind, content: JSON.stringify(event) })))[3], /^blocked: /);
	await assertStored(peer, sign(other, { kind: 6, content: JSON.stringify(sign(key, { kind: 1 })) }));
	await peer.auth(key);
	await assertStored(peer, event);
	await peer.close();
});

test("without AUTH nothing is stored, unless the relay is open", async () => {
	const key = makeKey();
	const closed = await startRelay();
	const peer = await Peer.open(closed.url);
	const event = sign(key, { kind: 1 });
	assert.match((await peer.publish(event))[3], /^auth-required: /);
	await peer.close();
	await closed.stop();
	const client = await Relay.connect(relay.url);
	assert.equal(await client.publish(event), "");
	await assert.rejects(client.publish(sign(key, { kind: 1, tags: [["-"]] })), /^Error: auth-required: /);
	await assert.rejects(client.publish(sign(key, { kind: 20001 })), /^Error: auth-required: /);
	client.close();
});

test("an event from too far ahead is refused, one from 1970 is not", async () => {
	const key = makeKey();
	const peer = await writer(key);
	assert.match((await peer.publish(sign(key, { kind: 1, created_at: now() + 1000 })))[3], /^invalid: .*900/);
	await assertStored(peer, sign(key, { kind: 1, created_at: now() + 800 }), sign(key, { kind: 1, created_at: 0 }));
	await peer.close();
});

test("ephemeral events are never in the store, and 22242 nowhere", async () => {
	const key = makeKey();
	const peer = await writer(key);
	assert.equal((await peer.publish(sign(key, { kind: 20001 })))[2], true);
	assert.equal((await peer.publish(sign(key, { kind: 22242 })))[2], false);
	assert.deepEqual(await query(peer, { authors: [key.pub] }), []);
	await peer.close();
});

test("gift wraps reach only whom they are for: by scan, live and COUNT", async () => {
	const sender = makeKey(), reader = makeKey(), stranger = makeKey();
	const peer = await writer(sender), theirs = await writer(reader), foreign = await writer(stranger);
	const anonymous = await Peer.open(relay.url);
	const wrap = (content) => sign(makeKey(), { kind: 1059, tags: [["p", reader.pub]], content });
	const own = { kinds: [1059], "#p": [reader.pub] };
	assert.deepEqual(await theirs.subscribe("mine", own), []);
	assert.deepEqual(await foreign.subscribe("any", { since: now() - 5, limit: 0 }), []);
	const first = wrap("1");
	await assertStored(peer, first);
	assert.equal((await theirs.next("EVENT", "mine"))[2].id, first.id);
	assert.deepEqual(ids(await theirs.subscribe("again", own)), [first.id]);
	for (const filter of [{ ids: [first.id] }, { "#p": [reader.pub] }, { authors: [first.pubkey] }]) {
		assert.deepEqual(await query(foreign, filter), []);
		foreign.send("COUNT", "c", filter);
		assert.equal((await foreign.next("COUNT", "c"))[2].count, 0);
	}
	foreign.send("COUNT", "c", own);
	assert.match((await foreign.next("CLOSED", "c"))[2], /^restricted: /);
	foreign.send("REQ", "r", own);
	assert.match((await foreign.next("CLOSED", "r"))[2], /^restricted: /);
	anonymous.send("REQ", "r", own);
	assert.match((await anonymous.next("CLOSED", "r"))[2], /^auth-required: /);
	theirs.send("COUNT", "c", own);
	assert.equal((await theirs.next("COUNT", "c"))[2].count, 1);
	assert.deepEqual(foreign.inbox.filter(([verb]) => verb === "EVENT"), []);
	await Promise.all([peer, theirs, foreign, anonymous].map((each) => each.close()));
});

test("what one connection sends is answered in order, and it finds what it published", async () => {
	const key = makeKey();
	const peer = await writer(key);
	const order = [];
	peer.socket.on("message", (data) => {
		const [verb, id] = JSON.parse(String(data));
		if (verb === "OK" || verb === "EOSE" || verb === "COUNT")
			order.push(id);
	});
	const events = [1, 20001, 1, 22242, 10000, 20002, 1].map((kind, i) => sign(key, { kind, content: `${i}` }));
	for (const event of events)
		peer.send("EVENT", event);
	peer.send("REQ", "after", { authors: [key.pub], limit: 100 });
	peer.send("COUNT", "count", { authors: [key.pub] });
	assert.equal((await peer.next("COUNT", "count"))[2].count, 4);
	assert.deepEqual(order, [...ids(events), "after", "count"]);
	const at = (start) => peer.inbox.findIndex((message) => start.every((part, i) => message[i] === part));
	assert.equal(peer.inbox.slice(0, at(["EOSE", "after"])).filter(([verb]) => verb === "EVENT").length, 4);
	await peer.close();
});

test("an event that comes amid a scan arrives exactly once", async () => {
	const key = makeKey();
	const content = "x".repeat(50000);
	const at = now() - 1000;
	const old = Array.from({ length: 100 }, (_, i) => sign(key, { kind: 1, content, created_at: at - i }));
	const peer = await bulk();
	await Promise.all(old.map((event) => peer.publish(event)));
	const reader = await Peer.open(relay.url);
	const fresh = [];
	reader.send("REQ", "all", { authors: [key.pub] });
	for (let i = 0; i < 40; i++) {
		fresh.push(sign(key, { kind: 1, content: `fresh ${i}` }));
		peer.send("EVENT", fresh[i]);
		await peer.next("OK", fresh[i].id);
	}
	await reader.next("EOSE", "all");
	await reader.subscribe("done", { ids: [fresh.at(-1).id] });
	const got = reader.inbox.filter(([verb, id]) => verb === "EVENT" && id === "all");
	assert.deepEqual(ids(got.map((message) => message[2])).sort(), ids([...old, ...fresh]).sort());
	await Promise.all([peer, reader].map((each) => each.close()));
});

test("a reader that does not read holds up neither the store nor others", async () => {
	const key = makeKey();
	const content = "y".repeat(150000);
	const events = Array.from({ length: 100 }, (_, i) => sign(key, { kind: 1, content: content + i }));
	const peer = await bulk();
	await Promise.all(events.map((event) => peer.publish(event)));
	const slow = await Peer.open(relay.url), quick = await Peer.open(relay.url);
	slow.socket.pause();
	slow.send("REQ", "slow", { authors: [key.pub] });
	assert.equal((await quick.subscribe("quick", { authors: [key.pub] })).length, 100);
	await assertStored(peer, sign(key, { kind: 1, content: "still taken" }));
	slow.socket.resume();
	await slow.next("EOSE", "slow");
	await slow.settle();
	assert.equal(slow.inbox.filter(([verb]) => verb === "EVENT").length, 101);
	await Promise.all([peer, slow, quick].map((each) => each.close()));
});

test("a relay with a reader that does not read stops cleanly", async () => {
	const key = makeKey();
	const other = await startRelay(["--open"]);
	const content = "w".repeat(200000);
	const events = Array.from({ length: 60 }, (_, i) => sign(key, { kind: 1, content: content + i }));
	const peer = await Peer.open(other.url), slow = await Peer.open(other.url);
	await Promise.all(events.map((event) => peer.publish(event)));
	slow.socket.pause();
	slow.send("REQ", "slow", {});
	await peer.subscribe("quick", {});
	await stopRelay(other);
	slow.socket.terminate();
});

test("CLOSE and a new REQ stop a scan: nothing of it comes afterwards", async () => {
	const key = makeKey();
	const content = "z".repeat(100000);
	const events = Array.from({ length: 50 }, (_, i) => sign(key, { kind: 1, content: content + i }));
	const peer = await bulk();
	await Promise.all(events.map((event) => peer.publish(event)));
	for (let i = 0; i < 20; i++) {
		peer.socket._socket.cork(); // in one piece: no scan is through before it is stopped
		peer.send("REQ", "a", { authors: [key.pub] });
		peer.send("CLOSE", "a");
		peer.send("REQ", "b", { authors: [key.pub] });
		peer.send("REQ", "b", { authors: [key.pub], limit: 3 });
		peer.socket._socket.uncork();
		await peer.next("EOSE", "b");
	}
	await peer.settle();
	await peer.subscribe("c", { authors: [key.pub], limit: 1 });
	await peer.close();
	assert.equal(peer.inbox.filter(([verb, id]) => verb === "EOSE" && (id === "a" || id === "b")).length, 0);
});

test("nostr-tools' Relay and SimplePool publish, query, replace, count and delete", async () => {
	const key = makeKey();
	const pool = new SimplePool({ enablePing: true });
	const auth = async (template) => sign(key, template);
	const note = sign(key, { kind: 1, content: "by the pool", tags: [["t", "pool"]] });
	await Promise.all(pool.publish([relay.url], note, { onauth: auth }));
	assert.deepEqual(ids(await pool.querySync([relay.url], { authors: [key.pub] })), [note.id]);
	assert.equal((await pool.get([relay.url], { "#t": ["pool"], authors: [key.pub] })).id, note.id);
	const start = now();
	const profiles = [0, 1].map((n) => sign(key, { kind: 0, created_at: start - 1 + n, content: `{"n":${n}}` }));
	for (const profile of profiles)
		await Promise.all(pool.publish([relay.url], profile, { onauth: auth }));
	assert.equal((await pool.get([relay.url], { kinds: [0], authors: [key.pub] })).id, profiles[1].id);
	const client = await Relay.connect(relay.url);
	assert.equal(await client.count([{ authors: [key.pub] }], { id: "n" }), 2);
	await Promise.all(pool.publish([relay.url], sign(key, { kind: 5, tags: [["e", note.id]] }), { onauth: auth }));
	assert.deepEqual(await pool.querySync([relay.url], { ids: [note.id] }), []);
	client.close();
	pool.destroy();
});

test("it is all there after a restart, by --db and by PERCH_HOME", async () => {
	const db = join(folder, "again.db");
	const key = makeKey();
	const events = Array.from({ length: 5 }, (_, i) => sign(key, { kind: 1, content: `${i}` }));
	const first = await startRelay(["--db", db]);
	const peer = await Peer.as(first.url, key);
	for (const event of events)
		assert.equal((await peer.publish(event))[2], true);
	await peer.publish(sign(key, { kind: 5, tags: [["e", events[0].id]] }));
	await peer.close();
	assert.equal((await first.stop()).code, 0);
	assert.equal(statSync(db).mode & 0o777, 0o600);
	const second = await startRelay(["--db", db]);
	const reader = await Peer.as(second.url, key);
	assert.deepEqual(ids(await query(reader, { authors: [key.pub], kinds: [1] })), sorted(events.slice(1)));
	assert.match((await reader.publish(events[0]))[3], /^blocked: /);
	assert.match((await reader.publish(events[1]))[3], /^duplicate: /);
	await reader.close();
	await second.stop();
});

test("kill -9 amid commits loses nothing that was answered OK", async () => {
	const db = join(folder, "killed.db");
	const key = makeKey();
	const first = await startRelay(["--db", db, "--open"]);
	const peer = await Peer.open(first.url);
	const okayed = [];
	let sent = 0;
	const send = () => peer.send("EVENT", sign(key, { kind: 1, content: `${sent++}` }));
	// For each that is answered another goes: there are always some on their way.
	const enough = new Promise((resolve) => peer.socket.on("message", (data) => {
		const [verb, id, accepted] = JSON.parse(String(data));
		if (verb !== "OK" || !accepted)
			return;
		send();
		if (okayed.push(id) === 200)
			resolve();
	}));
	for (let i = 0; i < 40; i++)
		send();
	await enough;
	await first.stop("SIGKILL");
	await peer.closed;
	assert.ok(okayed.length < sent);
	const second = await startRelay(["--db", db, "--open"]);
	const reader = await Peer.open(second.url);
	const stored = new Set(ids(await query(reader, { authors: [key.pub], limit: 5000 })));
	for (const id of okayed)
		assert.ok(stored.has(id), `${id} was OK and is lost`);
	await reader.close();
	await second.stop();
});

/** Runs `perch relay WHAT --db DB` with @input and returns {code, stdout, stderr}. */
async function transfer(what, db, input = "") {
	const run = spawnPerch(["relay", what, "--db", db]);
	run.child.stdin.end(input);
	const { code } = await run.exited;
	return { code, stdout: run.stdout(), stderr: run.stderr() };
}

test("export writes one line an event, the newest last, and import takes it back", async () => {
	const from = join(folder, "from.db"), to = join(folder, "to.db");
	const key = makeKey(), at = now() - 100;
	const source = await startRelay(["--db", from, "--open"]);
	const peer = await Peer.open(source.url);
	const events = [3, 1, 2].map((n) => sign(key, { kind: 1, created_at: at + n, content: `line\n${n}`, tags: [["t", "é"]] }));
	for (const event of events) // with a line break that is no part of a string
		peer.raw(`["EVENT",${JSON.stringify(event, null, 1)}]`);
	for (const event of events)
		assert.equal((await peer.next("OK", event.id))[2], true);
	const exported = await transfer("export", from); // beside the running relay
	assert.deepEqual([exported.code, exported.stderr], [0, "3 events exported\n"]);
	assert.deepEqual(ids(exported.stdout.trimEnd().split("\n").map((line) => JSON.parse(line))), sorted(events).reverse());
	assert.match((await transfer("import", from, "")).stderr, /uses the database/);
	await peer.close();
	await source.stop();
	const imported = await transfer("import", to, exported.stdout);
	assert.deepEqual([imported.code, imported.stderr], [0, "3 events imported, 0 known already, 0 refused\n"]);
	const again = await transfer("import", to, exported.stdout);
	assert.deepEqual([again.code, again.stderr], [0, "0 events imported, 3 known already, 0 refused\n"]);
	assert.equal((await transfer("export", to)).stdout, exported.stdout);
});

test("import refuses by line what is not true, and takes the rest", async () => {
	const db = join(folder, "mixed.db");
	const key = makeKey();
	const good = sign(key, { kind: 1 });
	const { code, stderr } = await transfer("import", db, [JSON.stringify(good), "", "no JSON",
		JSON.stringify({ ...good, content: "forged" }), JSON.stringify(sign(key, { kind: 20001 })),
		JSON.stringify({ ...good, content: "x".repeat(300000) })].join("\n"));
	assert.equal(code, 1);
	const lines = stderr.trimEnd().split("\n");
	assert.deepEqual(lines.map((line) => /^line \d+/.exec(line)?.[0]), ["line 3", "line 4", "line 5", "line 6", undefined]);
	assert.equal(lines[4], "1 events imported, 0 known already, 4 refused");
	assert.match((await transfer("export", join(folder, "missing.db"))).stderr, /^perch relay export: cannot open the database/);
});

test("a database that cannot be used is one clear line at start", async () => {
	const fails = async (db) => {
		const run = spawnPerch(["relay", "--listen", "127.0.0.1:0", "--db", db]);
		assert.equal((await run.exited).code, 1);
		assert.match(run.stderr(), /^perch relay: [^\n]*\n$/);
		return run.stderr();
	};
	const broken = join(folder, "broken.db");
	writeFileSync(broken, "this is no database, whatever its name says ".repeat(100));
	assert.match(await fails(broken), /move it away and start again/);
	assert.match(await fails(join(folder, "nowhere", "relay.db")), /nowhere/);
	assert.match(await fails(folder), /no regular file/);
	const db = join(folder, "newer.db");
	const first = await startRelay(["--db", db]);
	assert.match(await fails(db), /^perch relay: process \d+ uses the database/);
	await first.stop();
	const bytes = readFileSync(db);
	bytes.writeUInt32BE(999, 60); // user_version in the file's header
	writeFileSync(db, bytes);
	assert.match(await fails(db), /has version 999, this perch knows up to \d+: use a newer one/);
});
