// What suites and clients disagree about, as this relay decided it: each by raw messages, with events that others sign.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { after, before, test } from "node:test";
import { schnorr } from "@noble/curves/secp256k1.js";
import { authEvent, bytesToHex, hexToBytes, makeKey, now, sign } from "./support/keys.mjs";
import { Peer } from "./support/peer.mjs";
import { startRelay, stopRelay } from "./support/perch.mjs";

let relay;
before(async () => { relay = await startRelay(["--open", "--key-events", "0", "--owner-events", "0", "--owner-reqs", "0", "--key-reqs", "0"]); });
after(() => stopRelay(relay));

const open = () => Peer.open(relay.url);
const ids = (events) => events.map(({ id }) => id);

/** Signs the preimage as it is given, so that it may be what JSON.stringify would not write. */
function signPreimage(key, preimage) {
	const id = createHash("sha256").update(preimage).digest("hex");
	return { id, sig: bytesToHex(schnorr.sign(hexToBytes(id), key.secret)) };
}

/** Sends an EVENT whose text is built by hand, and returns the OK. */
async function publishText(peer, id, text) {
	peer.raw(`["EVENT",${text}]`);
	return peer.next("OK", id);
}
async function query(peer, ...filters) {
	const found = await peer.subscribe("q", ...filters);
	peer.send("CLOSE", "q");
	return found;
}

