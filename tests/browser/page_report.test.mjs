import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { becomes, chord, comesTo, drawn, hasText, pageTests, tooSmall, width as pageWidth } from "./support/page.mjs";
import { reportOf } from "./support/times.mjs";
import { lanes } from "./support/scene.mjs";

const scene = pageTests();
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

const asked = (broker) => broker.requests.filter((line) => line.includes("/api/report"));
/** The whole scene as a fixed range, so that nothing is asked for again and again. */
const all = ({ times }) => `from=${times.start}&to=${times.now + 1}`;
async function openReport({ broker, open }, query = all(broker)) {
	const page = await open(`/report?${query}`);
	/* Names come with the stream, whose first word may be later than the report. */
	await page.waitForSelector(".tray");
	await page.waitForSelector(".report tbody tr");
	return page;
}
const row = (page, name) => page.locator(".report tbody tr").filter({ has: page.locator("th", { hasText: name }) });
const names = (page) => page.locator(".report tbody th").allTextContents();
const query = (page) => page.evaluate(() => new URLSearchParams(location.hash.split("?")[1] ?? ""));
const param = (page, name) => page.evaluate((it) => new URLSearchParams(location.hash.split("?")[1] ?? "").get(it), name);
/** Whatever the page puts in the clipboard. */
const clipboard = (page) =>
	page.evaluate(() => {
		window.copied = [];
		Object.defineProperty(navigator, "clipboard", {
			value: { writeText: async (text) => { window.copied.push(text); } },
		});
	});

scene("the report is one of the screens: its link, its key, its title, and back again", async ({ open }) => {
	const page = await open();
	await page.waitForSelector(".fleet-row");
	await page.getByRole("link", { name: "Report" }).click();
	await page.waitForSelector(".report tbody tr");
	assert.match(await page.title(), /Report · perch$/);
	assert.equal(await page.locator('.screens [aria-current="page"]').textContent(), "Report");
	await chord(page, "g", "f");
	await page.waitForSelector(".fleet-row");
	await chord(page, "g", "r");
	await page.waitForSelector(".report tbody tr");
	await page.goBack();
	await page.waitForSelector(".fleet-row");
});

scene("the figures are those of the broker: totals, lanes, rows and their sum", async (tools) => {
	const page = await openReport(tools);
	const said = reportOf(tools.broker.times, { to: tools.broker.times.now + 1 });
	const whole = Object.values(said.total).reduce((a, b) => a + b);
	const share = (ms) => `${((100 * ms) / whole).toFixed(1)} %`;
	const dds = await page.locator(".went dl dd:last-child").allTextContents();
	assert.deepEqual(dds, ["model", "tool", "you", "idle"].map((kind) => share(said.total[kind])));
	const bars = await page.locator(".went-agents li").allTextContents();
	assert.deepEqual(bars.length, said.lanes.length);
	assert.match(bars[0], /claude.*api-server/);
	const cells = await row(page, "terraform plan").locator("td").allTextContents();
	assert.deepEqual(cells, ["9", "4:30", "4:30", share(270_000), "30.0 s", "30.0 s", "30.0 s", "30.0 s"]);
	/* A wait for the owner is his time, not the tool's. */
	assert.deepEqual((await row(page, "make test").locator("td").allTextContents()).slice(0, 3), ["2", "1:12", "0:28"]);
	assert.match(await page.locator("tfoot").textContent(), /ran side by side/);
	assert.ok(await row(page, "terraform plan").locator("code").count());
});

scene("the parts as they are shown add up to the whole as it is shown", async (tools) => {
	const { broker } = tools;
	const page = await openReport(tools);
	for (const [model, tool, you, idle, said] of [
		[151_900, 30_900, 31_400, 900, ["2:32", "0:31", "0:31", "0:01", "3:35"]],
		[151_900, 0, 61_900, 40, ["2:32", "0.0 s", "1:01", "40 ms", "3:33"]],
		[1_960, 1_960, 1_140, 2_140, ["2.0 s", "2.0 s", "1.1 s", "2.1 s", "7.2 s"]],
		[3_599_999, 3_599_999, 2, 0, ["1:00:00", "1:00:00", "2 ms", "0.0 s", "2:00:00"]],
	]) {
		broker.report = (query) => ({ ...reportOf(broker.times, query), total: { model, tool, you, idle } });
		await page.reload();
		await page.waitForSelector(".report tbody tr");
		const parts = await page.locator(".went dl dd:nth-of-type(1)").allTextContents();
		const all = await page.locator(".went > .name").first().textContent();
		assert.deepEqual([...parts, all.replace("All, ", "")], said);
		const label = await page.locator(".went .total").getAttribute("aria-label");
		assert.ok(label.startsWith(`Model ${said[0]}, `), label);
	}
});

