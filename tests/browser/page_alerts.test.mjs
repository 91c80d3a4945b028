import assert from "node:assert/strict";
import { becomes, drawn, holderOf, pageTests } from "./support/page.mjs";
import { card, lanes } from "./support/scene.mjs";

/* Notifications and sounds that can be counted, in a browser whose owner looks elsewhere. */
function fakes() {
	window.notes = [];
	window.asked = 0;
	window.tones = 0;
	window.answer = "granted";
	window.looking = false;
	window.Notification = class {
		static get permission() {
			return localStorage.getItem("fake.permission") ?? "default";
		}
		static requestPermission() {
			window.asked++;
			localStorage.setItem("fake.permission", window.answer);
			return Promise.resolve(window.answer);
		}
		constructor(title, options) {
			Object.assign(this, { title, ...options, closed: false });
			window.notes.push(this);
		}
		close() {
			this.closed = true;
		}
	};
	document.hasFocus = () => window.looking;
	const node = { connect: () => node, gain: { setValueAtTime() {}, linearRampToValueAtTime() {} } };
	window.AudioContext = class {
		currentTime = 0;
		resume = () => Promise.resolve();
		createGain = () => node;
		createOscillator = () => ({
			...node,
			frequency: {},
			start: () => {
				window.tones++;
			},
			stop() {},
		});
	};
}

const scene = pageTests({ init: fakes });
const of = lanes.gemini;
const asks = (id, over = {}) => card(of, id, { askedMs: Date.now(), ...over });
const notes = (page) =>
	page.evaluate(() =>
		window.notes.map(({ title, body, tag, closed }) => ({ title, body, tag, closed })),
	);
const tags = async (pages) =>
	(await Promise.all(pages.map(notes))).flat().map(({ tag }) => tag);
const noted = (page, tag) =>
	becomes(page, (it) => window.notes.some((note) => note.tag === it), tag);

/* Told apart from what it found only by a tab that has begun to watch: its dialog comes with that. */
const watching = (page) => page.locator("dialog.alerts").waitFor({ state: "attached" });

const dialog = (page) => page.getByRole("dialog", { name: "When an agent asks you" });
async function choose(page, ...names) {
	await page.getByRole("button", { name: "Alerts" }).click();
	for (const name of names) await dialog(page).getByLabel(name).click();
	await becomes(page, (count) => (localStorage.getItem("perch.alerts") ?? "").split(" ").filter(Boolean).length >= count, names.length);
	await page.keyboard.press("Escape");
	await dialog(page).waitFor({ state: "hidden" });
}
/* The profile outlives a test. */
async function fresh(open) {
	const page = await open();
	await page.waitForSelector(".fleet-row");
	await page.evaluate(() => localStorage.clear());
	await page.reload();
	await page.waitForSelector(".fleet-row");
	return page;
}

scene("the title counts what waits, on every screen", async ({ broker, open, openAgent }) => {
	const page = await fresh(open);
	await becomes(page, () => document.title === "(2) Fleet · perch");
	broker.publish({ cards: [asks("title-1")] });
	await becomes(page, () => document.title.startsWith("(3) "));
	broker.publish({ removedCards: ["title-1", "card-1", "card-2"] });
	await becomes(page, () => document.title === "Fleet · perch");
	const agent = await openAgent(lanes.claude);
	broker.publish({ cards: [asks("title-2")] });
	await becomes(agent, () => document.title === "(1) claude · api-server · perch");
});

scene(
	"nothing is asked before a click, and the choice is remembered",
	async ({ broker, open }) => {
		const page = await fresh(open);
		broker.publish({ cards: [asks("early")] });
		await becomes(page, () => document.title.startsWith("(3) "));
		await drawn(page);
		assert.equal(await page.evaluate(() => window.asked), 0);
		await choose(page, "A browser notification");
		assert.equal(await page.evaluate(() => window.asked), 1);
		await page.reload();
		await page.waitForSelector(".fleet-row");
		await page.getByRole("button", { name: "Alerts on" }).click();
		assert.ok(await dialog(page).getByLabel("A browser notification").isChecked());
		assert.ok(!(await dialog(page).getByLabel("A sound").isChecked()));
		await dialog(page).getByLabel("A browser notification").click();
		await page.keyboard.press("Escape");
		await page.getByRole("button", { name: "Alerts off" }).waitFor();
		assert.equal(await page.evaluate(() => window.asked), 0);
	},
);

scene("a browser that blocks them says so, and nothing is chosen", async ({ open }) => {
	const page = await fresh(open);
	await page.evaluate(() => {
		window.answer = "denied";
	});
	await page.getByRole("button", { name: "Alerts off" }).click();
	const box = dialog(page).getByLabel("A browser notification");
	await box.click();
	await dialog(page).getByText("This browser blocks notifications").waitFor();
	assert.ok(!(await box.isChecked()));
	await page.keyboard.press("Escape");
	await page.getByRole("button", { name: "Alerts off" }).waitFor();
});

scene(
	"what still waits is told once, what it found at the start or was answered at once is not",
	async ({ broker, open }) => {
		const page = await fresh(open);
		await choose(page, "A browser notification");
		/* Answered by a rule, answered in the editor, and one that is ours. */
		broker.publish(
			{ cards: [asks("ruled"), asks("edited", { actionable: false })] },
			{ cards: [asks("ruled", { state: "over", outcome: "allowed" })] },
		);
		broker.publish({ cards: [asks("ours", { text: "rm \u202e-rf" })] });
		await noted(page, "ours");
		assert.deepEqual(await notes(page), [
			{ title: "gemini · docs", body: "wants to run rm U+202E-rf", tag: "ours", closed: false },
		]);
		broker.publish({ cards: [asks("ours", { text: "again" }), asks("second")] });
		await noted(page, "second");
		assert.deepEqual(await tags([page]), ["ours", "second"]);
	},
);

