/* Bundles the page: node build.mjs FOLDER [FILE.c]. The folder gets "/" as index.html and the
 * assets under hashed names; the C file, if asked for, the table of observer/http/page.h. */

import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { buildSync } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
/* page.md, Rules: the first view fits in 60 KB gzip. */
const FIRST_VIEW_MAX = 60 * 1024;

const [folder, cFile] = process.argv.slice(2);
if (!folder) {
	console.error("usage: node build.mjs FOLDER [FILE.c]");
	process.exit(2);
}

function bundle(entry, options) {
	const { outputFiles } = buildSync({
		entryPoints: [join(here, entry)],
		bundle: true,
		minify: true,
		write: false,
		target: "es2022",
		legalComments: "none",
		logLevel: "warning",
		...options,
	});
	return Buffer.from(outputFiles[0].contents);
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

const parts = {
	"app.js": bundle("src/main.tsx", {
		format: "esm",
		jsx: "automatic",
		jsxImportSource: "preact",
	}),
	/* Newer than any target esbuild would know how to lower: it is left as it is written. */
	"app.css": bundle("perch.css", { target: "esnext" }),
	"icon.svg": readFileSync(join(here, "icon.svg")),
};

let html = readFileSync(join(here, "index.html"), "utf8");
const assets = Object.entries(parts).map(([name, bytes]) => {
	const path = `/${hashed(name, bytes)}`;
	html = html.replace(`{{${name}}}`, path);
	return { path, bytes };
});
assets.unshift({ path: "/", bytes: Buffer.from(html) });
for (const asset of assets) {
	asset.type = types[asset.path === "/" ? "html" : asset.path.split(".").pop()];
	asset.gzip = gzipSync(asset.bytes, { level: 9 });
}

rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });
for (const { path, bytes } of assets)
	writeFileSync(join(folder, path === "/" ? "index.html" : path), bytes);

if (cFile) {
	const array = (name, bytes) =>
		`static const unsigned char ${name}[] = {\n${[...bytes].join(",").replace(/(.{90,}?,)/g, "$1\n")}\n};\n`;
	let text =
		'/* Made by observer/web/build.mjs. */\n#include "observer/http/page.h"\n\n';
	assets.forEach(({ bytes, gzip }, i) => {
		text += array(`bytes_${i}`, bytes) + array(`gzip_${i}`, gzip);
	});
	const entry = ({ path, type }, i) =>
		`\t{"${path}", "${type}", bytes_${i}, sizeof(bytes_${i}), gzip_${i}, sizeof(gzip_${i})},\n`;
	text += `\nconst struct page_asset page_assets[] = {\n${assets.map(entry).join("")}};\n`;
	text += `const size_t page_asset_count = ${assets.length};\n`;
	writeFileSync(cFile, text);
}

const total = assets.reduce((sum, { gzip }) => sum + gzip.length, 0);
for (const { path, bytes, gzip } of assets)
	console.log(
		`${path.padEnd(24)} ${String(bytes.length).padStart(7)} B ${String(gzip.length).padStart(7)} B gzip`,
	);
console.log(
	`first view ${(total / 1024).toFixed(1)} of ${FIRST_VIEW_MAX / 1024} KB gzip`,
);
if (total > FIRST_VIEW_MAX) {
	console.error("the page is over its budget");
	process.exit(1);
}
