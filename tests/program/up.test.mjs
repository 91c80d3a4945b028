// perch up: what a newcomer's one command does, and what it leaves behind.
import assert from "node:assert/strict";
import { createServer } from "node:net";
import { rmSync } from "node:fs";
import { test } from "node:test";
import { makeKey, sign } from "./support/keys.mjs";
import { Peer } from "./support/peer.mjs";
import { Up, commandOf, descendantsOf, isAlive, makeHome, processesOf, until } from "./support/up.mjs";

/** The demo asks for its permission 17 s into its script: more than until() gives by itself on a busy machine. */
const CARD_MS = 60000;

const laneOf = (fleet, name) => fleet.lanes.find((lane) => lane.channelName === name);

test("up prints one ready line, serves the page behind its token, and stops with nothing left", async () => {
	const up = await new Up().ready();
	const page = await fetch(new URL("/", up.url));
	assert.equal(page.status, 200);
	assert.match(page.headers.get("content-security-policy"), /default-src 'none'/);
	assert.equal((await fetch(new URL("/api/fleet", up.url))).status, 401);
	const fleet = await up.fleet();
	assert.deepEqual(fleet.agents, []);
	assert.equal(up.stdout.trim().split("\n").length, 1);
	const pids = descendantsOf(up.child.pid);
	assert.equal(pids.length, 2); // relay and observer
	assert.deepEqual(await up.stop(), { code: 0, signal: null });
	assert.deepEqual(pids.filter(isAlive), []);
});

test("up's relay is one for other clients too: it keeps what they publish, over a restart", async () => {
	const home = makeHome(), key = makeKey(), note = sign(key, { kind: 1, content: "kept" });
	try {
		for (const start of ["first", "second"]) {
			const up = await new Up([], { home, keepHome: true }).ready();
			try {
				const url = /ws:\/\/127\.0\.0\.1:\d+/.exec(commandOf(up.part("observer")).join(" "))[0];
				const peer = await Peer.as(url, key);
				if (start === "first")
					assert.deepEqual((await peer.publish(note)).slice(2), [true, ""]);
				assert.deepEqual((await peer.subscribe("q", { authors: [key.pub] })).map(({ id }) => id), [note.id]);
				await peer.close();
			} finally {
				await up.stop();
			}
		}
	} finally {
		rmSync(home, { recursive: true });
	}
});