scene(
	"answered anywhere, it is withdrawn",
	async ({ broker, open }) => {
		const page = await fresh(open);
		await choose(page, "A browser notification");
		broker.publish({ cards: [asks("one"), asks("two"), asks("three")] });
		for (const tag of ["one", "two", "three"]) await noted(page, tag);
		const closed = (tag) =>
			becomes(page, (it) => window.notes.find((note) => note.tag === it).closed, tag);
		broker.publish({ cards: [asks("one", { state: "sent", picked: "ok" })] });
		await closed("one");
		broker.publish({ removedCards: ["two"] });
		await closed("two");
		assert.equal((await notes(page)).find(({ tag }) => tag === "three").closed, false);
		/* A click on it leads to its card. */
		await page.evaluate(() => window.notes.find((note) => note.tag === "three").onclick());
		await becomes(page, () => location.hash.endsWith("/row-three"));
		await closed("three");
	},
);

scene("a reconnect and its snapshot ring nobody again", async ({ broker, open }) => {
	const page = await fresh(open);
	await choose(page, "A browser notification");
	broker.publish({ cards: [asks("before")] });
	await noted(page, "before");
	broker.kill();
	await page.getByText("broker gone").waitFor();
	broker.forget();
	broker.revive();
	await broker.until(() => broker.streams.size > 0);
	broker.publish({ cards: [asks("after")] });
	await noted(page, "after");
	assert.deepEqual(await tags([page]), ["before", "after"]);
});

scene("with many tabs there is one of each", async ({ broker, open }) => {
	const first = await fresh(open);
	await choose(first, "A browser notification", "A sound");
	const pages = [first];
	for (let i = 0; i < 2; i++) {
		const page = await open();
		await page.waitForSelector(".fleet-row");
		await page.getByRole("button", { name: "Alerts on" }).waitFor();
		await watching(page);
		await page.keyboard.press("u"); /* touched: it may make a sound too */
		pages.push(page);
	}
	await holderOf(pages, "perch-sound");
	const tones = async () =>
		(await Promise.all(pages.map((page) => page.evaluate(() => window.tones)))).reduce((a, b) => a + b);
	const sounded = async (count) => {
		while ((await tones()) < count) await drawn(pages[0]);
		assert.equal(await tones(), count);
	};
	const before = await tones();
	broker.publish({ cards: [asks("many-1")] });
	const all = async (count) => {
		for (;;) {
			const found = await tags(pages);
			if (found.length >= count) return found;
			await drawn(pages[0]);
		}
	};
	assert.deepEqual(await all(1), ["many-1"]);
	await sounded(before + 2);
	/* The tab that tells is closed: another does from then on. */
	const streams = broker.requests.filter((it) => it.includes("/api/stream")).length;
	const teller = (await Promise.all(pages.map(notes))).findIndex(({ length }) => length);
	await pages[teller].close();
	pages.splice(teller, 1);
	await broker.until(() => broker.requests.filter((it) => it.includes("/api/stream")).length > streams);
	await holderOf(pages, "perch-sound");
	const then = await tones();
	broker.publish({ cards: [asks("many-2")] });
	assert.deepEqual(await all(1), ["many-2"]);
	await sounded(then + 2);
});

scene("a sound is made once, by choice", async ({ broker, open }) => {
	const page = await fresh(open);
	broker.publish({ cards: [asks("silent")] });
	/* Else it might come to a tab that watches already. */
	await becomes(page, () => document.title.startsWith("(3) "));
	await choose(page, "A sound");
	/* Heard when it is chosen, two tones each time. */
	assert.equal(await page.evaluate(() => window.tones), 2);
	assert.equal(await page.evaluate(() => window.asked), 0);
	await holderOf([page], "perch-sound");
	broker.publish({ cards: [asks("loud")] });
	await becomes(page, () => window.tones === 4);
	assert.deepEqual(await notes(page), []);
});

scene("who has a tab before them is not told", async ({ broker, open }) => {
	const page = await fresh(open);
	const other = await open();
	await other.waitForSelector(".fleet-row");
	await choose(page, "A browser notification");
	const look = (at, looking) =>
		at.evaluate((it) => {
			window.looking = it;
			dispatchEvent(new Event(it ? "focus" : "blur"));
		}, looking);
	const held = (count) =>
		becomes(
			page,
			async (it) =>
				(await navigator.locks.query()).held.filter(({ name }) => name === "perch-looks").length === it,
			count,
		);
	await other.getByRole("button", { name: "Alerts on" }).waitFor();
	await watching(other);
	await look(other, true);
	await held(1);
	broker.publish({ cards: [asks("seen")] });
	await becomes(page, () => document.title.startsWith("(3) "));
	/* Behind the page's own timer and its question who looks. */
	await page.evaluate(async () => {
		await new Promise((done) => setTimeout(done, 450));
		await navigator.locks.query();
		await navigator.locks.query();
	});
	assert.deepEqual(await tags([page, other]), []);
	await look(other, false);
	await held(0);
	broker.publish({ cards: [asks("unseen")] });
	await noted(page, "unseen");
	assert.deepEqual(await tags([page, other]), ["unseen"]);
});
