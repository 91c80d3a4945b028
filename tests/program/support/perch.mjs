// Starts perch's programs for tests: the binary is $PERCH_BIN, the folders are the test's own.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { randomInt } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../../../", import.meta.url));
export const perchBin = process.env.PERCH_BIN ?? join(root, "build/perch");

/**
 * Starts `perch ...args` with folders of its own. The result has `child`, `stderr()` and
 * `stdout()` (what came so far), `exited` (a promise of {code, signal}), and `stop(signal)`,
 * which waits for the end. Descriptor 3 is a pipe, `child.stdio[3]`.
 */
export function spawnPerch(args, { env = {} } = {}) {
	const home = mkdtempSync(join(tmpdir(), "perch-test-"));
	const child = spawn(perchBin, args, {
		stdio: ["pipe", "pipe", "pipe", "pipe"],
		env: { ...process.env, PERCH_HOME: home, XDG_CONFIG_HOME: home, ...env },
	});
	const text = { stdout: "", stderr: "" };
	for (const name of ["stdout", "stderr"])
		child[name].setEncoding("utf8").on("data", (piece) => (text[name] += piece));
	const exited = once(child, "close").then(([code, signal]) => {
		rmSync(home, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
		return { code, signal };
	});
	return {
		child,
		home,
		exited,
		stdout: () => text.stdout,
		stderr: () => text.stderr,
		async stop(signal = "SIGTERM") {
			child.kill(signal);
			return exited;
		},
	};
}

/** A port below those that the system gives to whoever asks for any: while nobody listens there it is nobody else's. For
 * what starts again on its port. */
export async function portToKeep() {
	for (;;) {
		const server = createServer(), port = randomInt(10_000, 32_000);
		const took = await new Promise((resolve) =>
			server.once("error", () => resolve(false)).listen(port, "127.0.0.1", () => resolve(true)));
		if (took) {
			await new Promise((resolve) => server.close(resolve));
			return port;
		}
	}
}

/**
 * Starts a relay on a free port and waits until it listens. Adds `port` and `url` to what
 * spawnPerch() returns; the test stops it, and finds sanitizer reports in `stderr()`.
 */
export async function startRelay(args = [], options) {
	const process = spawnPerch(
		["relay", "--listen", "127.0.0.1:0", "--ready-fd", "3", ...args], options);
	const ready = once(process.child.stdio[3], "data").then(([line]) => Number(String(line)));
	const port = await Promise.race([ready, process.exited.then(() => undefined)]);
	if (!port)
		throw new Error(`the relay did not start: ${process.stderr()}`);
	if (args.includes("--metrics")) // where they are comes by another pipe
		await logged(process, /metrics on \S+\s/);
	return { ...process, port, url: `ws://127.0.0.1:${port}` };
}

/** fetch() on a connection of its own: one that is kept the relay closes after five seconds, which is just when a process
 * that was busy so long takes it up again. */
export const fetchAlone = (url, { headers, ...options } = {}) =>
	fetch(url, { headers: { connection: "close", ...headers }, ...options });

/** Stops a relay that must end well and without a sanitizer's report. */
export async function stopRelay(relay) {
	assert.deepEqual(await relay.stop(), { code: 0, signal: null }, relay.stderr());
	assert.doesNotMatch(relay.stderr(), /Sanitizer|runtime error/);
}

/** Runs one test with a relay of its own. */
export async function withRelay(args, run, options) {
	const relay = await startRelay(args, options);
	try {
		await run(relay);
	} finally {
		await stopRelay(relay);
	}
}

/** A process's log has, or gets, a line like this; it comes by another way than its answers. */
export async function logged(process, words, from = 0) {
	while (!words.test(process.stderr().slice(from)))
		await once(process.child.stderr, "data");
}
