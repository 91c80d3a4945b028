/* The timeline's answer is bytes: whatever they are, reading and drawing them ends, takes memory in
 * proportion, and fails, if it fails, in decode(). */

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { createContext, runInContext } from "node:vm";
import { openBrowser } from "./support/chromium.mjs";
import { encodeTimeline, timesScene } from "./support/times.mjs";

const web = fileURLToPath(new URL("../../observer/web/", import.meta.url));
const { buildSync } = createRequire(new URL("../../observer/web/", import.meta.url))("esbuild");

function bundle(entry) {
	const { outputFiles } = buildSync({
		stdin: { contents: entry, resolveDir: `${web}/src`, loader: "ts" },
		bundle: true, write: false, format: "iife", target: "es2022",
		jsx: "automatic", jsxImportSource: "preact", logLevel: "error",
	});
	return outputFiles[0].text;
}

/* Numbers that are the same in every run. */
function randoms(seed) {
	return (below) => {
		seed = (seed + 0x6d2b79f5) | 0;
		let t = Math.imul(seed ^ (seed >>> 15), seed | 1);
		t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
		return ((t ^ (t >>> 14)) >>> 0) % below;
	};
}
const EXTREMES = [0, 1, 2, 255, 65_535, 65_536, 2 ** 31 - 1, 2 ** 31, 2 ** 32 - 2, 2 ** 32 - 1];

/* An answer with everything in it: values, open spans, waits, parts. */
function answer(width) {
	const scene = timesScene(1_800_000_000_000);
	scene.lanes[0].values = [0, 1, 2].map((kind) => ({ kind, at: (s) => 10 * s }));
	return encodeTimeline(scene, { request: 7, width });
}
/* @good with a few numbers or bytes that are others, and sometimes without its end. */
function mangled(good, random) {
	const bytes = Buffer.from(good);
	for (let times = 1 + random(4); times > 0; times--) {
		const at = random(bytes.length - 4);
		/* The head and what counts come first: most of what matters is there. */
		const place = random(2) ? at : random(80);
		if (random(2)) bytes.writeUInt32LE(EXTREMES[random(EXTREMES.length)], place);
		else bytes[place] ^= 1 + random(255);
	}
	return random(4) ? bytes : bytes.subarray(0, 4 + random(bytes.length - 4));
}

/* decode() in a realm of its own, whose typed arrays count what they take. */
function reader() {
	const realm = createContext({ TextDecoder });
	runInContext(
		`var taken = 0;
		for (const name of ["ArrayBuffer", "Uint8Array", "Uint16Array", "Uint32Array", "Float64Array"]) {
			const Base = globalThis[name];
			globalThis[name] = class extends Base {
				constructor(...args) {
					if (typeof args[0] === "number") taken += args[0] * (Base.BYTES_PER_ELEMENT ?? 1);
					if (taken > 2 ** 26) throw new Error("takes " + taken + " bytes");
					super(...args);
				}
			};
		}
		${bundle('import { decode } from "./timeline_data"; Object.assign(globalThis, { decode });')}
		/* All that is read later, too: by then nothing may fail. Null if it was refused. */
		function readAll(bytes) {
			let found;
			taken = 0;
			try {
				found = decode(bytes);
			} catch (error) {
				if (error.name === "RangeError") return null;
				throw error;
			}
			const { lanes, width } = found;
			let spans = 0;
			for (const { strip, list, values, lines, ...lane } of [...lanes.values()].map((it) => ({
				strip: it.strip, list: it.list, values: it.values, lines: it.lines, all: it.spans,
			}))) {
				spans += lane.all.length;
				for (const part of [list.calls, list.waits]) {
					part.find(0), part.after(0);
					for (let i = 1; i < part.count; i++) if (!(part.t[i - 1] <= part.t[i])) throw new Error("out of order");
				}
				strip.at(width / 2);
				if (strip.starts[strip.count] > 16384) throw new Error("a strip of " + strip.starts[strip.count]);
				if (lines.calls > 16 || lines.parts > 16 || lines.values > 7) throw new Error(JSON.stringify(lines));
				for (const { kind } of values) if (kind > 2) throw new Error("values of kind " + kind);
			}
			return { lanes: lanes.size, spans, taken };
		}`,
		realm,
	);
	return (bytes) => {
		realm.bytes = Uint8Array.from(bytes).buffer;
		const found = runInContext("readAll(bytes)", realm);
		if (found) assert.ok(found.taken <= 4096 + 64 * bytes.length, `${found.taken} bytes for ${bytes.length}`);
		return found;
	};
}

