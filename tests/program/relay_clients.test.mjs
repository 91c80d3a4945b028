// Other people's clients doing their job against the relay: subscribe, publish, AUTH, EOSE, stored events, reconnecting.
// What the relay says to them is checked by other people's schemas.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Relay as ApplesauceRelay } from "applesauce-relay";
import { verifyEvent } from "nostr-tools/pure";
import { createRxForwardReq, createRxNostr, createRxOneshotReq } from "rx-nostr";
import WebSocket from "ws";
import { makeAgent, makeKey, now, open, sign, telemetry } from "./support/keys.mjs";
import { Relay, SimplePool } from "./support/nostr_tools.mjs";
import { Peer } from "./support/peer.mjs";
import { fetchAlone, portToKeep, startRelay, stopRelay } from "./support/perch.mjs";
import { assertMessage, information } from "./support/schemas.mjs";
import { TIMEOUT_MS } from "./support/timeout.mjs";

let relay, stores;
before(async () => {
	relay = await startRelay();
	const answer = await fetchAlone(relay.url.replace("ws:", "http:"), { headers: { accept: "application/nostr+json" } });
	stores = (await answer.json()).supported_nips.includes(9);
});
after(() => stopRelay(relay));

/** Like an emitter's once(): the first value, by a deadline that fails with what is missing. */
function within(promise, what) {
	let timer;
	const late = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error(`no ${what}`)), TIMEOUT_MS); });
	return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

const signer = (key) => async (template) => sign(key, { ...template, tags: [...template.tags, ...(key.auth ? [key.auth] : [])] });
const framesFor = (key) => ({ kinds: [24200], "#p": [key.pub], limit: 0 });
const topic = () => Math.random().toString(36).slice(2);

/** Waits until somebody is subscribed: an event of the topic is received by a reader. Of ephemeral kinds only: of a
 * stored one the relay does not say who received it. */
async function publishUntilHeard(key, url, make) {
	const peer = await Peer.as(url, key);
	const end = Date.now() + TIMEOUT_MS;
	for (let n = 0; Date.now() < end; n++) {
		const event = make(n);
		const ok = await peer.publish(event);
		assert.equal(ok[2], true, ok[3]);
		assert.match(ok[3], /^received by \d+ readers?$/);
		if (!/ 0 readers/.test(ok[3])) {
			await peer.close();
			return event;
		}
		await new Promise((resolve) => setTimeout(resolve, 50));
	}
	throw new Error("nobody ever listened");
}

test("the schemas would notice a wrong message", () => {
	const id = "0".repeat(64), event = { id, pubkey: id, created_at: 1, kind: 1, tags: [], content: "", sig: "0".repeat(128) };
	for (const wrong of [["OK", "x", true, ""], ["OK", id, true], ["OK", id, "true", ""], ["OK", "A".repeat(64), true, ""], ["OK", id, false, ""],
		["OK", id, false, "no prefix"], ["CLOSED", "a", "no prefix"], ["CLOSED", "a"], ["CLOSED", 1, "error: x"], ["EOSE"], ["EOSE", 1],
		["EVENT", "a", {}], ["EVENT", "a", { ...event, sig: id }], ["EVENT", "a", { ...event, extra: 1 }], ["NOTICE"], ["NOTICE", 1],
		["AUTH"], ["AUTH", 1], ["COUNT", "a"], ["COUNT", "a", {}], ["COUNT", "a", { count: "1" }], ["COUNT", "a", { count: -1 }], ["HELLO"]])
		assert.throws(() => assertMessage(wrong), undefined, JSON.stringify(wrong));
	for (const right of [["OK", id, true, ""], ["EVENT", "a", event], ["EOSE", "a"], ["NOTICE", "x"], ["AUTH", "x"], ["COUNT", "a", { count: 0 }]])
		assertMessage(right);
	assertMessage(["CLOSED", "a", "error: why"]);
});

test("the NIP-11 document is what its schema says", async () => {
	const response = await fetchAlone(relay.url.replace("ws:", "http:"), { headers: { accept: "application/nostr+json" } });
	const document = await response.json();
	assert.ok(information(document), JSON.stringify(information.errors));
});

