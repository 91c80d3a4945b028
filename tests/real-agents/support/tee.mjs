// tee.mjs FILE COMMAND…: runs it with our stdin and stdout and writes down every line of both, one
// JSON object each: {dir: "write" (to the agent) | "read" (from it), line}.
import { spawn } from "node:child_process";
import { openSync, writeSync } from "node:fs";

const [file, command, ...args] = process.argv.slice(2);
const out = openSync(file, "w");
const child = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });

function pass(from, to, dir) {
	let rest = Buffer.alloc(0);
	from.on("data", (data) => {
		rest = Buffer.concat([rest, data]);
		for (let end; (end = rest.indexOf(10)) >= 0; rest = rest.subarray(end + 1))
			writeSync(out, JSON.stringify({ dir, line: rest.subarray(0, end).toString() }) + "\n");
		to.write(data);
	});
}

pass(process.stdin, child.stdin, "write");
process.stdin.on("end", () => child.stdin.end());
pass(child.stdout, process.stdout, "read");
child.stdin.on("error", () => {});
process.on("SIGTERM", () => child.kill("SIGTERM"));
child.on("exit", (code, signal) => {
	process.exitCode = code ?? 1;
	if (signal)
		process.exitCode = 1;
});