scene("keys 1 to 5 are the views, and each has the columns it needs", async (tools) => {
	const { broker } = tools;
	const page = await openReport(tools);
	await page.keyboard.press("2");
	await hasText(page, ".report tbody th", "claude api-server");
	assert.equal(await param(page, "view"), "top-down");
	await page.keyboard.press("3");
	await page.waitForSelector('.report-table[aria-busy="false"] .twist[aria-expanded="false"]');
	assert.ok(!(await page.locator("thead").textContent()).includes("p95"));
	await page.keyboard.press("4");
	await page.waitForSelector(".histogram");
	assert.match(await page.locator("thead").textContent(), /total.*min.*avg.*max.*σ/);
	await page.keyboard.press("5");
	await page.waitForSelector(".flame-graph");
	await page.keyboard.press("1");
	await page.waitForSelector("tfoot");
	assert.equal(await param(page, "view"), null);
	/* A digit chose no option of the card that waits. */
	assert.deepEqual(broker.posts, []);
	await page.getByRole("tab", { name: "Flat" }).focus();
	await page.keyboard.press("ArrowLeft");
	await page.waitForSelector(".flame-graph");
	await page.keyboard.press("ArrowLeft");
	await page.waitForSelector(".histogram");
	assert.equal(await page.evaluate(() => document.activeElement.textContent), "Live");
});

scene("a click on a column sorts by it, another turns it round, and the address keeps it", async (tools) => {
	const page = await openReport(tools);
	const count = page.getByRole("button", { name: "count" });
	const sorted = (order) => page.waitForSelector(`thead th[aria-sort="${order}"] >> text=count`);
	const counts = async () => (await page.locator(".report tbody tr td:nth-child(2)").allTextContents()).map(Number);
	await count.click();
	await sorted("descending");
	assert.deepEqual(await counts(), (await counts()).toSorted((a, b) => b - a));
	await count.click();
	await sorted("ascending");
	assert.deepEqual(await counts(), (await counts()).toSorted((a, b) => a - b));
	assert.equal(await param(page, "sort"), "-count");
	await page.reload();
	await sorted("ascending");
	await page.getByRole("button", { name: "Name" }).click();
	await page.waitForSelector('thead th[aria-sort="ascending"] >> text=Name');
	const list = await names(page);
	assert.deepEqual(list, list.toSorted((a, b) => (a < b ? -1 : 1)));
});

scene("the filter finds rows of any depth, with what they are in", async (tools) => {
	const page = await openReport(tools);
	await page.getByRole("searchbox", { name: "Filter rows" }).fill("vite");
	await becomes(page, () => document.querySelectorAll(".report tbody tr").length === 3);
	assert.deepEqual((await names(page)).toSorted(), ["vite build", "vitest", "vitest run"]);
	assert.equal(await param(page, "q"), "vite");
	await page.keyboard.press("Escape");
	await page.keyboard.press("2");
	await hasText(page, ".report tbody th", "codex web");
	assert.deepEqual(new Set(await names(page)), new Set(["codex", "codex web", "vite build", "vitest", "vitest run"]));
	await page.getByRole("searchbox", { name: "Filter rows" }).fill("nothing like it");
	await hasText(page, ".nothing", "No row has these words");
});

scene("trees open and close, by click and by key", async (tools) => {
	const page = await openReport(tools, `${all(tools.broker)}&view=bottom-up`);
	const top = await page.locator(".report tbody tr").count();
	await page.locator(".twist").first().click();
	await page.waitForSelector('.twist[aria-expanded="true"]');
	assert.equal(await page.locator(".report tbody tr").count(), top + 1);
	await page.locator(".report-table").focus();
	await page.keyboard.press("j");
	await page.waitForSelector("tr[data-current]:first-child");
	await page.keyboard.press("Enter");
	await becomes(page, (rows) => document.querySelectorAll(".report tbody tr").length === rows, top);
});

scene("C copies an aligned table, the button CSV with numbers as they came", async (tools) => {
	const page = await openReport(tools);
	await clipboard(page);
	await page.keyboard.press("c");
	await hasText(page, ".report-head [role=status]", "Table copied");
	const [text] = await page.evaluate(() => window.copied);
	const lines = text.split("\n");
	assert.match(lines[0], /^Name +count +inclusive +self +share +avg +p50 +p95 +max$/);
	assert.equal(lines.length, 1 + (await names(page)).length);
	/* Numbers end where their column does. */
	const end = lines[0].indexOf("inclusive") + "inclusive".length;
	for (const line of lines) assert.match(line.slice(0, end), /\S$/, line);
	await page.getByRole("button", { name: "CSV" }).click();
	await hasText(page, ".report-head [role=status]", "CSV copied");
	const csv = (await page.evaluate(() => window.copied))[1].split("\r\n");
	assert.equal(csv[0], "depth,name,count,inclusive,self,share,avg,p50,p95,max");
	assert.match(csv.find((line) => line.includes('"terraform plan"')), /^0,"terraform plan",9,270000,270000,0\.\d+,30000,30000,30000,30000$/);
});

scene("names of a peer stay text, in the table, the clipboard and a spreadsheet", async (tools) => {
	const name = '=1+1 <img src=x onerror="alert(1)">\u202e';
	tools.broker.times.lanes[0].spans[0].name = name;
	const page = await openReport(tools);
	await clipboard(page);
	assert.equal(await page.locator(".report img").count(), 0);
	await hasText(page, ".report .unseen", "U+202E");
	await page.getByRole("button", { name: "CSV" }).click();
	await hasText(page, ".report-head [role=status]", "CSV copied");
	const [csv] = await page.evaluate(() => window.copied);
	assert.ok(csv.includes(`"'=1+1 <img src=x onerror=""alert(1)"">U+202E"`));
});