test("what is as it should be is read, and without its end it is refused, wherever that is", { timeout: 300_000 }, () => {
	const read = reader();
	const good = answer(100);
	const { lanes, spans } = read(good);
	assert.ok(lanes === 6 && spans > 40, `${lanes} lanes, ${spans} spans`);
	for (let length = 0; length < good.length; length++)
		assert.equal(read(good.subarray(0, length)), null, `cut after ${length} bytes`);
});

test("bytes that are others are refused or read, within bounds", { timeout: 300_000 }, () => {
	const read = reader();
	const good = answer(200);
	let [refused, taken] = [0, 0];
	for (let seed = 1; seed <= 4000; seed++) {
		try {
			if (read(mangled(good, randoms(seed)))) taken++;
			else refused++;
		} catch (error) {
			throw new Error(`seed ${seed}: ${error.message}`);
		}
	}
	assert.ok(refused > 500 && taken > 500, `${refused} refused, ${taken} read`);
});

test("bytes of chance are refused", { timeout: 300_000 }, () => {
	const read = reader();
	for (let seed = 1; seed <= 2000; seed++) {
		const random = randoms(seed);
		const bytes = Buffer.from(Array.from({ length: 4 + random(400) }, () => random(256)));
		if (random(2)) bytes.write("PTL2");
		read(bytes); /* a few may be an answer without lanes */
	}
});

test("counts that no answer holds take no memory", () => {
	const read = reader();
	const good = answer(1);
	/* The number of lanes, and behind them that of texts. */
	const head = good.subarray(0, 44);
	const words = (...numbers) => Buffer.concat(numbers.map((n) => Buffer.from(Uint32Array.of(n).buffer)));
	for (const most of [2 ** 32 - 1, 2 ** 31, 2 ** 28]) {
		assert.equal(read(Buffer.concat([head, words(most)])), null);
		assert.equal(read(Buffer.concat([head, words(0, most), Buffer.alloc(1000)])), null);
		for (const at of [3, 4, 5]) {
			const lane = [0, 1, 0, 0, 0, 0];
			lane[at] = most;
			assert.equal(read(Buffer.concat([head, words(1, ...lane), Buffer.alloc(1000)])), null);
		}
	}
	assert.deepEqual({ ...read(Buffer.concat([head, words(0, 0)])) }, { lanes: 0, spans: 0, taken: 0 });
});

test("whatever is read is drawn, and drawing ends", { timeout: 300_000 }, async () => {
	const browser = await openBrowser();
	try {
		const page = await browser.tab();
		await page.route("http://page.invalid/", (route) =>
			route.fulfill({ contentType: "text/html", body: "<!doctype html><i></i><canvas></canvas><canvas></canvas>" }));
		await page.goto("http://page.invalid/");
		await page.evaluate(bundle(`
			import { decode, layOut } from "./timeline_data";
			import { drawLanes, drawRuler, Inks } from "./timeline_paint";
			const [body, head] = document.querySelectorAll("canvas");
			const inks = new Inks(document.querySelector("i"));
			window.draw = (base64) => {
				let answer;
				try {
					answer = decode(Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0)).buffer);
				} catch (error) {
					if (error instanceof RangeError) return 0;
					throw error;
				}
				const blocks = [...answer.lanes.values()].map(({ id, lines }) => ({ id, lines, top: 0, height: 0 }));
				layOut(blocks);
				const from = 1_800_000_000_000 - 611_000;
				for (const view of [{ from, to: from + 611_000 }, { from: from + 300_000, to: from + 301_000 }]) {
					const scene = {
						view, ranges: [], now: answer.now, answer, overview: answer, blocks, lanes: blocks, scroll: 0, pinned: 0,
						hover: null, picked: null, like: "Edit", offline: new Set(), stalled: new Set(blocks.map(({ id }) => id)),
					};
					drawLanes(body, inks, scene, 600, 400);
					drawRuler(head, inks, scene, 600);
				}
				return 1;
			};`));
		const good = answer(150);
		assert.equal(await page.evaluate((base64) => window.draw(base64), good.toString("base64")), 1);
		let drawn = 0;
		for (let seed = 1; seed <= 300; seed++)
			drawn += await page.evaluate((base64) => window.draw(base64), mangled(good, randoms(seed)).toString("base64")).catch((error) => {
				throw new Error(`seed ${seed}: ${error.message}`);
			});
		assert.ok(drawn > 50 && drawn < 300, `${drawn} drawn`);
		assert.deepEqual(page.errors, []);
	} finally {
		await browser.close();
	}
});
