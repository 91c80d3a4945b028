// What the threads of the store share with the loop, while everything happens at once.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { after, before, test } from "node:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { makeKey, now, sign } from "./support/keys.mjs";
import { Peer } from "./support/peer.mjs";
import { spawnPerch, startRelay } from "./support/perch.mjs";

const COUNT = 1200;
let folder, db, key, events;
before(async () => {
	folder = mkdtempSync(join(tmpdir(), "perch-storm-"));
	db = join(folder, "relay.db");
	key = makeKey();
	const at = now() - 10000;
	events = Array.from({ length: COUNT }, (_, i) => sign(key, { kind: 1, created_at: at + i, content: `${i} ${"x".repeat(200)}` }));
	const run = spawnPerch(["relay", "import", "--db", db]);
	run.child.stdin.end(events.map((event) => JSON.stringify(event)).join("\n"));
	const { code } = await run.exited;
	assert.equal(code, 0, run.stderr());
});
after(() => rmSync(folder, { recursive: true, force: true }));

const clean = (relay) => assert.doesNotMatch(relay.stderr(), /Sanitizer|runtime error/);

test("without a limit 500 come, with one up to 5,000 may", async () => {
	const relay = await startRelay(["--open", "--db", db]);
	const peer = await Peer.open(relay.url);
	const newest = [...events].reverse().map(({ id }) => id);
	assert.deepEqual((await peer.subscribe("default", {})).map(({ id }) => id), newest.slice(0, 500));
	assert.deepEqual((await peer.subscribe("more", { limit: 1100 })).map(({ id }) => id), newest.slice(0, 1100));
	assert.deepEqual((await peer.subscribe("most", { limit: 1e6 })).map(({ id }) => id), newest);
	await peer.close();
	await relay.stop();
	clean(relay);
});

/** Writes events that nobody signed as the relay does; to sign them takes a minute. */
function putInDatabase(file, events) {
	const rows = events.map((event) => {
		const age = (0x7fffffffffffffffn - BigInt(event.created_at)).toString(16).padStart(16, "0");
		return `INSERT INTO event (id, rank, pubkey, kind, json) VALUES (x'${event.id}', x'${age}${event.id}', ` +
			`x'${event.pubkey}', ${event.kind}, CAST('${JSON.stringify(event)}' AS BLOB));`;
	});
	execFileSync("sqlite3", [file], { input: `BEGIN;\n${rows.join("\n")}\nCOMMIT;\n` });
}
const hasSqlite = (() => {
	try { return Boolean(execFileSync("sqlite3", ["--version"])); } catch { return false; }
})();

test("a filter gives at most 5,000, whatever its limit, and a COUNT all", { skip: !hasSqlite && "there is no sqlite3" }, async () => {
	const most = 5000, base = now() - 100000;
	const large = Array.from({ length: most - 1 }, (_, i) => ({ id: randomBytes(32).toString("hex"), pubkey: key.pub,
		created_at: base + i, kind: 2, tags: [], content: "", sig: "0".repeat(128) }));
	const file = join(folder, "large.db");
	await (await startRelay(["--open", "--db", file])).stop();
	putInDatabase(file, large);
	const relay = await startRelay(["--open", "--db", file]);
	const peer = await Peer.open(relay.url);
	for (const stored of [most - 1, most, most + 1]) {
		if (stored >= most) {
			large.push(sign(key, { kind: 2, created_at: base + large.length }));
			assert.deepEqual((await peer.publish(large.at(-1))).slice(2), [true, ""]);
		}
		assert.equal(large.length, stored);
		const newest = large.map(({ id }) => id).reverse();
		const limit = Math.max(stored, most);
		const got = (await peer.subscribe("s", { limit })).map(({ id }) => id);
		assert.ok(isDeepStrictEqual(got, newest.slice(0, most)), `${stored} stored, limit ${limit}: ${got.length} came`);
		peer.send("CLOSE", "s");
		peer.send("COUNT", "c", { limit: 1 });
		assert.deepEqual((await peer.next("COUNT", "c"))[2], { count: stored });
	}
	await peer.close();
	await relay.stop();
	clean(relay);
});

