/* A replay file: what `perch export --format html` writes, opened without a broker or a network. */

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { pathToFileURL } from "node:url";
import { channelId, chunk, Harness, makeHome, run, startObserver } from "../program/support/observer.mjs";
import { startRelay } from "../program/support/perch.mjs";
import { openBrowser } from "./support/chromium.mjs";
import { becomes, hasText } from "./support/page.mjs";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const EVIL = "</script><script>alert(1)</script><!-- <script> \u2028 \u2029 \u202e <img src=x onerror=alert(2)>";

let browser, home, folder, file, lane, other;

const tool = (id, title, status, text) => ({
	jsonrpc: "2.0", method: "session/update",
	params: { sessionId: "s1", update: {
		sessionUpdate: status === "in_progress" ? "tool_call" : "tool_call_update", toolCallId: id, title, kind: "execute", status,
		rawInput: { command: title },
		...(text ? { content: [{ type: "content", content: { type: "text", text } }] } : {}),
	} },
});

async function record() {
	const relay = await startRelay(), channel = channelId(), second = channelId();
	home = makeHome();
	const observer = await startObserver(relay.url, home);
	const page = await observer.page();
	const harness = await Harness.open(relay.url, home.owner);
	const say = (kind, payload, more) => harness.send(harness.event(kind, payload, { channel, turn: "t1", ...more }));
	await harness.send(harness.started_event(channel));
	await say("turn_started", { promptId: "p", source: "owner", text: "Try the replay" });
	await say("acp_read", chunk(`A message of the replay. ${EVIL}`));
	await say("acp_read", tool("c1", "make test", "in_progress"));
	await say("acp_read", tool("c1", "make test", "completed", `all good ${EVIL}`));
	await say("turn_completed", { stopReason: "end_turn" });
	await say("note", { text: "in another channel" }, { channel: second, turn: null });
	await page.row(({ text }) => text === "in another channel");
	page.close();
	await harness.close();
	await observer.end();
	await relay.stop();
	lane = `${harness.id}/${channel}`;
	other = second;
}

before(async () => {
	browser = await openBrowser();
	folder = mkdtempSync(join(tmpdir(), "perch-replay-"));
	file = join(folder, "replay.html");
	await record();
	const { code, stdout, stderr } = await run(home, "export", "--format", "html");
	assert.equal(code, 0, stderr);
	writeFileSync(file, stdout);
});
after(async () => {
	await browser?.close();
	home?.remove();
	rmSync(folder, { recursive: true, force: true });
});

/* A tab that counts what it asks the outside for. */
async function openReplay(hash = "") {
	const page = await browser.tab();
	page.asked = [];
	page.on("request", (request) => {
		if (request.url().split("#")[0] !== pathToFileURL(file).href) page.asked.push(request.url());
	});
	await page.goto(`${pathToFileURL(file)}${hash}`);
	return page;
}
async function closeClean(page) {
	assert.deepEqual([page.asked, page.violations, page.errors, page.dialogs], [[], [], [], []]);
	await page.close();
}

test("fleet, transcript, timeline, report and search are shown from the file alone", { timeout: 300_000 }, async () => {
	const page = await openReplay();
	await page.waitForSelector(".fleet-row");
	await hasText(page, ".fleet-row", "api-server");
	await hasText(page, ".health", "Replay");
	assert.equal(await page.locator(".fleet-row").count(), 2);

	await page.locator(".fleet-row").filter({ hasText: "api-server" }).click();
	await hasText(page, ".entry", "A message of the replay.");
	await hasText(page, ".entry", "make test");
	await hasText(page, ".entry", "</script><script>alert(1)</script>");
	assert.equal(await page.locator(".transcript img, .transcript script").count(), 0);

	await page.getByRole("link", { name: "Timeline", exact: true }).click();
	await page.waitForSelector(".timeline canvas");
	await page.keyboard.press("Home");
	await page.getByRole("button", { name: "As table" }).click();
	await hasText(page, "main table", "make test");

	await page.getByRole("link", { name: "Report", exact: true }).click();
	await page.waitForSelector(".report tbody tr");
	await hasText(page, ".report tbody th", "make test");
	for (const key of ["2", "3", "4"]) {
		await page.keyboard.press(key);
		await becomes(page, () => document.querySelector('.report-table[aria-busy="false"] tbody tr'));
	}

	await page.keyboard.press("/");
	await page.getByRole("searchbox", { name: "Search everything" }).fill("message of");
	await hasText(page, ".hit mark", "message");
	await page.keyboard.press("ArrowDown");
	await page.keyboard.press("Enter");
	await hasText(page, ".entry", "A message of the replay.");
	await closeClean(page);
});

