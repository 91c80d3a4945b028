// `perch proxy` behind a real editor's client, acpx, with a tee on either side of it: what one side
// wrote is what the other read, byte for byte, whatever becomes of the relay.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { SmallRelay, scriptedAgent } from "./support/harness.mjs";
import { bytesToHex, makeKey, open } from "./support/keys.mjs";
import { perchBin, startRelay } from "./support/perch.mjs";
import { commandOf, processesOf, until } from "./support/up.mjs";

const acpx = fileURLToPath(new URL("../node_modules/acpx/dist/cli.js", import.meta.url));
const quote = (word) => `'${word.replaceAll("'", "'\\''")}'`;

/** Runs acpx once on `prompt`; resolves to {code, stdout, tee} of what passed each side. */
async function runEditor(home, owner, relayUrl, prompt, options = ["--approve-all"]) {
	const work = join(home, "work"), at = (name) => join(work, name);
	mkdirSync(work);
	mkdirSync(join(home, "keys"), { mode: 0o700 });
	writeFileSync(join(home, "keys/owner"), bytesToHex(owner.secret) + "\n", { mode: 0o600 });
	const agent = `tee ${at("inner.in")} | ${scriptedAgent.map(quote).join(" ")} | tee ${at("inner.out")}`;
	writeFileSync(at("agent.sh"), agent);
	writeFileSync(at("editor.sh"), `tee ${at("outer.in")} | ${quote(perchBin)} proxy --relay ${relayUrl} --name edited --tick-ms 40 -- sh ${at("agent.sh")} | tee ${at("outer.out")}`);
	const result = await new Promise((resolve) => execFile(process.execPath, [acpx, "--agent", `sh ${at("editor.sh")}`, "--format", "json", "--cwd", work, "--timeout", "60", ...options, "exec", prompt], {
		env: { ...process.env, HOME: home, PERCH_HOME: home, XDG_CONFIG_HOME: home },
	}, (error, stdout, stderr) => resolve({ code: error?.code ?? 0, stdout, stderr })));
	// The editor waits for none of those behind its agent, and a tee writes its file last.
	await until(() => !processesOf(home).some((pid) => commandOf(pid)[0] === "tee"), "the end of the tees");
	const read = (name) => readFileSync(at(name));
	return { ...result, tee: { outerIn: read("outer.in"), innerIn: read("inner.in"), outerOut: read("outer.out"), innerOut: read("inner.out") } };
}

function assertSame({ code, stderr, tee }) {
	assert.equal(code, 0, stderr);
	assert.ok(tee.innerIn.length > 200 && tee.innerOut.length > 200);
	assert.ok(tee.outerIn.equals(tee.innerIn), "what the editor wrote is what the agent read");
	assert.ok(tee.outerOut.equals(tee.innerOut), "what the agent wrote is what the editor read");
}

const script = "say hello é✓\nthink hm\nplan\ndiff\nunknown\nu2028\ncrlf\nblank\npermission\nheavy 50000 3\nusage 12\nsay done";

test("acpx and an agent with the proxy between them: the same bytes, and all of them in the feed", async () => {
	const home = mkdtempSync(join(tmpdir(), "perch-editor-")), owner = makeKey();
	const relay = await SmallRelay.start();
	try {
		const result = await runEditor(home, owner, relay.url, script);
		assertSame(result);
		await relay.log.wait((event) => event.kind === 24200 && JSON.parse(open(owner, event)).kind === "harness_stopping", "end of the feed");
		const events = relay.log.all.filter(({ kind }) => kind === 24200).flatMap((event) => {
			const plain = JSON.parse(open(owner, event));
			return plain.kind === "batch" ? plain.payload.events : [plain];
		});
		// What an urgent event overtook comes later: the order is that of seq.
		events.sort((a, b) => a.seq - b.seq);
		const seen = (kind, line) => events.some((event) => event.kind === kind && JSON.stringify(event.payload) === JSON.stringify(line));
		// The last lines of a closing connection are taken as they come: what was mirrored is what passed.
		for (const line of String(result.tee.innerIn).split("\n").filter(Boolean).map((text) => JSON.parse(text)))
			assert.ok(seen("acp_write", line), JSON.stringify(line).slice(0, 200));
		for (const line of String(result.tee.innerOut).split("\n").filter((text) => text.trim()).map((text) => JSON.parse(text)))
			assert.ok(line.params?.update?.sessionUpdate?.endsWith("_chunk") || seen("acp_read", line), JSON.stringify(line).slice(0, 200));
		const said = (type, lines) => lines.map(({ params }) => params?.update).filter((update) => update?.sessionUpdate === type).map(({ content }) => content.text).join("");
		const wrote = String(result.tee.innerOut).split("\n").filter((text) => text.trim()).map((text) => JSON.parse(text));
		assert.equal(said("agent_message_chunk", events.filter(({ kind }) => kind === "acp_read").map(({ payload }) => payload)), said("agent_message_chunk", wrote));
		const answer = events.find(({ kind, authorization }) => kind === "acp_write" && authorization);
		assert.deepEqual([answer.authorization.reason, answer.payload.result.outcome.outcome], ["editor", "selected"]);
		assert.equal(events.find(({ kind }) => kind === "turn_completed").payload.stopReason, "end_turn");
	} finally {
		await relay.stop();
		rmSync(home, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
	}
});

test("the relay stopped by SIGSTOP: the editor notices nothing", async () => {
	const home = mkdtempSync(join(tmpdir(), "perch-editor-"));
	const relay = await startRelay();
	try {
		relay.child.kill("SIGSTOP");
		assertSame(await runEditor(home, makeKey(), relay.url, script));
	} finally {
		relay.child.kill("SIGCONT");
		await relay.stop();
		rmSync(home, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
	}
});