test("nostr-tools Relay: publishes, stores, fetches, deletes", async (t) => {
	if (!stores) return t.skip("stores nothing");
	const key = makeKey();
	const client = new Relay(relay.url);
	const challenged = new Promise((resolve) => { client.onauth = (template) => { resolve(); return signer(key)(template); }; });
	await client.connect();
	await within(challenged, "challenge");
	await client.auth(signer(key));
	const tag = topic();
	const start = now();
	const notes = [1, 2, 3].map((n) => sign(key, { kind: 1, created_at: start - n, content: `note ${n}`, tags: [["t", tag]] }));
	for (const note of notes) await client.publish(note);
	const fetchAll = () => within(new Promise((resolve) => {
		const got = [];
		const sub = client.subscribe([{ kinds: [1], "#t": [tag] }], {
			onevent: (event) => got.push(event), oneose: () => { sub.close(); resolve(got); } });
	}), "EOSE");
	const got = await fetchAll();
	assert.deepEqual(got.map(({ id }) => id), notes.map(({ id }) => id));
	assert.ok(got.every(verifyEvent));
	await client.publish(sign(key, { kind: 5, tags: [["e", notes[1].id]] }));
	assert.deepEqual((await fetchAll()).map(({ id }) => id), [notes[0].id, notes[2].id]);
	assert.equal(await client.count([{ kinds: [1], "#t": [tag] }], {}), 2);
	await assert.rejects(client.publish({ ...notes[0], content: "changed" }), /invalid/);
	client.close();
});

test("nostr-tools SimplePool: one of two relays needs no other, and frames arrive opened", async () => {
	const owner = makeKey(), agent = makeAgent(owner);
	const pool = new SimplePool({ enablePing: true });
	const received = new Promise((resolve) => pool.subscribe([relay.url, "ws://127.0.0.1:9"], framesFor(owner),
		{ onevent: resolve, onauth: signer(owner) }));
	const frame = await publishUntilHeard(agent, relay.url, (n) => telemetry(agent, owner.pub, `{"seq":${n}}`));
	const event = await within(received, "frame");
	assert.equal(event.id, frame.id);
	assert.equal(open(owner, event), open(owner, frame));
	pool.close([relay.url]);
	pool.destroy?.();
});

test("nostr-tools SimplePool: publishes with AUTH on demand, queries and lists", async (t) => {
	if (!stores) return t.skip("stores nothing");
	const key = makeKey(), tag = topic();
	const pool = new SimplePool({ enablePing: true });
	pool.automaticallyAuth = () => signer(key);
	const note = sign(key, { kind: 30078, tags: [["d", tag], ["t", tag]], content: "settings" });
	await Promise.all(pool.publish([relay.url], note, { onauth: signer(key) }));
	assert.equal((await pool.get([relay.url], { kinds: [30078], authors: [key.pub] })).id, note.id);
	assert.deepEqual((await pool.querySync([relay.url], { "#t": [tag] })).map(({ id }) => id), [note.id]);
	pool.close([relay.url]);
	pool.destroy?.();
});

test("rx-nostr: AUTH by itself, a live request and a one-shot one", async () => {
	const kind = stores ? 1 : 20001;
	const key = makeKey(), tag = topic();
	const rx = createRxNostr({
		websocketCtor: WebSocket, skipFetchNip11: true, verifier: async (event) => verifyEvent(event),
		authenticator: { signer: { signEvent: signer(key), getPublicKey: async () => key.pub } } });
	rx.setDefaultRelays([relay.url]);
	const live = createRxForwardReq();
	const heard = new Promise((resolve) => rx.use(live).subscribe(({ event }) => resolve(event)));
	const heardOwn = new Promise((resolve) =>
		rx.createAllEventObservable().subscribe(({ event }) => event.content === "own" && resolve(event)));
	live.emit({ kinds: [kind, 20001], "#t": [tag], limit: 0 });
	const note = await publishUntilHeard(key, relay.url,
		(n) => sign(key, { kind: 20001, content: String(n), tags: [["t", tag]] }));
	assert.equal((await within(heard, "live event")).id, note.id);
	const answer = await within(new Promise((resolve) => {
		rx.send(sign(key, { kind, content: "own", tags: [["t", tag]] }),
			{ signer: { signEvent: async (event) => event, getPublicKey: async () => key.pub } })
			.subscribe((packet) => packet.ok && resolve(packet));
	}), "OK");
	assert.equal(answer.done, true);
	assert.equal((await within(heardOwn, "own event")).kind, kind);
	const stored = await within(new Promise((resolve) => {
		const got = [];
		rx.use(createRxOneshotReq({ filters: [{ kinds: [kind], "#t": [tag] }] }))
			.subscribe({ next: ({ event }) => got.push(event.content), complete: () => resolve(got) });
	}), "completion");
	assert.deepEqual(stored.filter((text) => text === "own"), stores ? ["own"] : []);
	rx.dispose();
});

