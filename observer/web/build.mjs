/* Bundles the page: node build.mjs FOLDER [FILE.c]. The folder gets "/" as index.html and the
 * assets under hashed names; the C file, if asked for, the table of observer/http/page.h. */

import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { Script } from "node:vm";
import { gzipSync } from "node:zlib";
import { buildSync } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
/* page.md, Rules: the first view fits in 60 KB gzip, all of it in 120. */
const FIRST_VIEW_MAX = 60 * 1024;
const ALL_MAX = 120 * 1024;

const [folder, cFile] = process.argv.slice(2);
if (!folder) {
	console.error("usage: node build.mjs FOLDER [FILE.c]");
	process.exit(2);
}

function bundle(entry, options) {
	return buildSync({
		entryPoints: [join(here, entry)],
		bundle: true,
		minify: true,
		write: false,
		metafile: true,
		outdir: "/",
		entryNames: "app-[hash]",
		chunkNames: "[name]-[hash]",
		target: "es2022",
		legalComments: "none",
		logLevel: "warning",
		...options,
	});
}

function hashed(name, bytes) {
	const hash = createHash("sha256").update(bytes).digest("hex").slice(0, 10);
	return name.replace(/\.(\w+)$/, `-${hash}.$1`);
}

const types = {
	html: "text/html; charset=utf-8",
	js: "text/javascript; charset=utf-8",
	css: "text/css; charset=utf-8",
	svg: "image/svg+xml",
};

/* Screens that are imported when they are asked for are files of their own. */
const script = bundle("src/main.tsx", {
	format: "esm",
	splitting: true,
	jsx: "automatic",
	jsxImportSource: "preact",
});
/* Newer than any target esbuild would know how to lower: it is left as it is written. */
const style = bundle("perch.css", { target: "esnext" });
const icon = readFileSync(join(here, "icon.svg"));

const output = Object.entries(script.metafile.outputs).map(([path, about]) => ({
	...about,
	name: basename(path),
}));
const app = output.find(({ entryPoint }) => entryPoint?.endsWith("src/main.tsx"));
/* What the browser must have before the first view. */
const firstView = new Set([app.name]);
for (const name of firstView)
	for (const { path, kind } of output.find((file) => file.name === name).imports)
		if (kind === "import-statement") firstView.add(basename(path));

const names = {
	"app.js": app.name,
	"app.css": basename(style.outputFiles[0].path),
	"icon.svg": hashed("icon.svg", icon),
};
let html = readFileSync(join(here, "index.html"), "utf8");
for (const [name, as] of Object.entries(names)) html = html.replace(`{{${name}}}`, `/${as}`);
const assets = [
	{ path: "/", bytes: Buffer.from(html), first: true },
	...script.outputFiles.map(({ path, contents }) => ({
		path: `/${basename(path)}`,
		bytes: Buffer.from(contents),
		first: firstView.has(basename(path)),
	})),
	{
		path: `/${names["app.css"]}`,
		bytes: Buffer.from(style.outputFiles[0].contents),
		first: true,
	},
	{ path: `/${names["icon.svg"]}`, bytes: icon, first: true },
];
for (const asset of assets) {
	asset.type = types[asset.path === "/" ? "html" : asset.path.split(".").pop()];
	asset.gzip = gzipSync(asset.bytes, { level: 9 });
}

rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });
for (const { path, bytes } of assets)
	writeFileSync(join(folder, path === "/" ? "index.html" : path), bytes);

/* The same page in one file, with a place for its data: perch export --format html. */
const replay = bundle("src/replay_main.ts", {
	format: "iife",
	jsx: "automatic",
	jsxImportSource: "preact",
})
	.outputFiles[0].text.trim()
	/* HTML's comments in strings and expressions, which would change how the element ends. */
	.replaceAll("<!--", "\\x3c!--");
const css = style.outputFiles[0].text.trim();
new Script(replay); /* as code it must have stayed the same */
if (/<\/script/i.test(replay) || /<\/style/i.test(css))
	throw new Error("the page's own code would end its element in a replay");
const digest = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
const csp =
	`default-src 'none'; script-src ${digest(replay)}; style-src ${digest(css)}; img-src data:; ` +
	"base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'";
const replayHtml = readFileSync(join(here, "replay.html"), "utf8")
	.replace("{{csp}}", () => csp)
	.replace("{{app.css}}", () => css)
	.replace("{{app.js}}", () => replay)
	.split("{{data}}")
	.map((text) => Buffer.from(text));

if (cFile) {
	// String literals, which compile in a tenth of the time that lists of numbers take. What C might
	// read as something else is octal; the NUL that ends a literal has no room and is left out.
	const octal = (byte) => `\\${byte.toString(8).padStart(3, "0")}`;
	const isPlain = (byte) => byte >= 32 && byte < 127 && !'"\\?'.includes(String.fromCharCode(byte));
	const literals = (bytes) =>
		Array.from({ length: Math.ceil(bytes.length / 80) }, (_, i) => {
			const line = [...bytes.subarray(80 * i, 80 * i + 80)];
			return `"${line.map((byte) => (isPlain(byte) ? String.fromCharCode(byte) : octal(byte))).join("")}"`;
		}).join("\n");
	const array = (name, bytes) => `static const unsigned char ${name}[${bytes.length}] =\n${literals(bytes)};\n`;
	let text =
		'/* Made by observer/web/build.mjs. */\n#include "observer/http/page.h"\n\n' +
		'#pragma GCC diagnostic ignored "-Woverlength-strings"\n\n';
	assets.forEach(({ bytes, gzip }, i) => {
		text += array(`bytes_${i}`, bytes) + array(`gzip_${i}`, gzip);
	});
	const entry = ({ path, type }, i) =>
		`\t{"${path}", "${type}", bytes_${i}, sizeof(bytes_${i}), gzip_${i}, sizeof(gzip_${i})},\n`;
	text += `\nconst struct page_asset page_assets[] = {\n${assets.map(entry).join("")}};\n`;
	text += `const size_t page_asset_count = ${assets.length};\n`;
	text += replayHtml.map((bytes, i) => array(`replay_${i}`, bytes)).join("");
	const part = (i) => `{"", "", replay_${i}, sizeof(replay_${i}), NULL, 0}`;
	text += `const struct page_asset page_replay[2] = {${part(0)}, ${part(1)}};\n`;
	writeFileSync(cFile, text);
}

const sum = (list) => list.reduce((bytes, { gzip }) => bytes + gzip.length, 0);
for (const { path, bytes, gzip, first } of assets)
	console.log(
		`${path.padEnd(24)} ${String(bytes.length).padStart(7)} B ${String(gzip.length).padStart(7)} B gzip${first ? "" : ", later"}`,
	);
const budgets = [
	["first view", sum(assets.filter(({ first }) => first)), FIRST_VIEW_MAX],
	["all", sum(assets), ALL_MAX],
];
for (const [what, bytes, most] of budgets)
	console.log(`${what} ${(bytes / 1024).toFixed(1)} of ${most / 1024} KB gzip`);
if (budgets.some(([, bytes, most]) => bytes > most)) {
	console.error("the page is over its budget");
	process.exit(1);
}
