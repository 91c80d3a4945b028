// A command under `perch proxy` or `perch run`, and its owner at the other end of a small relay.
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { randomUUID } from "node:crypto";
import { SmallRelay } from "./harness.mjs";
import { bytesToHex, control, makeKey, now, open } from "./keys.mjs";
import { perchBin } from "./perch.mjs";
import { TIMEOUT_MS } from "./timeout.mjs";

/** Waits until `find()` gives something; looks at each change of `log` (an array with a set of wakers). */
async function until(find, what, wakers, seen) {
	const found = find();
	if (found)
		return found;
	return new Promise((resolve, reject) => {
		const look = () => {
			const result = find();
			if (!result)
				return;
			clearTimeout(timer);
			wakers.delete(look);
			resolve(result);
		};
		const timer = setTimeout(() => {
			wakers.delete(look);
			reject(new Error(`no ${what}; came: ${JSON.stringify(seen().slice(-30)).slice(0, 5000)}`));
		}, TIMEOUT_MS);
		wakers.add(look);
	});
}

export class Front {
	events = [];
	stdout = Buffer.alloc(0);
	stderr = Buffer.alloc(0);
	owner = makeKey();
	#wakers = new Set();
	#seen = new Set(); // frames

	/** `args`: before the `--`; `command`: after it. The watcher is ready, unless `ready` is false. */
	static async start(mode, args, command, options = {}) {
		const front = new Front();
		await front.#start(mode, args, command, options);
		return front;
	}

