// perch key: every form in and out, checked with nostr-tools; sealed keys end to end.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { decode, npubEncode, nsecEncode } from "nostr-tools/nip19";
import * as nip49 from "nostr-tools/nip49";
import { bytesToHex, makeKey } from "./support/keys.mjs";
import { perchBin } from "./support/perch.mjs";

const homes = [];
after(() => homes.forEach((home) => rmSync(home, { recursive: true, force: true })));

function newHome() {
	const home = mkdtempSync(join(tmpdir(), "perch-keys-"));
	homes.push(home);
	return home;
}

/** Runs `perch key ...args`; `passphrase` (lines) comes by descriptor 3. */
function key(home, args, { input = "", passphrase, env = {}, program = [perchBin, "key"] } = {}) {
	return new Promise((resolve) => {
		const child = spawn(program[0], [...program.slice(1), ...args], {
			detached: true, // no terminal to ask
			env: { ...process.env, PERCH_HOME: home, ...(passphrase && { PERCH_PASSPHRASE_FD: "3" }), ...env },
			stdio: ["pipe", "pipe", "pipe", "pipe"],
		});
		const got = { stdout: "", stderr: "" };
		for (const name of ["stdout", "stderr"])
			child[name].setEncoding("utf8").on("data", (piece) => (got[name] += piece));
		for (const [index, text] of [[0, input], [3, passphrase ?? ""]])
			child.stdio[index].on("error", () => {}), child.stdio[index].end(text);
		child.on("close", (code) => {
			assert.doesNotMatch(got.stderr, /Sanitizer|runtime error/);
			resolve({ code, ...got });
		});
	});
}

async function ok(...args) {
	const got = await key(...args);
	assert.equal(got.code, 0, got.stderr);
	return got.stdout.trim();
}

test("nsec, hex and ncryptsec come in and go out as the same key", async () => {
	const home = newHome(), it = makeKey(), npub = npubEncode(it.pub);
	assert.equal(await ok(home, ["import", "a"], { input: nsecEncode(it.secret) }), npub);
	assert.equal(await ok(home, ["import", "b"], { input: bytesToHex(it.secret) + "\r\n" }), npub);
	assert.equal(await ok(home, ["import", "c"], {
		input: nip49.encrypt(it.secret, "pässword 密", 10), passphrase: "pässword 密\n",
	}), npub);
	for (const name of ["a", "b", "c"]) {
		assert.equal(await ok(home, ["show", name]), npub);
		assert.deepEqual(decode(await ok(home, ["export", "--plain", name])).data, it.secret);
	}
	const sealed = await ok(home, ["export", "a"], { passphrase: "exported\n" });
	assert.match(sealed, /^ncryptsec1/);
	assert.deepEqual(nip49.decrypt(sealed, "exported"), it.secret);
	assert.equal(statSync(join(home, "keys/c")).mode & 0o777, 0o600);
	assert.match(await ok(home, ["list"]), new RegExp(`^a +${npub}\nb +${npub}\nc +${npub}$`));
	await ok(home, ["remove", "b"]);
	assert.equal((await key(home, ["show", "b"])).code, 1);
});

test("what is no key, a wrong passphrase and a taken name say so, and nothing is written", async () => {
	const home = newHome(), it = makeKey();
	const sealed = nip49.encrypt(it.secret, "right", 4);
	for (const [options, words] of [
		[{ input: "" }, /give the key on standard input/],
		[{ input: npubEncode(it.pub) }, /this is no secret key: want nsec1…, ncryptsec1… or 64 hex/],
		[{ input: "00".repeat(32) }, /./],
		[{ input: sealed, passphrase: "wrong\n" }, /the passphrase does not open this ncryptsec/],
		[{ input: sealed, passphrase: "a\u0308\n" }, /U\+0308/],
		[{ input: sealed.slice(0, -1) + (sealed.endsWith("q") ? "p" : "q"), passphrase: "right\n" }, /checksum/],
		[{ input: sealed }, /no terminal to ask for the passphrase: name a file .*0600.* PERCH_PASSPHRASE_FILE/],
		[{ input: nip49.encrypt(it.secret, "x", 4).replace(/^/, "x") }, /this is no secret key/],
	]) {
		const got = await key(home, ["import", "x"], options);
		assert.equal(got.code, 1, got.stdout);
		assert.match(got.stderr, words);
		assert.match(got.stderr, /^perch key: [^\n]+\n$/);
	}
	assert.equal(await ok(home, ["list"]), "");
	await ok(home, ["import", "x"], { input: bytesToHex(it.secret) });
	assert.match((await key(home, ["import", "x"], { input: bytesToHex(it.secret) })).stderr, /there is a key x already/);
	assert.equal((await key(home, ["frob"])).code, 2);
	assert.equal((await key(home, ["export"])).code, 2);
});