test("applesauce-relay: AUTH, publish, request, count, and the NIP-11 limits", async () => {
	const kind = stores ? 1 : 20001;
	const key = makeKey(), tag = topic();
	const client = new ApplesauceRelay(relay.url, { WebSocket, keepAlive: 0, eventTimeout: TIMEOUT_MS, publishTimeout: TIMEOUT_MS });
	const challenge = new Promise((resolve) => client.challenge$.subscribe((value) => value && resolve()));
	const live = [];
	const subscription = client.subscription({ kinds: [kind], "#t": [tag] }).subscribe((value) => value.content && live.push(value));
	await within(challenge, "challenge");
	assert.equal((await client.authenticate({ signEvent: signer(key) })).ok, true);
	const start = now();
	const notes = [1, 2].map((n) => sign(key, { kind, content: String(n), created_at: start - n, tags: [["t", tag]] }));
	for (const note of notes) assert.equal((await client.publish(note)).ok, true);
	const got = await within(new Promise((resolve, reject) => {
		const events = [];
		client.request({ kinds: [kind], "#t": [tag] }).subscribe({
			next: (event) => events.push(event.id), complete: () => resolve(events), error: reject });
	}), "completion");
	assert.deepEqual(got, stores ? notes.map(({ id }) => id) : []);
	if (stores) {
		const { count } = await within(new Promise((resolve, reject) =>
			client.count({ kinds: [kind], "#t": [tag] }).subscribe({ next: resolve, error: reject })), "count");
		assert.equal(count, 2);
	}
	await within((async () => { while (live.length < 2) await new Promise(setImmediate); })(), "live events");
	assert.equal((await client.getLimitations()).max_subscriptions, 64);
	subscription.unsubscribe();
	client.close();
});

test("clients come back when the relay does, and hear live events again", async () => {
	const listen = ["--listen", `127.0.0.1:${await portToKeep()}`];
	let own = await startRelay(listen);
	const { url } = own;
	const key = makeKey(), tag = topic();
	const filter = { kinds: [20001], "#t": [tag] };
	const make = (n) => sign(key, { kind: 20001, content: String(n), tags: [["t", tag]], created_at: now() });
	const heard = { pool: [], rx: [], applesauce: [] };

	const pool = new SimplePool({ enablePing: true, enableReconnect: true });
	pool.subscribe([url], filter, { onevent: ({ id }) => heard.pool.push(id) });
	const rx = createRxNostr({
		websocketCtor: WebSocket, skipFetchNip11: true, verifier: async () => true,
		connectionStrategy: "lazy-keep", retry: { strategy: "linear", interval: 100, maxCount: TIMEOUT_MS / 100 } });
	rx.setDefaultRelays([url]);
	const req = createRxForwardReq();
	rx.use(req).subscribe(({ event }) => heard.rx.push(event.id));
	req.emit(filter);
	const reconnect = { count: TIMEOUT_MS / 100, delay: 100 };
	const sauce = new ApplesauceRelay(url, { WebSocket, keepAlive: 0, subscriptionReconnect: reconnect });
	const subscription = sauce.subscription(filter, { reconnect })
		.subscribe({ next: (value) => value.id && heard.applesauce.push(value.id), error: () => {} });

	const allHear = async () => {
		const peer = await Peer.as(url, key);
		const wanted = { pool: false, rx: false, applesauce: false };
		for (const end = Date.now() + TIMEOUT_MS; Object.values(wanted).includes(false) && Date.now() < end;) {
			const event = make(topic());
			assert.equal((await peer.publish(event))[2], true);
			await new Promise((resolve) => setTimeout(resolve, 50));
			for (const name of Object.keys(wanted)) wanted[name] ||= heard[name].includes(event.id);
		}
		assert.deepEqual(wanted, { pool: true, rx: true, applesauce: true });
		await peer.close();
	};
	await allHear();
	await own.stop("SIGKILL"); // a clean close tells applesauce not to come back
	own = await startRelay(listen);
	await allHear();
	subscription.unsubscribe();
	sauce.close();
	rx.dispose();
	pool.close([url]);
	pool.destroy?.();
	await stopRelay(own);
});