test("an id is that of what the strings mean, however they were escaped", async () => {
	const peer = await open(), key = makeKey(), reader = await open();
	for (const content of ["\u007f", "\u2028\u2029", "/", "</script>&", "🍕", "\ufdd1\u{10fff2}\ufffe", "\u0001\u001f\b\f\n\r\t\"\\", "é e\u0301"]) {
		const event = sign(key, { kind: 1, content, tags: [["t", content]] });
		const escaped = JSON.stringify(event).replace(/[^\x20-\x7e]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`)
			.replace(/\//g, "\\/");
		assert.deepEqual((await publishText(peer, event.id, escaped)).slice(2), [true, ""], JSON.stringify(content));
		assert.deepEqual(await query(reader, { ids: [event.id] }), [JSON.parse(JSON.stringify(event))]);
		assert.deepEqual(ids(await query(reader, { "#t": [content], authors: [key.pub] })), [event.id]);
	}
	for (const content of ["\\ud800", "\\udc00x", "a\\u0000b", "\\ud83c\\ud83c\\udf55"]) {
		const at = now(), { id, sig } = signPreimage(key, `[0,"${key.pub}",${at},1,[],"${content}"]`);
		const ok = await publishText(peer, id, `{"id":"${id}","pubkey":"${key.pub}","created_at":${at},"kind":1,"tags":[],"content":"${content}","sig":"${sig}"}`);
		assert.equal(ok[2], false, content);
		assert.match(ok[3], /^invalid: /);
	}
	await Promise.all([peer.close(), reader.close()]);
});

test("an event has its seven members, each once and of its own kind", async () => {
	const peer = await open(), key = makeKey();
	const event = sign(key, { kind: 1, content: "x" });
	const text = JSON.stringify(event);
	const cut = (name) => JSON.stringify({ ...event, [name]: undefined });
	const swap = (name, value) => text.replace(new RegExp(`"${name}":("[^"]*"|\\d+|\\[\\])`), `"${name}":${value}`);
	const wrong = [...["pubkey", "created_at", "kind", "tags", "content", "sig"].map(cut),
		`${text.slice(0, -1)},"kind":1}`, `${text.slice(0, -1)},"content":"x"}`,
		swap("kind", "1.0"), swap("kind", "1e0"), swap("kind", "-1"), swap("kind", "65536"), swap("kind", '"1"'),
		swap("created_at", "1e+10"), swap("created_at", "-1"), swap("created_at", `${event.created_at}.0`), swap("created_at", "99999999999999999999"),
		swap("tags", "[[]]"), swap("tags", "[[],[]]"), swap("tags", "[null]"), swap("tags", '[["a",1]]'), swap("tags", "null"), swap("content", "null"),
		swap("sig", `"${event.sig.toUpperCase()}"`), swap("pubkey", `"${event.pubkey.toUpperCase()}"`), swap("sig", `"${event.sig.slice(1)}"`),
		swap("content", '"y"'), swap("sig", `"${"0".repeat(128)}"`), swap("pubkey", `"${"f".repeat(64)}"`)];
	for (const one of wrong) {
		assert.notEqual(one, text);
		const ok = await publishText(peer, event.id, one);
		assert.equal(ok[2], false, one);
		assert.match(ok[3], /^invalid: /, one);
	}
	for (const id of [event.id.toUpperCase(), event.id.slice(1), "", "x".repeat(64)]) {
		peer.raw(`["EVENT",${text.replace(event.id, id)}]`);
		assert.match((await peer.next("NOTICE"))[1], /^invalid: /, id);
	}
	assert.deepEqual((await publishText(peer, event.id, `{"extra":{"kind":7},${text.slice(1)}`)).slice(2), [true, ""]);
	assert.deepEqual(await query(peer, { ids: [event.id] }), [JSON.parse(text)]);
	await peer.close();
});

test("kinds are regular, replaceable, ephemeral or addressable by their range, at both ends of it", async () => {
	const peer = await open(), key = makeKey(), at = now() - 100;
	await peer.auth(key);
	const kept = async (kind, tags) => {
		const two = [0, 1].map((i) => sign(key, { kind, created_at: at + i, tags: tags?.[i] ?? [], content: `${i}` }));
		for (const event of two)
			assert.equal((await peer.publish(event))[2], true, `${kind}`);
		peer.send("COUNT", "c", { kinds: [kind], authors: [key.pub] });
		const count = (await peer.next("COUNT", "c"))[2].count;
		assert.equal((await query(peer, { kinds: [kind], authors: [key.pub] })).length, count);
		return count;
	};
	for (const kind of [1, 2, 4, 44, 45, 999, 1000, 9999, 40000, 65535]) assert.equal(await kept(kind), 2, `regular ${kind}`);
	for (const kind of [0, 3, 10000, 19999]) assert.equal(await kept(kind, [[["d", "a"]], [["d", "b"]]]), 1, `replaceable ${kind}`);
	for (const kind of [20000, 29999]) assert.equal(await kept(kind), 0, `ephemeral ${kind}`);
	for (const kind of [30000, 39999]) {
		assert.equal(await kept(kind, [[["d", "a"], ["d", "c"]], [["d", "b"], ["d", "c"]]]), 2, `addressable ${kind}`);
		// No d tag, one without a value and an empty one are the same address: the next takes the place of the last.
		for (const [i, tags] of [[], [["d"]], [["d", ""]], [["t", "x"]]].entries())
			assert.deepEqual((await peer.publish(sign(key, { kind, tags, created_at: at + 10 + i }))).slice(2), [true, ""]);
		assert.equal((await query(peer, { kinds: [kind], authors: [key.pub] })).length, 3);
	}
	await peer.close();
});

test("an older version is refused as a duplicate, one of the same second by the higher id", async () => {
	const peer = await open(), key = makeKey(), at = now() - 50;
	for (const kind of [10002, 30023]) {
		const newer = sign(key, { kind, created_at: at }), older = sign(key, { kind, created_at: at - 1 });
		assert.equal((await peer.publish(newer))[2], true);
		assert.deepEqual((await peer.publish(older)).slice(2), [false, "duplicate: already have a newer version"]);
		assert.match((await peer.publish(newer))[3], /^duplicate: /);
		const twins = Array.from({ length: 4 }, (_, i) => sign(key, { kind, created_at: at + 1, content: `${i}` }));
		for (const twin of twins) await peer.publish(twin);
		assert.deepEqual(ids(await query(peer, { kinds: [kind], authors: [key.pub] })), [ids(twins).sort()[0]]);
	}
	await peer.close();
});

test("filters match exactly, and what is no filter is closed with the reason", async () => {
	const peer = await open(), key = makeKey();
	const upper = sign(key, { kind: 1, tags: [["E", "x"], ["t"], ["t", "Tag", "second"], ["alt", "words"]] });
	assert.equal((await peer.publish(upper))[2], true);
	const matches = async (filter) => (await query(peer, { authors: [key.pub], ...filter })).length === 1;
	assert.ok(await matches({ "#E": ["x"] }));
	assert.ok(!await matches({ "#e": ["0".repeat(64)] }));
	assert.ok(await matches({ "#t": ["Tag"] }));
	for (const value of ["tag", "Ta", "second", ""]) assert.ok(!await matches({ "#t": [value] }), value);
	for (const list of [{ ids: [] }, { kinds: [] }, { "#t": [] }]) assert.ok(!await matches(list), JSON.stringify(list));
	assert.ok(await matches({ since: upper.created_at, until: upper.created_at }));
	assert.ok(!await matches({ since: upper.created_at + 1 }) && !await matches({ until: upper.created_at - 1 }));
	const wrong = ['{"since":-1}', '{"since":"1"}', '{"until":1.5}', '{"limit":-1}', '{"limit":1.5}', '{"limit":"1"}', '{"kinds":[65536]}', '{"kinds":[-1]}',
		'{"kinds":[1.5]}', '{"kinds":1}', '{"kinds":["1"]}', '{"ids":["ab"]}', `{"authors":["${"A".repeat(64)}"]}`, '{"#e":["x"]}', '{"#p":[""]}', '{"#t":"x"}', '{"#t":[1]}',
		'{"kinds":[1],"kinds":[2]}', '{"ids":null}', "[]", "null", "1", '"x"', ""];
	for (const [i, filter] of wrong.entries()) {
		peer.raw(filter ? `["REQ","w${i}",${filter}]` : `["REQ","w${i}"]`);
		assert.match((await peer.next("CLOSED", `w${i}`))[2], /^invalid: /, filter);
		peer.raw(filter ? `["COUNT","n${i}",${filter}]` : `["COUNT","n${i}"]`);
		assert.match((await peer.next("CLOSED", `n${i}`))[2], /^invalid: /, filter);
	}
	for (const name of ["#alt", "search", "#ä", "#1", "&t", "#"]) {
		peer.send("REQ", "u", { [name]: ["words"] });
		assert.match((await peer.next("CLOSED", "u"))[2], /^(unsupported|invalid): /, name);
	}
	await peer.close();
});

test("subscription ids are any 1 to 64 code points", async () => {
	const peer = await open();
	for (const id of [" ", '"\\', "\u0001\u007f", "🦜".repeat(64), "</>", "null"]) {
		assert.deepEqual(await peer.subscribe(id, { limit: 0 }), []);
		peer.send("CLOSE", id);
	}
	for (const id of ['""', "1", "null", "[]", `"${"🦜".repeat(65)}"`]) {
		peer.raw(`["REQ",${id},{}]`);
		assert.match((await peer.nextRefusal()).at(-1), /^invalid: /, id);
	}
	await peer.settle();
	assert.deepEqual(peer.inbox.filter(([verb]) => verb !== "AUTH"), []);
	await peer.close();
});

test("a deletion takes what its signer wrote and nothing else", async () => {
	const peer = await open(), key = makeKey(), other = makeKey(), at = now() - 100;
	const put = async (who, template) => {
		const event = sign(who, { created_at: at, ...template });
		assert.deepEqual((await peer.publish(event)).slice(2), [true, ""], JSON.stringify(template));
		return event;
	};
	const note = await put(key, { kind: 1 }), theirs = await put(other, { kind: 1 });
	const page = await put(key, { kind: 30023, tags: [["d", "a:b:c"]] }), theirPage = await put(other, { kind: 30023, tags: [["d", "a:b:c"]] });
	const nothing = await put(key, { kind: 5, tags: [["p", other.pub]] });
	// Another's by e; another's address; an address with the wrong key, kind or d; the signer's deletion itself.
	const harmless = await put(key, { kind: 5, tags: [["e", theirs.id], ["a", `30023:${other.pub}:a:b:c`], ["a", `30023:${key.pub}:a`],
		["a", `30023:${key.pub}`], ["a", `1:${key.pub}:`], ["a", ""], ["e", "x"], ["e"], ["a"], ["e", nothing.id]] });
	assert.deepEqual(ids(await query(peer, { authors: [key.pub, other.pub] })).sort(), ids([note, theirs, page, theirPage, nothing, harmless]).sort());
	const real = await put(key, { kind: 5, created_at: at, tags: [["e", note.id], ["a", `30023:${key.pub}:a:b:c`]] });
	assert.deepEqual(ids(await query(peer, { authors: [key.pub] })).sort(), ids([nothing, harmless, real]).sort());
	for (const gone of [note, page]) {
		assert.deepEqual(await query(peer, { ids: [gone.id] }), []);
		assert.match((await peer.publish(gone))[3], /^blocked: /);
		peer.send("COUNT", "c", { ids: [gone.id] });
		assert.deepEqual((await peer.next("COUNT", "c"))[2], { count: 0 });
	}
	// Deleting the deletion brings nothing back.
	const again = await put(key, { kind: 5, tags: [["e", real.id]] });
	assert.match((await peer.publish(note))[3], /^blocked: /);
	assert.equal((await query(peer, { ids: [real.id, again.id] })).length, 2);
	// A version after the deletion lives.
	await put(key, { kind: 30023, created_at: at + 1, tags: [["d", "a:b:c"]] });
	await peer.close();
});

test("the first expiration counts, and one that is no number is none", async () => {
	const peer = await open(), key = makeKey();
	const past = String(now() - 10), future = String(now() + 1000);
	const tried = async (...values) => (await peer.publish(sign(key, { kind: 1, content: values.join(), tags: values.map((value) => ["expiration", value]) })))[2];
	assert.equal(await tried(past), false);
	assert.equal(await tried(past, future), false);
	assert.equal(await tried("0"), false);
	assert.equal(await tried(future, past), true);
	for (const value of ["soon", "", "-1", "1.5", "99999999999999999999", ` ${past}`]) assert.equal(await tried(value), true, value);
	await peer.close();
});

test("AUTH is answered by OK whatever is wrong with it, and the connection may try again", async () => {
	const peer = await open(), key = makeKey(), challenge = await peer.challenge();
	const { port } = relay;
	const wrong = { kind: authEvent(key, relay.url, challenge, { kind: 22243 }), old: authEvent(key, relay.url, challenge, { created_at: now() - 700 }),
		early: authEvent(key, relay.url, challenge, { created_at: now() + 700 }), challenge: authEvent(key, relay.url, `${challenge}x`),
		host: authEvent(key, `ws://relay.example:${port}`, challenge), port: authEvent(key, `ws://127.0.0.1:${port + 1}`, challenge),
		scheme: authEvent(key, `https://127.0.0.1:${port}`, challenge), path: authEvent(key, `${relay.url}/other`, challenge),
		none: sign(key, { kind: 22242 }), forged: { ...authEvent(key, relay.url, challenge), sig: "0".repeat(128) } };
	for (const [what, event] of Object.entries(wrong)) {
		peer.send("AUTH", event);
		const ok = await peer.next("OK", event.id);
		assert.equal(ok[2], false, what);
		assert.match(ok[3], /^invalid: /, what);
	}
	for (const url of [relay.url, `${relay.url}/`, `WS://LOCALHOST:${port}`, `ws://127.0.0.1:${port}/`]) {
		const event = authEvent(makeKey(), url, challenge);
		peer.send("AUTH", event);
		assert.equal((await peer.next("OK", event.id))[2], true, url);
	}
	const published = authEvent(key, relay.url, challenge);
	assert.match((await peer.publish(published))[3], /^invalid: /);
	await peer.close();
});

test("COUNT ignores limits, counts an event once, and knows what is gated", async () => {
	const peer = await open(), key = makeKey();
	for (let i = 0; i < 5; i++) await peer.publish(sign(key, { kind: 1, content: `${i}`, tags: [["t", "a"], ["t", "b"]] }));
	peer.send("COUNT", "c", { authors: [key.pub], limit: 2 }, { authors: [key.pub], "#t": ["a", "b"] });
	assert.deepEqual((await peer.next("COUNT", "c"))[2], { count: 5 });
	peer.send("COUNT", "none", { authors: [makeKey().pub] });
	assert.deepEqual((await peer.next("COUNT", "none"))[2], { count: 0 });
	peer.send("COUNT", "gated", { kinds: [1059], "#p": [key.pub] });
	assert.match((await peer.next("CLOSED", "gated"))[2], /^auth-required: /);
	await peer.auth(makeKey());
	peer.send("COUNT", "gated", { kinds: [24200], "#p": [key.pub] });
	assert.match((await peer.next("CLOSED", "gated"))[2], /^restricted: /);
	await peer.close();
});
