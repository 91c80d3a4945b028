// perch.conf, the environment and flags: which value holds, and where it comes from.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { perchBin } from "./support/perch.mjs";

const home = mkdtempSync(join(tmpdir(), "perch-config-"));
const conf = join(home, "perch.conf");
after(() => rmSync(home, { recursive: true, force: true }));

function perch(args, env = {}) {
	const clean = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("PERCH_")));
	return new Promise((resolve) => {
		const child = spawn(perchBin, args, { env: { ...clean, PERCH_HOME: home, ...env }, stdio: ["ignore", "pipe", "pipe"] });
		const got = { stdout: "", stderr: "" };
		for (const name of ["stdout", "stderr"])
			child[name].setEncoding("utf8").on("data", (piece) => (got[name] += piece));
		child.on("close", (code) => resolve({ code, ...got }));
	});
}

const lineOf = (text, name) => text.split("\n").find((it) => it.startsWith(`${name} `))?.split(/ {2,}/);

test("every value comes with its origin: flag, environment, file and line, default", async () => {
	writeFileSync(conf, "log-level = debug\n[agent]\nrelay = ws://file\nchannel = a\nchannel = b\n", { mode: 0o600 });
	const { code, stdout, stderr } = await perch(["config", "agent", "--tick-ms", "70"], { PERCH_CONTROL: "full" });
	assert.equal(code, 0, stderr);
	assert.deepEqual(lineOf(stdout, "log-level"), ["log-level", "debug", `${conf}:1`]);
	assert.deepEqual(lineOf(stdout, "relay"), ["relay", "ws://file", `${conf}:3`]);
	assert.deepEqual(lineOf(stdout, "channel"), ["channel", "a, b", `${conf}:5`]);
	assert.deepEqual(lineOf(stdout, "tick-ms"), ["tick-ms", "70", "--tick-ms"]);
	assert.deepEqual(lineOf(stdout, "control"), ["control", "full", "PERCH_CONTROL"]);
	assert.deepEqual(lineOf(stdout, "permissions"), ["permissions", "ask", "default"]);
	const flag = await perch(["config", "agent", "--relay=ws://flag"], { PERCH_RELAY: "ws://env" });
	assert.deepEqual(lineOf(flag.stdout, "relay"), ["relay", "ws://flag", "--relay"]);
	const env = await perch(["config", "agent"], { PERCH_RELAY: "ws://env" });
	assert.deepEqual(lineOf(env.stdout, "relay"), ["relay", "ws://env", "PERCH_RELAY"]);
});

test("perch config without a command shows all that have options, and no option is forgotten", async () => {
	writeFileSync(conf, "log-level = warn\n[up]\nenv = TOKEN=hush\n");
	const { code, stdout, stderr } = await perch(["config"]);
	assert.equal(code, 0, stderr);
	const help = (await perch(["--help"])).stdout;
	const commands = [...help.matchAll(/^ {2}([a-z-]+) {2,}/gm)].map(([, name]) => name).filter((name) => name !== "demo-agent");
	assert.ok(commands.length > 10, help);
	for (const name of ["up", "relay", "observer", "agent"])
		assert.ok(stdout.includes(`[${name}]\n`), stdout);
	assert.ok(!stdout.includes("hush"));
	assert.deepEqual(lineOf(stdout, "env"), ["env", "TOKEN=…", `${conf}:3`]);
	for (const name of commands) {
		writeFileSync(conf, `[${name}]\n`);
		assert.equal((await perch(["config", "agent"])).code, 0, name);
		const shown = await perch([name, "--help"]);
		assert.equal(shown.code, 0, name);
		assert.match(shown.stdout, /\nExample:\n {2}(\S.* )?perch [a-z]/, name);
		assert.ok(shown.stdout.startsWith(`Usage: perch ${name}`), name);
	}
});

test("a mistake in the file is named with its line, by every command that reads it", async () => {
	for (const [text, words] of [
		["\nrelya = x\n", `${conf}:2: there is no option "relya": did you mean relay?`],
		["[agent]\nlisten = x\n", `${conf}:2: perch agent has no option listen`],
		["[agnet]\n", `${conf}:1: there is no command "agnet": did you mean agent?`],
		["slots = many\n", `${conf}:1: slots takes 1..32, got "many"`],
	]) {
		writeFileSync(conf, text);
		const got = await perch(["agent", "--", "true"]);
		assert.deepEqual(got, { code: 2, stdout: "", stderr: `perch agent: ${words}\n` });
	}
	writeFileSync(conf, "nonsense\n");
	assert.equal((await perch(["agent", "--help"])).code, 0);
	assert.equal((await perch(["config", "nonsense"])).code, 2);
});

test("a file that everybody can write is refused", async () => {
	rmSync(conf);
	writeFileSync(conf, "", { mode: 0o600 });
	await new Promise((resolve) => spawn("chmod", ["666", conf]).on("close", resolve));
	const got = await perch(["ls"]);
	assert.equal(got.code, 2);
	assert.match(got.stderr, /perch\.conf can be written by everybody: run chmod 600 on it/);
});
