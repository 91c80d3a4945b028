// Preloaded into every test file (see ../../../dev). A file whose tests have ended but which does
// not end, since a failed test left a process or a socket behind, would hold up the whole run: it
// is given a while for its after hooks, then says what is left, kills it, and fails.
import { readFileSync } from "node:fs";
import { after } from "node:test";

const GRACE_MS = Number(process.env.PERCH_TEST_GRACE_MS ?? 60000);

function descendantsOf(pid) {
	try {
		return readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").split(" ").filter(Boolean)
			.flatMap((child) => [Number(child), ...descendantsOf(child)]);
	} catch {
		return []; // it has ended
	}
}

function giveUp() {
	const pids = descendantsOf(process.pid);
	console.error(`${process.argv[1]}: its tests have ended, it has not: processes ${pids.join(" ") || "none"}, ` +
		`resources ${[...new Set(process.getActiveResourcesInfo())].join(" ")}`);
	for (const pid of pids) {
		try {
			process.kill(pid, "SIGKILL");
		} catch {} // ended meanwhile
	}
	process.exit(1);
}

// The runner itself loads this, too: it has no tests of its own.
if (process.env.NODE_TEST_CONTEXT)
	after(() => setTimeout(giveUp, GRACE_MS).unref());