test("up --tls prints a second address and the fingerprint, also to whoever attaches, and keeps its port over a restart", async () => {
	const up = await new Up(["--tls", "127.0.0.1:0"], { keepHome: true }).ready();
	try {
		const lines = await until(() => up.stdout.match(/^perch: from a phone or another machine (https:\/\/127\.0\.0\.1:\d+\/)#(\S{43})\nperch: its certificate is SHA-256 ([0-9A-F:]{95})$/m), "the lines");
		assert.equal(lines[2], up.token);
		const opened = await up.perch("open", "--tls");
		assert.equal(opened.stdout, `${lines[1]}#${up.token}\n`);
		assert.match(opened.stderr, new RegExp(lines[3]));
		const second = await new Up([], { home: up.home, keepHome: true }).ready();
		await until(() => second.stdout.includes(`${lines[1]}#${up.token}`), "the address again");
		await second.stop();
		process.kill(up.part("observer"), "SIGKILL");
		await until(async () => (await up.perch("open", "--tls")).stdout === opened.stdout, "the observer to be back");
	} finally {
		await up.stop();
		rmSync(up.home, { recursive: true });
	}
});

test("up --demo shows two channels, a permission and a failure", async () => {
	const up = await new Up(["--demo"]).ready();
	try {
		const fleet = await until(async () => {
			const got = await up.fleet();
			return got.cards.length > 0 && got.lanes.length === 2 && got;
		}, "two lanes and a card", CARD_MS);
		const api = laneOf(fleet, "api-server");
		assert.ok(api && laneOf(fleet, "web"));
		assert.equal(fleet.agents[0].name, "demo");
		const rows = (await Promise.all(fleet.lanes.map((lane) => up.rows(lane.id)))).flat();
		const types = new Set(rows.map((row) => row.type));
		for (const type of ["prompt", "thought", "plan", "message", "tool", "permission"])
			assert.ok(types.has(type), `no ${type} row among ${[...types]}`);
		assert.ok(rows.some((row) => row.type === "tool" && row.parts?.some((part) => part.type === "diff")));
	} finally {
		await up.stop();
	}
});

test("a page without agents plays the demo agent, once, and it ends with the rest", async () => {
	const up = await new Up([], { keepHome: true }).ready();
	try {
		const play = (headers) => fetch(new URL("/api/demo", up.url), {
			method: "POST", body: "{}", headers: { Authorization: `Bearer ${up.token}`, ...headers },
		});
		const json = { "Content-Type": "application/json" };
		assert.equal((await play({})).status, 415);
		assert.equal((await play({ ...json, Authorization: "Bearer no" })).status, 401);
		assert.equal((await up.fleet()).agents.length, 0);
		assert.equal((await play(json)).status, 202);
		const again = await play(json);
		assert.equal(again.status, 403);
		assert.deepEqual(await again.json(), { error: "the demo agent runs already" });
		await until(async () => (await up.fleet()).agents.some(({ name, online }) => name === "demo" && online), "the demo agent");
		assert.deepEqual(await up.stop(), { code: 0, signal: null });
		assert.deepEqual(processesOf(up.home), []);
	} finally {
		await up.stop();
		rmSync(up.home, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
	}
});

test("a killed up leaves no process behind", async () => {
	const up = await new Up(["--demo"], { keepHome: true }).ready();
	await until(() => descendantsOf(up.child.pid).length >= 4, "relay, observer, agent and its demo agent");
	up.child.kill("SIGKILL");
	await up.exited;
	await until(() => processesOf(up.home).length === 0, "its children to end");
	rmSync(up.home, { recursive: true });
});

test("a second up attaches: the same page, and its agent is in the same fleet", async () => {
	const up = await new Up([], { keepHome: true }).ready();
	try {
		const bare = await new Up([], { home: up.home, keepHome: true }).ready();
		assert.equal(bare.url.href, up.url.href);
		assert.deepEqual(await bare.exited, { code: 0, signal: null });
		const second = await new Up(["--demo", "--name", "other"], { home: up.home, keepHome: true }).ready();
		await until(async () => (await up.fleet()).agents.some((agent) => agent.name === "other" && agent.online),
			"the second agent");
		assert.deepEqual(await second.stop(), { code: 0, signal: null });
		assert.ok(isAlive(up.part("observer")));
	} finally {
		await up.stop();
		rmSync(up.home, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
	}
});

for (const option of ["--relay-listen", "--listen"])
	test(`a taken port is named with who holds it and what to do: ${option}`, async () => {
		const server = createServer().listen(0, "127.0.0.1");
		await new Promise((resolve) => server.on("listening", resolve));
		const { port } = server.address();
		const up = new Up([option, `127.0.0.1:${port}`]);
		const status = await up.exited;
		server.close();
		assert.equal(status.code, 1);
		assert.match(up.stderr, new RegExp(`port ${port} is taken by process ${process.pid} `));
		assert.ok(up.stderr.includes(`${option} HOST:PORT`));
		rmSync(up.home, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
	});

test("a relay that was killed comes back and the agent is seen again, nothing doubled", async () => {
	const up = await new Up(["--demo"]).ready();
	try {
		const card = await until(async () => (await up.fleet()).cards[0], "the permission", CARD_MS);
		const old = up.part("relay");
		process.kill(old, "SIGKILL");
		await until(() => up.part("relay") && up.part("relay") !== old, "a new relay");
		await until(async () => (await up.fleet()).health.relay.state === "ready", "the link");
		await until(async () => {
			const answer = await up.control({ agent: card.agent, type: "permission_decision", card: card.id,
				option: card.options.find((option) => option.kind === "allow_once").id }).catch(() => null);
			return answer;
		}, "the decision to be taken");
		const row = await until(async () => (await up.rows(card.lane)).find((it) =>
			it.type === "permission" && it.nonce === card.id && it.state === "allowed"), "the receipt");
		assert.equal(row.by, "you");
		const ids = (await up.rows(card.lane)).map((it) => it.id);
		assert.equal(new Set(ids).size, ids.length);
	} finally {
		await up.stop();
	}
});

test("two commands with the same agent name: the second names the first", async () => {
	const home = makeHome();
	const up = await new Up(["--demo"], { home, keepHome: true }).ready();
	try {
		const second = new Up(["--demo"], { home, keepHome: true });
		await second.exited;
		assert.match(second.stderr, /pid \d+/);
	} finally {
		await up.stop();
		rmSync(home, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
	}
});

test("a command that cannot be an agent ends an attached up with its reason", async () => {
	const up = await new Up([], { keepHome: true }).ready();
	try {
		for (const [command, reason] of [
			["no-such-agent", /cannot run no-such-agent: not found in PATH/],
			["cat", /refused initialize: .*does it speak ACP\?/],
		]) {
			const second = new Up(["--", command], { home: up.home, keepHome: true });
			assert.deepEqual(await second.exited, { code: 1, signal: null });
			assert.match(second.stderr, reason);
			assert.equal(second.stdout, "");
		}
		assert.ok(isAlive(up.part("observer")));
	} finally {
		await up.stop();
		rmSync(up.home, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
	}
});

test("an agent that ends before it spoke is asked whether it speaks ACP", async () => {
	const up = new Up(["--", "true"]);
	try {
		await until(() => /exited \(status 0\) before it answered initialize \(does it speak ACP\?\)/.test(up.stderr),
			"the reason");
		await until(() => up.stdout.startsWith("perch: ready ") && /^perch: the agent failed to start/m.test(up.stderr), "the page without it");
	} finally {
		await up.stop();
	}
});
