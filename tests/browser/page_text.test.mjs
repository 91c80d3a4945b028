import assert from "node:assert/strict";
import { hasText, pageTests } from "./support/page.mjs";
import { card, lanes, row } from "./support/scene.mjs";

const scene = pageTests();

const HOSTILE = [
	"<script>alert(1)</script>",
	"<img src=x onerror=alert(2)>",
	"<svg/onload=alert(3)>",
	"<iframe srcdoc='<script>alert(4)</script>'></iframe>",
	'<a href="javascript:alert(5)">x</a>',
	"<style>*{display:none}</style>",
	"&lt;b&gt;bold&lt;/b&gt;",
	"{{constructor.constructor('alert(6)')()}}",
];
const NODES =
	"script:not([src]), img, iframe, object, embed, form.evil, style, [onerror], [onload], [srcdoc], [style*=evil]";

scene("HTML in any row stays text", async ({ broker, openAgent }) => {
	broker.rows.clear();
	const text = HOSTILE.join("\n\n");
	const types = [
		["prompt", { text }],
		["message", { text, role: "agent" }],
		["message", { text, role: "user" }],
		["thought", { text }],
		["plan", { entries: [{ text, status: "pending" }] }],
		[
			"tool",
			{
				verb: text,
				object: text,
				outcome: text,
				status: "failed",
				input: text,
				kind: "other",
				locations: [text, text],
				parts: [
					{ type: "output", text, bytes: 10 },
					{ type: "text", text },
					{ type: "link", uri: "javascript:alert(7)", name: text },
					{ type: "image", mime: text },
					{ type: "terminal", id: text },
					{
						type: "diff",
						path: text,
						added: 1,
						removed: 0,
						hunks: [
							{ old: 1, new: 1, lines: HOSTILE.map((line) => `+${line}`) },
						],
					},
				],
			},
		],
		["permission", { verb: text, text, state: "denied", by: "policy", reason: text }],
		["turn", { state: "failed", text }],
		["output", { text, stream: "stdout" }],
		["note", { text, level: "info", source: text }],
		["lifecycle", { text, level: "error", stderr: text }],
		["error", { text, detail: text }],
		["gap", { state: "gone", text, cause: text, events: 3 }],
		["raw", { kind: text, json: JSON.stringify(text) }],
	];
	types.forEach(([type, over], i) =>
		broker.putRow(row(lanes.claude, i + 1, type, over)),
	);
	broker.cards.set(
		"card-h",
		card(lanes.claude, "card-h", {
			text,
			verb: text,
			options: [{ id: "ok", name: text, kind: "allow_once" }],
			locations: [text],
		}),
	);
	broker.lanes.set(lanes.claude.id, {
		...lanes.claude,
		channelName: text,
		title: text,
		verb: text,
		object: text,
		outcome: text,
		aim: text,
		stalled: text,
		files: [{ path: text, added: 1, removed: 1 }],
	});
	broker.agents.set(lanes.claude.agent, {
		...broker.agents.get(lanes.claude.agent),
		name: text,
		host: text,
	});
	const page = await openAgent(lanes.claude, "row-1");
	for (let i = 1; i <= types.length; i++) {
		const entry = page.locator(`.entry[data-row=row-${i}][data-current]`);
		await entry.waitFor();
		const folded = entry.locator("details:not([open]) > summary");
		while ((await folded.count()) > 0) await folded.first().click();
		if (types[i - 1][0] !== "gap")
			await entry.getByText("onerror=alert").first().waitFor();
		assert.equal(await entry.locator(NODES).count(), 0, types[i - 1][0]);
		await page.locator(".transcript").focus();
		await page.keyboard.press("j");
	}
	await page.keyboard.press("b");
	await page.waitForSelector(".fleet-row");
	assert.equal(await page.locator(`body ${NODES}`).count(), 0);
});

