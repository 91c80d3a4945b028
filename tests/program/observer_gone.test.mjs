// Since when the relay is gone, as the stream says it and a snapshot: PROTOCOL.md, "Message".
import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { WebSocketServer } from "ws";
import { makeHome, startObserver } from "./support/observer.mjs";

/** A relay that goes and comes back, and keeps its port meanwhile. */
async function startFleeting() {
	let there = true;
	const server = new WebSocketServer({ host: "127.0.0.1", port: 0, verifyClient: () => there });
	await once(server, "listening");
	server.on("connection", (socket) => {
		socket.on("message", (data) => {
			const [type, id] = JSON.parse(String(data));
			if (type === "REQ")
				socket.send(JSON.stringify(["EOSE", id]));
		});
	});
	return {
		url: `ws://127.0.0.1:${server.address().port}`,
		leave() {
			there = false;
			for (const socket of server.clients)
				socket.terminate();
		},
		comeBack() {
			there = true;
		},
		close: () => new Promise((resolve) => {
			for (const socket of server.clients)
				socket.terminate();
			server.close(resolve);
		}),
	};
}

test("sinceMs of the relay is when it went, for as long as it is gone", async () => {
	const relay = await startFleeting(), home = makeHome();
	const observer = await startObserver(relay.url, home);
	const page = await observer.page();
	const states = () => page.messages.flatMap(({ health }) => (health ? [health.relay] : []));
	await page.until(({ health }) => health?.relay.state === "ready");
	assert.equal("sinceMs" in states().at(-1), false);

	const before = Date.now(), seen = states().length;
	relay.leave();
	// It tries again, more than once: what it says of that changes, since when it is gone does not.
	await page.until(() => new Set(states().slice(seen).map(({ retryAtMs }) => retryAtMs).filter(Boolean)).size > 1);
	const gone = states().slice(seen).filter(({ state }) => state !== "ready");
	assert.equal(new Set(gone.map(({ sinceMs }) => sinceMs)).size, 1, JSON.stringify(gone));
	const since = gone[0].sinceMs;
	assert.ok(since >= before && since <= Date.now(), `${since} is not in ${before}–${Date.now()}`);
	assert.ok(gone.every(({ retryAtMs }) => !retryAtMs || retryAtMs >= since));
	// A page that opens now is told the same, by either way.
	const late = await observer.page();
	assert.equal((await late.until(({ snapshot, health }) => snapshot && health)).relay.sinceMs, since);
	late.close();
	assert.equal((await observer.get("/api/fleet")).json().health.relay.sinceMs, since);

	const then = states().length;
	relay.comeBack();
	await page.until(() => states().slice(then).some(({ state }) => state === "ready"));
	assert.equal("sinceMs" in states().findLast(({ state }) => state === "ready"), false);
	// It goes once more: that is another time.
	const again = Date.now(), now = states().length;
	relay.leave();
	await page.until(() => states().slice(now).some(({ state }) => state !== "ready"));
	assert.ok(states().slice(now).find(({ state }) => state !== "ready").sinceMs >= again);
	page.close();
	await observer.end();
	await relay.close();
	home.remove();
});

test("of a relay that was never there it is when the observer began to look", async () => {
	const relay = await startFleeting(), home = makeHome(), before = Date.now();
	relay.leave();
	const observer = await startObserver(relay.url, home);
	const page = await observer.page();
	const { sinceMs } = await page.until(({ health }) => health?.relay.state !== "ready" && health?.relay.retryAtMs && health.relay);
	assert.ok(sinceMs >= before && sinceMs <= Date.now(), String(sinceMs));
	page.close();
	await observer.end();
	await relay.close();
	home.remove();
});
