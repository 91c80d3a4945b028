// node stutter.mjs SEED COMMAND…: runs it while single processes below it stand still now and then for 30 to 900 ms, as
// they do on a busy host: what a test takes for granted then shows. Ends as the command does. `./dev test` runs by it
// when PERCH_TEST_STUTTER is a seed.
import { spawn } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { constants } from "node:os";
import { setTimeout as rest } from "node:timers/promises";

const [seed, ...command] = process.argv.slice(2);
if (!/^\d+$/.test(seed ?? "") || !command.length) {
	console.error("usage: node stutter.mjs SEED COMMAND…");
	process.exit(2);
}

// mulberry32: the schedule is the seed's, as far as processes allow
let state = Number(seed) >>> 0;
function random() {
	state = (state + 0x6d2b79f5) >>> 0;
	let t = Math.imul(state ^ (state >>> 15), state | 1);
	t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
	return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
}
const between = (least, most) => least + random() * (most - least);

/** Its state (a letter) and parent, as proc(5) has them. */
function statOf(pid) {
	try {
		const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
		const [letter, parent] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
		return { letter, parent: Number(parent) };
	} catch {
		return null; // it has ended
	}
}

// Of whom a parent ended, its children stay: they were seen before.
const known = new Set([process.pid]);
function below() {
	const all = readdirSync("/proc").filter((name) => /^\d+$/.test(name)).map(Number).sort((a, b) => a - b);
	const parents = new Map(all.map((pid) => [pid, statOf(pid)?.parent]));
	for (const pid of known)
		if (!parents.has(pid)) known.delete(pid);
	for (let size = 0; size !== known.size;) {
		size = known.size;
		for (const [pid, parent] of parents)
			if (known.has(parent)) known.add(pid);
	}
	return [...known].filter((pid) => pid !== process.pid);
}

const child = spawn(command[0], command.slice(1), { stdio: "inherit" });
const ended = new Promise((resolve) => {
	child.on("error", (error) => { console.error(`stutter: ${error.message}`); resolve(127); });
	child.on("exit", (code, signal) => resolve(code ?? 128 + constants.signals[signal]));
});
let running = true;
ended.then(() => { running = false; });

let stops = 0, still = 0;
for (const signal of ["SIGINT", "SIGTERM"])
	process.on(signal, () => {
		if (still) process.kill(still, "SIGCONT");
		child.kill(signal);
	});
while (running) {
	await rest(between(20, 250));
	const pids = below();
	const pid = pids[Math.floor(random() * pids.length)];
	// What a test stopped itself stays so.
	if (!pid || !running || "TtZX".includes(statOf(pid)?.letter ?? "X")) continue;
	try {
		process.kill(pid, "SIGSTOP");
		still = pid;
		stops++;
		await rest(between(30, random() < 0.2 ? 900 : 250));
		process.kill(pid, "SIGCONT");
	} catch {} // it has ended meanwhile
	still = 0;
}
console.error(`stutter: seed ${seed}, ${stops} stops`);
process.exit(await ended);