scene(
	"only http, https and mailto are links, and each shows its host",
	async ({ broker, openAgent }) => {
		broker.rows.clear();
		broker.putRow(
			row(lanes.claude, 1, "message", {
				role: "agent",
				text: [
					"[a](javascript:alert(1)) [b](JaVaScRiPt:alert(2)) [c](data:text/html,<script>alert(3)</script>) [d](vbscript:x) [e](file:///etc/passwd) [f](/api/fleet)",
					"[good](https://evil.example/path) <https://plain.example> https://bare.example/x [mail](mailto:a@b.example)",
					"[https://bank.example](https://evil.example) ![pixel](https://track.example/1.png)",
				].join("\n\n"),
			}),
		);
		const page = await openAgent();
		await page.waitForSelector(".entry");
		assert.deepEqual(
			await page
				.locator(".prose a")
				.evaluateAll((links) =>
					links.map((a) => [a.getAttribute("href"), a.rel, a.innerText]),
				),
			[
				[
					"https://evil.example/path",
					"noopener noreferrer",
					"good (evil.example)",
				],
				[
					"https://plain.example/",
					"noopener noreferrer",
					"https://plain.example",
				],
				[
					"https://bare.example/x",
					"noopener noreferrer",
					"https://bare.example/x",
				],
				["mailto:a@b.example", "noopener noreferrer", "mail (a@b.example)"],
				[
					"https://evil.example/",
					"noopener noreferrer",
					"https://bank.example (evil.example)",
				],
				[
					"https://track.example/1.png",
					"noopener noreferrer",
					"image: pixel (track.example)",
				],
			],
		);
		assert.equal(await page.locator(".entry img").count(), 0);
	},
);

scene(
	"bidi and zero-width characters are marked where text is to be trusted",
	async ({ broker, openAgent }) => {
		broker.rows.clear();
		broker.putRow(
			row(lanes.claude, 1, "tool", {
				verb: "Ran",
				object: "rm \u202egnp.exe\u200b",
				status: "completed",
			}),
		);
		broker.putRow(
			row(lanes.claude, 2, "message", {
				role: "agent",
				text: "turn \u202eback, family 👩‍👩‍👧 stays",
			}),
		);
		const page = await openAgent();
		await page.waitForSelector(".entry");
		assert.deepEqual(await page.locator(".entry .unseen").allInnerTexts(), [
			"U+202E",
			"U+200B",
			"U+202E",
		]);
		await hasText(page, ".prose", "👩‍👩‍👧");
	},
);

scene(
	"terminal escapes become colours or nothing, and the lines stay lines",
	async ({ broker, openAgent }) => {
		broker.rows.clear();
		const text =
			"\x1b[31mred\x1b[0m \x1b[1;38;5;2mbold green\x1b[m\x1b]0;title\x07\x1b]8;;javascript:alert(1)\x1b\\link\x1b]8;;\x1b\\" +
			"\x1b[2J\x1b[H\x1bP1$r\x1b\\\x1b[?1049h after\n10%\r50%\r100% done\n" +
			"x".repeat(50_000);
		broker.putRow(row(lanes.claude, 1, "output", { text, stream: "stdout" }));
		const page = await openAgent();
		const terminal = page.locator(".entry .terminal");
		await terminal.waitFor();
		const shown = await terminal.innerText();
		const [first, second, third] = shown.split("\n");
		assert.equal(first, "red bold greenlink after");
		assert.equal(second, "100% done");
		assert.match(third, /^x{2000}… 48000 more characters$/);
		assert.equal(await terminal.locator(".sgr-red").innerText(), "red");
		assert.equal(
			await terminal.locator(".sgr-bold.sgr-green").innerText(),
			"bold green",
		);
		assert.equal(await terminal.locator("a").count(), 0);
		assert.ok(
			await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth),
		);
	},
);

scene(
	"deeply nested Markdown is shown, and the page goes on",
	async ({ broker, openAgent }) => {
		broker.rows.clear();
		broker.putRow(
			row(lanes.claude, 1, "message", {
				role: "agent",
				text: `${">".repeat(5000)} deep`,
			}),
		);
		broker.putRow(
			row(lanes.claude, 2, "message", {
				role: "agent",
				text: `${"[".repeat(20_000)}x`,
			}),
		);
		broker.putRow(
			row(lanes.claude, 3, "message", { role: "agent", text: "**still** here" }),
		);
		const page = await openAgent();
		await hasText(page, ".entry strong", "still");
	},
);

scene("a name that would turn the text around it is marked in fields and titles too", async ({
	broker,
	openAgent,
}) => {
	const page = await openAgent();
	broker.publish({
		agents: [{ ...broker.agents.get(lanes.claude.agent), name: "evil\u202etxt.exe" }],
	});
	await hasText(page, ".agent-head", "U+202E");
	const field = page.locator(".composer-box textarea");
	for (const name of ["placeholder", "aria-label"]) {
		const text = await field.getAttribute(name);
		assert.ok(text.includes("evilU+202Etxt.exe"), text);
		assert.ok(!text.includes("\u202e"));
	}
	assert.ok(!(await page.title()).includes("\u202e"));
});