scene("beside the range before: asked for too, and shown as it was", async (tools) => {
	const { broker } = tools;
	const { start, now } = broker.times;
	const page = await openReport(tools, `from=${start + 300_000}&to=${now + 1}`);
	await page.getByRole("button", { name: /Beside the 5 min/ }).click();
	await hasText(page, ".went .name", "Before");
	assert.ok(asked(broker).some((line) => line.includes(`from=${start + 300_000 - (now + 1 - start - 300_000)}&to=${start + 300_000}`)), asked(broker).join("\n"));
	assert.match(await page.locator(".went dd").nth(1).textContent(), /, was \d/);
	assert.match(await page.locator("thead").textContent(), /before/);
	assert.equal(await param(page, "beside"), "1");
});

scene("one question is in the air at most; the last one wins and what came late is dropped", async (tools) => {
	const { broker } = tools;
	const page = await openReport(tools);
	const before = asked(broker).length;
	let release;
	let most = 0;
	let inAir = 0;
	broker.hold = async (url) => {
		most = Math.max(most, ++inAir);
		if (url.searchParams.get("view") === "top-down") await new Promise((resolve) => { release = resolve; });
		inAir--;
	};
	await page.keyboard.press("2");
	await broker.until(() => release);
	await page.keyboard.press("3");
	await page.keyboard.press("4");
	release();
	await page.waitForSelector(".histogram");
	/* What was shown before may have been asked for once more. */
	const views = asked(broker).slice(before).map((line) => /view=([\w-]+)/.exec(line)[1]).filter((view) => view !== "flat");
	/* Bottom-up was never asked for: Live had come after it. */
	assert.ok(!views.includes("bottom-up"), views.join());
	assert.deepEqual(views.slice(0, 2), ["top-down", "live"]);
	assert.equal(most, 1);
	assert.equal(await page.getByRole("tab", { selected: true }).textContent(), "Live");
});

scene("what goes on is asked for again, only while somebody can see it", async (tools) => {
	const { broker } = tools;
	const page = await openReport(tools, "range=hour");
	const first = asked(broker).length;
	await broker.until(() => asked(broker).length > first + 1);
	/* Gone from the screen: no question follows. */
	await page.evaluate(() => {
		Object.defineProperty(document, "hidden", { configurable: true, get: () => true });
		document.dispatchEvent(new Event("visibilitychange"));
	});
	await drawn(page);
	const hidden = asked(broker).length;
	await chord(page, "g", "f");
	await page.waitForSelector(".fleet-row");
	assert.ok(asked(broker).length <= hidden + 1);
	assert.match(asked(broker)[0], /from=\d+$|from=\d+&/);
});

scene("the range and the agents are chosen, and the address says so", async (tools) => {
	const { broker } = tools;
	const page = await openReport(tools, "");
	assert.ok(await page.getByRole("button", { name: /Beside/ }).isDisabled());
	await page.getByLabel("Range").selectOption("today");
	await broker.until(() => asked(broker).some((line) => line.includes("from=")));
	assert.equal(await param(page, "range"), "today");
	/* The scene may be of yesterday by now. */
	await page.getByLabel("Range").selectOption("hour");
	await page.getByLabel("Agents").selectOption({ label: "codex" });
	await becomes(page, () => document.querySelectorAll(".went-agents li").length === 1);
	assert.equal(await param(page, "lanes"), lanes.codex.agent);
	assert.ok((await query(page)) !== null);
});

scene("an answer that does not come is a sentence, and asked for again", async (tools) => {
	const { broker } = tools;
	const page = await openReport(tools, "range=hour");
	broker.refuse = { status: 503, error: "the observer is starting" };
	await hasText(page, ".report .warning", "No report: the observer is starting.");
	broker.refuse = null;
	await page.locator(".report .warning").waitFor({ state: "detached" });
});

scene("axe finds nothing on the report, in both themes, wide and on a phone; the phone fits", async (tools) => {
	const page = await openReport(tools, `${all(tools.broker)}&view=top-down`);
	await page.evaluate(axe);
	for (const view of ["2", "4"])
		for (const [width, height] of [[1440, 900], [375, 667]])
			for (const colorScheme of ["dark", "light"]) {
				await page.keyboard.press(view);
				await page.waitForSelector('.report-table[aria-busy="false"]');
				await page.setViewportSize({ width, height });
				await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
				await drawn(page);
				const found = await page.evaluate(async () =>
					(await window.axe.run(document, { resultTypes: ["violations"] })).violations.map(
						({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map(({ html }) => html.slice(0, 160)).join(" | ")}`));
				assert.deepEqual(found, [], `${view} ${width} ${colorScheme}`);
			}
	await comesTo(page, pageWidth, 375);
	await comesTo(page, tooSmall, []);
});