test("of a part of its time it says that it has no report, and why", { timeout: 300_000 }, async () => {
	const page = await openReplay("#/timeline");
	await page.waitForSelector(".lanes canvas", { state: "attached" });
	await becomes(page, () => window.__perch?.timeline?.spans().length > 0);
	const { x, y, width } = await page.locator(".ruler canvas").boundingBox();
	await page.mouse.move(x + width * 0.4, y + 38);
	await page.mouse.down();
	await page.mouse.move(x + width * 0.5, y + 38);
	await page.mouse.move(x + width * 0.6, y + 38);
	await page.mouse.up();
	const why = /No report of it: a replay has the report of all of its time and agents; one of a part is in a replay that was exported with --from and --to, or --agent\./;
	await hasText(page, ".strip", why);
	assert.equal(await page.locator(".strip a, .strip table").count(), 0);
	await page.keyboard.press("Escape");
	await page.waitForSelector(".strip", { state: "detached" });

	await page.getByRole("link", { name: "Report", exact: true }).click();
	await page.waitForSelector(".report tbody tr");
	await page.getByRole("combobox", { name: "Agents" }).selectOption({ index: 1 });
	await hasText(page, ".report [role=alert]", /No report: a replay has the report of all of its time and agents/);
	/* Nor does one of something else stand there. */
	assert.equal(await page.locator(".report tbody tr, .went").count(), 0);
	await page.getByRole("combobox", { name: "Agents" }).selectOption({ index: 0 });
	await page.waitForSelector(".report tbody tr");
	assert.equal(await page.locator(".report [role=alert]").count(), 0);
	await closeClean(page);
});

test("it is marked as a replay, and there is nothing to control", { timeout: 300_000 }, async () => {
	const page = await openReplay(`#/lane/${lane}`);
	await hasText(page, ".entry", "A message of the replay.");
	await hasText(page, ".health", "nothing can be controlled");
	assert.equal(await page.locator("textarea, .composer, .tray .card").count(), 0);
	await page.keyboard.press("Escape");
	await page.keyboard.press("Escape");
	await page.keyboard.press("a");
	assert.equal(await page.locator(".alerts, [data-alerts]").count(), 0);
	await page.emulateMedia({ reducedMotion: "reduce" });
	await page.evaluate(axe);
	const { violations } = await page.evaluate(() => window.axe.run());
	assert.deepEqual(violations.map(({ id, nodes }) => [id, nodes.map(({ html }) => html)]), []);
	await closeClean(page);
});

test("the file keeps the page's policy, and its data ends nothing", () => {
	const html = readFileSync(file, "utf8");
	assert.match(html, /default-src 'none'; script-src 'sha256-[^']+'; style-src 'sha256-[^']+'/);
	assert.equal(html.match(/<script/g).length, 2);
	assert.equal(html.match(/<\/script/g).length, 2);
	assert.ok(!/[\u2028\u2029]/.test(html.match(/id="perch-replay">([^<]*)</)[1]));
	assert.ok(!/https?:\/\/(?!replay|www\.w3\.org)[a-z]/.test(html.match(/<style>([^<]*)</)[1]));
	const data = JSON.parse(html.match(/id="perch-replay">([^<]*)</)[1]);
	assert.ok(JSON.stringify(data.rows).includes("</script><script>alert(1)"));
});

test("range and agent are chosen as for the other formats, and what is empty says so", async () => {
	const one = await run(home, "export", "--format", "html", "--channel", other);
	const data = JSON.parse(one.stdout.match(/id="perch-replay">([^<]*)</)[1]);
	assert.deepEqual(Object.keys(data.rows).map((id) => id.split("/")[1]), [other]);
	assert.ok(!one.stdout.includes("A message of the replay."));
	const none = await run(home, "export", "--format", "html", "--to", "1h");
	assert.deepEqual([none.code, none.stdout], [1, ""]);
	assert.match(none.stderr, /the archive has nothing of that time/);
});
