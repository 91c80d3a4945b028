// perch invite: one line, pasted elsewhere, and the agent is in its owner's fleet.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { after, before, test } from "node:test";
import { bech32 } from "@scure/base";
import { utf8ToBytes } from "@noble/hashes/utils.js";
import { scriptedAgent } from "./support/harness.mjs";
import { attest, hexToBytes, makeKey } from "./support/keys.mjs";
import { makeHome, run, startObserver } from "./support/observer.mjs";
import { perchBin, startRelay } from "./support/perch.mjs";
import { until } from "./support/up.mjs";

const newHome = () => mkdtempSync(join(tmpdir(), "perch-join-"));
const homes = [];
let relay, observer, home;

before(async () => {
	relay = await startRelay();
	home = makeHome();
	observer = await startObserver(relay.url, home);
	await observer.connected();
});

after(async () => {
	await observer.end();
	await relay.stop();
	home.remove();
	homes.forEach((it) => rmSync(it, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 }));
});

/** An invitation made in the owner's home. */
async function invite(name, ...args) {
	const got = await run(home, "invite", name, ...args);
	assert.equal(got.code, 0, got.stderr);
	assert.match(got.stdout, /^perch1[a-z0-9]+\n$/);
	return { line: got.stdout.trim(), stderr: got.stderr };
}

/** `perch agent` on "another machine": a home of its own. */
class Joined {
	stderr = "";

	constructor(args, { input = "", env = {}, at = newHome(), command = scriptedAgent } = {}) {
		homes.push(at);
		this.home = at;
		const clean = { ...process.env, PERCH_HOME: at, XDG_CONFIG_HOME: at, ...env };
		this.child = spawn(perchBin, ["agent", "--tick-ms", "40", "--ready-fd", "3", ...args, "--", ...command],
			{ cwd: at, env: clean, stdio: ["pipe", "pipe", "pipe", "pipe"] });
		this.child.stderr.setEncoding("utf8").on("data", (piece) => (this.stderr += piece));
		this.child.stdin.on("error", () => {});
		this.child.stdin.end(input);
		this.exited = new Promise((resolve) => this.child.on("close", (code) => resolve(code)));
		this.ready = Promise.race([
			new Promise((resolve) => this.child.stdio[3].once("data", () => resolve(true))),
			this.exited.then(() => false),
		]);
	}

	async stop() {
		this.child.kill("SIGTERM");
		const code = await this.exited;
		assert.doesNotMatch(this.stderr, /Sanitizer|runtime error/);
		return code;
	}

	/** Why it did not start. */
	async refusal() {
		const code = await this.exited;
		assert.doesNotMatch(this.stderr, /Sanitizer|runtime error/);
		return { code, stderr: this.stderr };
	}
}

/** Waits until an online agent of that name is in the fleet. */
async function online(name) {
	const page = await observer.page();
	const agent = await page.until((message) =>
		message.agents?.find((it) => it.name === name && it.online), `agent ${name}`);
	page.close();
	return agent;
}

test("one paste on another machine and the agent is in the fleet; later it needs no invitation", async () => {
	const { line, stderr } = await invite("laptop");
	assert.match(stderr, /is a secret/);
	assert.match(stderr, /this machine only/); // the relay is loopback
	const first = new Joined(["--invite", "-"], { input: line + "\n" });
	assert.ok(await first.ready, first.stderr);
	const agent = await online("laptop");
	assert.equal(await first.stop(), 0);
	assert.deepEqual(readdirSync(join(first.home, "keys")).sort(), ["laptop", "laptop.auth", "laptop.relay"]);
	const again = new Joined(["--name", "laptop"], { at: first.home });
	assert.ok(await again.ready, again.stderr);
	assert.equal((await online("laptop")).id, agent.id);
	assert.equal(await again.stop(), 0);
});

test("the owner's machine keeps no secret of it", async () => {
	const { line } = await invite("kept");
	const secrets = new Joined(["--invite", "-"], { input: line + "\n" });
	assert.ok(await secrets.ready, secrets.stderr);
	const key = readFileSync(join(secrets.home, "keys/kept"), "utf8").trim();
	await secrets.stop();
	const walk = (folder) => readdirSync(folder, { withFileTypes: true }).flatMap((it) =>
		it.isDirectory() ? walk(join(folder, it.name)) : it.isFile() ? [join(folder, it.name)] : []);
	for (const path of walk(home.dir)) {
		const bytes = readFileSync(path);
		assert.ok(!bytes.includes(key) && !bytes.includes(Buffer.from(key, "hex")) && !bytes.includes(line), path);
	}
});

test("the same invitation may be pasted twice here; another of that name may not", async () => {
	const { line } = await invite("twice");
	const at = newHome();
	for (let i = 0; i < 2; i++) {
		const joined = new Joined(["--invite", "-"], { input: line + "\n", at });
		assert.ok(await joined.ready, joined.stderr);
		await joined.stop();
	}
	const other = (await invite("twice")).line;
	const refused = await new Joined(["--invite", "-"], { input: other, at }).refusal();
	assert.equal(refused.code, 1);
	assert.match(refused.stderr, /another key named twice/);
	const named = new Joined(["--invite", "-", "--name", "third"], { input: other, at });
	assert.ok(await named.ready, named.stderr);
	await online("third");
	await named.stop();
});

