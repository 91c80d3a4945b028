// The page in a real browser by HTTP/2 over TLS, as a phone loads it: live, decided on, one stream for all tabs.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { startRelay } from "../program/support/perch.mjs";
import { Harness, ask, channelId, makeHome, startObserver } from "../program/support/observer.mjs";
import { until } from "../program/support/up.mjs";
import { openBrowser } from "./support/chromium.mjs";

let relay, home, observer, browser;

before(async () => {
	relay = await startRelay();
	home = makeHome();
	observer = await startObserver(relay.url, home, ["--tls", "127.0.0.1:0"]);
	await observer.connected();
	/* Nobody vouches for the certificate: who looks at a phone goes on past the warning. */
	browser = await openBrowser({ ignoreHTTPSErrors: true });
});

after(async () => {
	await browser.close();
	await observer.end();
	await relay.stop();
	home.remove();
});

test("the page loads by HTTP/2, follows live, and a card is answered in it", { timeout: 300_000 }, async () => {
	const channel = channelId();
	const agent = await Harness.open(relay.url, home.owner);
	await agent.send(agent.started_event(channel, "phoned"));
	const page = await browser.tab(`${observer.tlsUrl}#${observer.token}`);
	await page.locator(".fleet-row", { hasText: "phoned" }).waitFor();
	const protocols = await page.evaluate(() => [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
		.map(({ name, nextHopProtocol }) => [new URL(name).pathname, nextHopProtocol]));
	assert.ok(protocols.length >= 3, JSON.stringify(protocols));
	for (const [path, protocol] of protocols)
		assert.equal(protocol, "h2", path);
	assert.ok(await page.evaluate(() => isSecureContext));
	await agent.send(agent.event("turn_started", { promptId: "p" }, { channel, turn: "t1" }));
	await agent.send(agent.event("acp_read", ask("make phone"), { channel, turn: "t1", authorization: { requestNonce: "phone", actionable: true } }));
	await page.locator(".card", { hasText: "make phone" }).waitFor();
	await page.keyboard.press("a");
	const decision = await agent.control("permission_decision");
	assert.equal(decision.optionId, "ok");
	await agent.answer(decision, "sent");
	await agent.send(agent.event("acp_write", { jsonrpc: "2.0", id: 7, result: { outcome: { outcome: "selected", optionId: "ok" } } },
		{ channel, turn: "t1", authorization: { requestNonce: "phone", actionable: false, reason: "applied" } }));
	await page.locator(".card").waitFor({ state: "detached" });
	assert.deepEqual(page.violations, []);
	assert.deepEqual(page.errors, []);
	await page.close();
	await agent.close();
});

test("many tabs share one stream, and another takes over when the first closes", { timeout: 300_000 }, async () => {
	const channel = channelId();
	const agent = await Harness.open(relay.url, home.owner);
	await agent.send(agent.started_event(channel, "shared"));
	/* All that were begun, and those that go on. */
	const streams = [], going = new Set();
	browser.context.on("request", (request) => {
		if (new URL(request.url()).pathname === "/api/stream")
			streams.push(request), going.add(request);
	});
	for (const end of ["requestfinished", "requestfailed"])
		browser.context.on(end, (request) => going.delete(request));
	/* A tab that is slow may lose its turn to another: then one of them ends. */
	const oneGoes = () => until(() => going.size === 1, "one stream");
	/* One by one, each known to the one before; more than a browser opens HTTP/1.1 connections. */
	const tabs = [];
	for (let i = 0; i < 8; i++) {
		const tab = await browser.tab(i ? observer.tlsUrl : `${observer.tlsUrl}#${observer.token}`);
		await tab.locator(".fleet-row", { hasText: "shared" }).waitFor();
		tabs.push(tab);
	}
	await oneGoes();
	const other = channelId();
	await agent.send(agent.event("session_resolved", { sessionId: "s2", isNew: true, channelName: "news-for-all" }, { channel: other }));
	for (const tab of tabs)
		await tab.locator(".fleet-row", { hasText: "news-for-all" }).waitFor();
	await oneGoes();
	const before = streams.length, [leading] = going, at = tabs.findIndex((tab) => leading.frame().page() === tab);
	await tabs.splice(at, 1)[0].close();
	going.delete(leading); /* of a tab that is gone nothing is told */
	const third = channelId();
	await agent.send(agent.event("session_resolved", { sessionId: "s3", isNew: true, channelName: "after-the-first" }, { channel: third }));
	for (const tab of tabs)
		await tab.locator(".fleet-row", { hasText: "after-the-first" }).waitFor();
	await oneGoes();
	assert.ok(streams.length > before);
	assert.match(streams.at(-1).url(), /\?cursor=/);
	for (const tab of tabs)
		await tab.close();
	await agent.close();
});