test("REQ, CLOSE, COUNT, EVENT and hang-ups at once leave an orderly relay", async () => {
	const relay = await startRelay(["--open", "--db", db, "--key-reqs", "0", "--address-reqs", "0"]);
	for (let round = 0; round < 4; round++) {
		const peers = await Promise.all([0, 1, 2].map(() => Peer.open(relay.url)));
		const mine = makeKey();
		for (const peer of peers) {
			for (let i = 0; i < 15; i++) {
				peer.send("REQ", `s${i % 4}`, { limit: 300 }, { kinds: [1], limit: 10 });
				if (i % 3 === 0)
					peer.send("CLOSE", `s${i % 4}`);
				if (i % 5 === 0)
					peer.send("COUNT", `c${i}`, { authors: [key.pub] });
				peer.send("EVENT", sign(mine, { kind: 1, content: `${round} ${i}`, created_at: now() }));
			}
		}
		// One goes in the middle of it, one with a close frame, one once all was answered.
		peers[0].socket.terminate();
		peers[1].socket.close();
		await peers[2].settle();
		await peers[2].close();
	}
	const writer = await Peer.open(relay.url);
	writer.send("COUNT", "c", { authors: [key.pub] });
	assert.deepEqual((await writer.next("COUNT", "c"))[2], { count: COUNT });
	await writer.close();
	assert.deepEqual(await relay.stop(), { code: 0, signal: null });
	clean(relay);
});

test("SIGTERM amid scans and commits: a clean end, and every OK was true", async () => {
	const relay = await startRelay(["--open", "--db", db]);
	const peers = await Promise.all([0, 1, 2].map(() => Peer.open(relay.url)));
	const mine = makeKey();
	for (const [n, peer] of peers.entries()) {
		for (let i = 0; i < 10; i++)
			peer.send("REQ", `s${i}`, { limit: 5000 });
		for (let i = 0; i < 30; i++)
			peer.send("EVENT", sign(mine, { kind: 1, content: `${n} ${i}`, created_at: now() }));
	}
	await peers[0].next("EOSE");
	assert.deepEqual(await relay.stop(), { code: 0, signal: null });
	clean(relay);
	await Promise.all(peers.map((peer) => peer.closed));
	const told = peers.flatMap((peer) => peer.inbox)
		.filter(([verb, , accepted]) => verb === "OK" && accepted).map(([, id]) => id);
	const again = await startRelay(["--open", "--db", db]);
	const late = await Peer.open(again.url);
	const kept = new Set((await late.subscribe("q", { authors: [mine.pub] })).map(({ id }) => id));
	assert.deepEqual(told.filter((id) => !kept.has(id)), []);
	await late.close();
	await again.stop();
});

test("owners are added, revoked and allowed beside a writer that never pauses", async () => {
	const relay = await startRelay(["--open", "--db", db, "--key-events", "0", "--address-events", "0"]);
	const peer = await Peer.open(relay.url);
	const mine = makeKey();
	let going = true, sent = 0;
	const writing = (async () => {
		while (going)
			assert.deepEqual((await Promise.all(Array.from({ length: 20 }, () => peer.publish(
				sign(mine, { kind: 1, content: `${sent++}`, created_at: now() }))))).filter(([, , ok]) => !ok), []);
	})();
	for (const words of [["owners", "add"], ["revoke"], ["allow"], ["owners", "remove"]]) {
		const run = spawnPerch(["relay", ...words, "--db", db, makeKey().pub]);
		assert.equal((await run.exited).code, 0, `${words}: ${run.stderr()}`);
	}
	going = false;
	await writing;
	peer.send("COUNT", "c", { authors: [mine.pub] });
	assert.deepEqual((await peer.next("COUNT", "c"))[2], { count: sent });
	await peer.close();
	await relay.stop();
	clean(relay);
});