	async #start(mode, args, command, { env = {}, ready = true, ownerHere = true, relay, relayUrl, stdin = "pipe", again, conf } = {}) {
		this.relay = relay ?? again?.relay ?? await SmallRelay.start();
		this.home = again?.home ?? mkdtempSync(join(tmpdir(), "perch-front-"));
		if (again) // the same key and owner, another start
			this.owner = again.owner;
		this.work = join(this.home, "work");
		mkdirSync(this.work, { recursive: true });
		mkdirSync(join(this.home, "keys"), { mode: 0o700, recursive: true });
		if (ownerHere)
			writeFileSync(join(this.home, "keys/owner"), bytesToHex(this.owner.secret) + "\n", { mode: 0o600 });
		if (conf)
			writeFileSync(join(this.home, "perch.conf"), conf, { mode: 0o600 });
		this.#collect();
		this.child = spawn(perchBin, [mode, "--relay", relayUrl ?? this.relay.url, "--name", "fronted", "--tick-ms", "40",
			...(ready ? ["--ready-fd", "3"] : []), ...args, "--", ...command], {
			cwd: this.work, stdio: [stdin, "pipe", "pipe", "pipe"],
			env: { ...process.env, PERCH_HOME: this.home, XDG_CONFIG_HOME: this.home, PERCH_SECRET: "never shown", ...env },
		});
		for (const name of ["stdout", "stderr"])
			this.child[name].on("data", (piece) => {
				this[name] = Buffer.concat([this[name], piece]);
				this.#wake();
			});
		this.stdoutEnded = new Promise((resolve) => this.child.stdout.once("end", resolve));
		this.child.stdin.on("error", () => {}); // it may end before it reads all
		this.exited = once(this.child, "close").then(([code, signal]) => (this.status = { code, signal }));
		this.ended = once(this.child, "exit").then(([code, signal]) => ({ code, signal }));
		if (ready && !await Promise.race([once(this.child.stdio[3], "data"), this.exited.then(() => false)]))
			throw new Error(`it ended: ${this.stderr}`);
	}

	#wake() {
		for (const look of [...this.#wakers])
			look();
	}

	#collect() {
		const push = this.relay.log.push.bind(this.relay.log);
		this.relay.log.push = (item) => {
			push(item);
			if (this.hasLeft || item.kind !== 24200 || !item.tags.some(([name, value]) => name === "frame" && value === "telemetry"))
				return;
			const plain = JSON.parse(open(this.owner, item));
			this.agentPub = item.pubkey;
			if (!plain.replayed) // else perhaps of an earlier start
				this.epoch = plain.epoch;
			const key = `${plain.epoch}/${plain.frame}`;
			if (this.#seen.has(key)) // a silent one sends its newest frame again
				return;
			this.#seen.add(key);
			this.events.push(...(plain.kind === "batch" ? plain.payload.events : [plain]));
			this.#wake();
		};
	}

	/** The first event of a kind for which `matches(payload, event)` holds. */
	event(kind, matches = () => true) {
		return until(() => this.events.find((event) => event.kind === kind && matches(event.payload, event)), kind, this.#wakers, () => this.events);
	}

	/** Until `find()` gives something. */
	when(find, what) {
		return until(find, what, this.#wakers, () => this.events);
	}

	ofKind(kind) {
		return this.events.filter((event) => event.kind === kind);
	}

	/** Text of all `output` events of a stream. */
	output(stream = "stdout") {
		return this.ofKind("output").toSorted((a, b) => a.seq - b.seq).filter(({ payload }) => payload.stream === stream).map(({ payload }) => payload.text).join("");
	}

	untilOutput(text, stream = "stdout") {
		return until(() => this.output(stream).includes(text), `"${text}" on ${stream}`, this.#wakers, () => this.events);
	}

	/** Until the process itself has written `text`. */
	untilWritten(text, stream = "stdout") {
		return until(() => this[stream].includes(text), `"${text}" written`, this.#wakers, () => [String(this[stream]).slice(-2000)]);
	}

	/** Sends a control and returns its control_result. */
	async ask(type, members = {}) {
		const requestId = randomUUID();
		this.relay.deliver(control(this.owner, this.agentPub, JSON.stringify({ type, requestId, epoch: this.epoch, expires: now() + 60, ...members })));
		return (await this.event("control_result", (payload) => payload.requestId === requestId)).payload;
	}

	/** `perch emit` from outside, or with `env` from inside. */
	emit(args, { env = {}, input } = {}) {
		return new Promise((resolve) => {
			const child = execFile(perchBin, ["emit", ...args], { env: { ...process.env, PERCH_HOME: this.home, XDG_CONFIG_HOME: this.home, ...env } },
				(error, stdout, stderr) => resolve({ code: error?.code ?? 0, stdout, stderr }));
			child.stdin.on("error", () => {});
			child.stdin.end(input ?? "");
		});
	}

	/** The watcher's process: the one of our command line that is not the pump. */
	get watcher() {
		for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
			try {
				const stat = readFileSync(`/proc/${pid}/stat`, "utf8").replace(/\(.*\)/, "x").split(" ");
				if (Number(stat[3]) === this.child.pid && readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("--relay"))
					return Number(pid);
			} catch {
				// it ended meanwhile
			}
		}
		return undefined;
	}

	get log() {
		const path = join(this.home, "run/fronted.log");
		return existsSync(path) ? readFileSync(path, "utf8") : "";
	}

	/** Waits for its end, but keeps its relay and its home: for another start (`again`). */
	async leave() {
		await this.exited;
		await this.watcherGone();
		this.hasLeft = true;
	}

	async stop(signal = "SIGTERM") {
		if (!this.status)
			this.child.kill(signal);
		const status = await this.exited;
		await this.watcherGone();
		await this.relay.stop();
		assert.doesNotMatch(this.log + this.stderr, /Sanitizer|runtime error/, "no sanitizer report");
		rmSync(this.home, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
		return status;
	}

	/** The watcher removes its socket last of what can be seen. */
	async watcherGone() {
		const isAlive = () => readdirSync("/proc").some((pid) => {
			try {
				return /^\d+$/.test(pid) && readFileSync(`/proc/${pid}/environ`, "utf8").includes(`PERCH_HOME=${this.home}\0`) &&
					readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("fronted");
			} catch {
				return false;
			}
		});
		while (isAlive())
			await new Promise((resolve) => setTimeout(resolve, 20));
		await this.relay.heardOut(this.agentPub);
	}
}