test("a sealed key opens with its passphrase only, in every command that needs it", async () => {
	const home = newHome(), it = makeKey(), passphrase = join(home, "passphrase");
	writeFileSync(passphrase, "hush\n", { mode: 0o600 });
	await ok(home, ["import", "owner"], { input: bytesToHex(it.secret) });
	await ok(home, ["seal", "owner"], { passphrase: "hush\n" });
	const text = readFileSync(join(home, "keys/owner"), "utf8");
	assert.match(text, /^perch-key-1 /);
	assert.ok(!text.includes(bytesToHex(it.secret)));
	assert.match(await ok(home, ["list"]), /^owner +\(sealed\)$/);
	assert.match((await key(home, ["seal", "owner"], { passphrase: "x\n" })).stderr, /sealed already/);
	assert.match((await key(home, ["show", "owner"], { passphrase: "wrong\n" })).stderr, /does not open/);
	assert.equal(await ok(home, ["show", "owner"], { passphrase: "hush\n" }), npubEncode(it.pub));
	assert.deepEqual(nip49.decrypt(await ok(home, ["export", "owner"], { passphrase: "hush\nother\n" }), "other"), it.secret);

	const run = (args, env = {}) => key(home, args, { env, program: [perchBin] });
	const words = /owner is sealed: name a file with its passphrase \(mode 0600\) in PERCH_PASSPHRASE_FILE/;
	for (const args of [["invite", "laptop"], ["attest", npubEncode(makeKey().pub)],
		["observer", "--listen", "127.0.0.1:0"], ["agent", "--", "true"]]) {
		const got = await run(args);
		assert.equal(got.code, 1, args.join(" "));
		assert.match(got.stderr, words, args.join(" "));
	}
	assert.match((await run(["up", "--listen", "127.0.0.1:0", "--relay-listen", "127.0.0.1:0"])).stderr, words);
	const invited = await run(["invite", "laptop"], { PERCH_PASSPHRASE_FILE: passphrase });
	assert.match(invited.stdout, /^perch1/, invited.stderr);

	const up = spawn(perchBin, ["up", "--listen", "127.0.0.1:0", "--relay-listen", "127.0.0.1:0"],
		{ env: { ...process.env, PERCH_HOME: home, XDG_RUNTIME_DIR: "", PERCH_PASSPHRASE_FILE: passphrase }, stdio: ["ignore", "pipe", "inherit"] });
	const [ready] = await once(up.stdout, "data");
	assert.match(String(ready), /^perch: ready /);
	up.kill();
	await once(up, "close");

	await ok(home, ["unseal", "owner"], { passphrase: "hush\n" });
	assert.equal(readFileSync(join(home, "keys/owner"), "utf8"), bytesToHex(it.secret) + "\n");
	writeFileSync(join(home, "open"), "x\n", { mode: 0o644 });
	assert.match((await key(home, ["seal", "owner", "--passphrase-file", join(home, "open")])).stderr, /chmod 600/);
});

test("on a terminal the passphrase is asked for twice and never shown", async () => {
	const home = newHome(), it = makeKey();
	await ok(home, ["import", "owner"], { input: bytesToHex(it.secret) });
	const ask = (answers) => new Promise((resolve) => {
		const child = spawn("script", ["-qec", `${perchBin} key seal owner`, "/dev/null"],
			{ env: { ...process.env, PERCH_HOME: home }, stdio: ["pipe", "pipe", "inherit"] });
		let shown = "", asked = 0;
		child.stdout.setEncoding("utf8").on("data", (piece) => {
			shown += piece;
			for (; asked < answers.length && (shown.match(/: (\r\n|$)/g) ?? []).length > asked; asked++)
				child.stdin.write(answers[asked] + "\n");
		});
		child.on("close", (code) => resolve({ code, shown }));
	});
	const differs = await ask(["hush-one", "hush-two"]);
	assert.match(differs.shown, /New passphrase: \r\nOnce more: \r\nperch key: the two passphrases differ/);
	const sealed = await ask(["hush-one", "hush-one"]);
	assert.match(sealed.shown, /New passphrase: \r\nOnce more: \r\nperch key: sealed/);
	assert.doesNotMatch(differs.shown + sealed.shown, /hush/);
	assert.equal(await ok(home, ["show", "owner"], { passphrase: "hush-one\n" }), npubEncode(it.pub));
});

test("passphrases that are taken are the same in NFKC", () => {
	const source = readFileSync(new URL("../../wire/nostr/nip49.c", import.meta.url), "utf8");
	const table = source.slice(source.indexOf("stable[] = {"), source.indexOf("};", source.indexOf("stable[] = {")));
	const ranges = [...table.matchAll(/\{(0x[0-9a-f]+), (0x[0-9a-f]+)\}/g)].map(([, from, to]) => [Number(from), Number(to)]);
	assert.ok(ranges.length > 20);
	for (const [from, to] of ranges)
		for (let code = from; code <= to; code++) {
			const text = String.fromCodePoint(code);
			assert.equal(text.normalize("NFKC"), text, code.toString(16));
			assert.doesNotMatch(text, /\p{M}/u, code.toString(16));
		}
});
