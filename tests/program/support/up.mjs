// `perch up` as tests need it: a home of its own, ports chosen by the system, the ready line awaited.
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { TIMEOUT_MS } from "./timeout.mjs";

export const PERCH = process.env.PERCH_BIN ?? new URL("../../../build/perch", import.meta.url).pathname;

export function makeHome() {
	return mkdtempSync(join(tmpdir(), "perch-test-"));
}

/** Resolves to what `check` gives once that is truthy; asks every 50 ms, and fails after `timeoutMs`. */
export async function until(check, what, timeoutMs = TIMEOUT_MS) {
	const end = Date.now() + timeoutMs;
	for (;;) {
		const got = await check();
		if (got)
			return got;
		if (Date.now() > end)
			throw new Error(`waited ${timeoutMs} ms for ${what}`);
		await new Promise((resolve) => setTimeout(resolve, 50));
	}
}

/** Those of a process that has ended: none. */
export function childrenOf(pid) {
	try {
		return readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim().split(/\s+/).filter(Boolean).map(Number);
	} catch {
		return [];
	}
}

export function isAlive(pid) {
	try {
		return !/^State:\s*[ZX]/m.test(readFileSync(`/proc/${pid}/status`, "utf8"));
	} catch {
		return false;
	}
}

/** argv of a process, or [] when it is gone. */
export function commandOf(pid) {
	try {
		return readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0").filter(Boolean);
	} catch {
		return [];
	}
}

/** All processes below `pid`, deepest last. */
export function descendantsOf(pid) {
	const out = [];
	for (const child of childrenOf(pid))
		out.push(child, ...descendantsOf(child));
	return out;
}

/** Every process whose environment names this home: what a test must not leave behind. */
export function processesOf(home) {
	return readdirSync("/proc").filter((name) => /^\d+$/.test(name)).map(Number).filter((pid) => {
		try {
			return readFileSync(`/proc/${pid}/environ`, "utf8").split("\0").includes(`PERCH_HOME=${home}`) && isAlive(pid);
		} catch {
			return false;
		}
	});
}

export class Up {
	constructor(args = [], { home = makeHome(), env = {}, keepHome = false } = {}) {
		this.home = home;
		this.keepHome = keepHome;
		this.env = { ...process.env, PERCH_HOME: home, XDG_RUNTIME_DIR: "", ...env };
		this.stdout = "";
		this.stderr = "";
		this.child = spawn(PERCH, ["up", "--listen", "127.0.0.1:0", "--relay-listen", "127.0.0.1:0", ...args],
			{ env: this.env, stdio: ["ignore", "pipe", "pipe"] });
		this.child.stdout.on("data", (data) => { this.stdout += data; });
		this.child.stderr.on("data", (data) => { this.stderr += data; });
		this.exited = new Promise((resolve) => {
			this.child.on("close", (code, signal) => { this.status = { code, signal }; resolve(this.status); });
		});
	}

	/** The page's address, once the ready line came. */
	async ready(timeoutMs = 60000) {
		const line = await until(() => {
			const found = this.stdout.match(/^perch: ready (http:\/\/\S+)$/m);
			if (!found && this.status)
				throw new Error(`perch up ended (${JSON.stringify(this.status)}): ${this.stderr}`);
			return found;
		}, "the ready line", timeoutMs);
		this.url = new URL(line[1]);
		this.token = this.url.hash.slice(1);
		return this;
	}

	async api(path, init = {}) {
		const response = await fetch(new URL(path, this.url), {
			...init, headers: { Authorization: `Bearer ${this.token}`, ...init.headers },
		});
		if (!response.ok)
			throw new Error(`${path}: ${response.status} ${await response.text()}`);
		return response.json();
	}

	control(body) {
		return this.api("/api/control", {
			method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" },
		});
	}

	fleet() {
		return this.api("/api/fleet");
	}

	/** Rows of a lane, newest page. */
	async rows(lane) {
		return (await this.api(`/api/rows?lane=${encodeURIComponent(lane)}&limit=1000`)).rows;
	}

	/** pid of the child that runs this subcommand. */
	part(name) {
		return childrenOf(this.child.pid).find((pid) => commandOf(pid)[1] === name);
	}

	perch(...args) {
		return new Promise((resolve) => {
			const child = spawn(PERCH, args, { env: this.env, stdio: ["ignore", "pipe", "pipe"] });
			let stdout = "", stderr = "";
			child.stdout.on("data", (data) => { stdout += data; });
			child.stderr.on("data", (data) => { stderr += data; });
			child.on("close", (code) => resolve({ code, stdout, stderr }));
		});
	}

	async stop() {
		if (!this.status)
			this.child.kill("SIGTERM");
		const status = await this.exited;
		if (!this.keepHome)
			rmSync(this.home, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
		return status;
	}
}