test("a damaged, a foreign and an empty paste say so", async () => {
	const { line } = await invite("damaged");
	const wrong = line.slice(0, 40) + (line[40] === "q" ? "p" : "q") + line.slice(41);
	for (const [input, words] of [
		[wrong, /this invitation is damaged .*copy the whole line/],
		[line.slice(0, -1), /this invitation is damaged/],
		["npub1xyz\n", /this is no invitation: want the line perch1/],
		["", /nothing came on standard input/],
	]) {
		const { code, stderr } = await new Joined(["--invite", "-"], { input }).refusal();
		assert.equal(code, 2, stderr);
		assert.match(stderr, words);
		assert.ok(!stderr.includes(line.slice(20, 60)));
	}
});

test("an invitation that has expired says when, and what to ask for", async () => {
	const owner = makeKey(), agent = makeKey(), conditions = "created_at<1700000000";
	const part = (type, bytes) => [type, bytes.length, ...bytes];
	const line = bech32.encode("perch", bech32.toWords(Uint8Array.from([1,
		...part(1, agent.secret), ...part(2, utf8ToBytes(relay.url)), ...part(3, utf8ToBytes("late")),
		...part(4, hexToBytes(owner.pub)), ...part(5, hexToBytes(attest(owner, agent.pub, conditions)[3])),
		...part(6, utf8ToBytes(conditions))])), false);
	const { code, stderr } = await new Joined(["--invite", "-"], { input: line }).refusal();
	assert.equal(code, 2, stderr);
	assert.match(stderr, /this invitation expired at 2023-11-14 22:13 UTC: ask its owner for a new one \(perch invite late\)/);
	for (const wrong of ["1", "yesterday", "0d", "99999999999"])
		assert.equal((await run(home, "invite", "x", "--expires", wrong)).code, 2);
});

test("in CI: PERCH_INVITE joins for one run, leaves no key, and no child sees any of it", async () => {
	const { line } = await invite("ci");
	const seen = join(newHome(), "seen");
	homes.push(join(seen, ".."));
	const command = ["sh", "-c", `tr '\\0' '\\n' < /proc/$PPID/environ > '${seen}.parent'; env > '${seen}'; exec "$@"`, "sh", ...scriptedAgent];
	const joined = new Joined([], { env: { PERCH_INVITE: line, PERCH_LOG_LEVEL: "info" }, command });
	assert.ok(await joined.ready, joined.stderr);
	await online("ci");
	await joined.stop();
	const env = readFileSync(seen, "utf8");
	assert.doesNotMatch(env, /perch1/);
	// The one name that is meant for the child: where perch emit speaks to.
	assert.deepEqual(env.match(/^PERCH_\w+(?==)/gm), ["PERCH_EMIT"]);
	assert.ok(!existsSync(join(joined.home, "keys")));
	if (existsSync(`${seen}.parent`))
		assert.doesNotMatch(readFileSync(`${seen}.parent`, "utf8"), /perch1/);
	const argv = await new Joined(["--invite", line]).refusal();
	assert.equal(argv.code, 2);
	assert.match(argv.stderr, /never given as an argument/);
	assert.ok(!argv.stderr.includes(line.slice(20, 60)));
});

test("a file with the invitation has to be private", async () => {
	const { line } = await invite("filed");
	const path = join(newHome(), "invitation");
	homes.push(join(path, ".."));
	writeFileSync(path, line + "\n", { mode: 0o644 });
	assert.match((await new Joined(["--invite", path]).refusal()).stderr, /chmod 600/);
	rmSync(path);
	writeFileSync(path, line + "\n", { mode: 0o600 });
	const joined = new Joined(["--invite", path]);
	assert.ok(await joined.ready, joined.stderr);
	await joined.stop();
});

test("used on two machines at once, the newer is live, answers, and the owner is told", async () => {
	const { line } = await invite("both");
	const first = new Joined(["--invite", "-", "--control", "full"], { input: line });
	assert.ok(await first.ready, first.stderr);
	const before = await online("both");
	// Which of two that started in one second is the newer, chance decides.
	await until(() => Math.floor(Date.now() / 1000) > parseInt(before.epoch.slice(0, 8), 16), "the next second");
	const second = new Joined(["--invite", "-", "--control", "full"], { input: line });
	assert.ok(await second.ready, second.stderr);
	const page = await observer.page();
	await page.until((message) => message.agents?.find((it) => it.id === before.id && it.epoch > before.epoch));
	const lane = await page.until((message) =>
		message.lanes?.find((it) => it.agent === before.id && it.channelName === basename(second.home)), "its lane");
	const { requestId } = (await observer.post({ type: "prompt", agent: before.id, channel: lane.channel, text: "say hello" })).json();
	const answer = await page.until((message) =>
		message.controls?.find((it) => it.requestId === requestId && it.state === "answered"), "its answer");
	assert.match(answer.status, /^(started|queued)$/);
	await until(async () => {
		await observer.post({ type: "release_queue", agent: before.id, channel: lane.channel });
		return /runs twice with one key/.test(observer.stderr());
	}, "the warning");
	page.close();
	await first.stop();
	await second.stop();
	assert.deepEqual((await observer.get("/api/fleet")).json().agents.filter((it) => it.name === "both").map((it) => it.id), [before.id]);
});
