// Faults of the machine: a network that is cut, a disk that is full, a clock that jumps. All of it
// happens in namespaces of our own, where this file runs once more.
import assert from "node:assert/strict";
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { assertEqualsJournal, assertOnce, count, kindCount, laneOf, markersOf, pause, prompt, prompts, startAgent, untilExport }
	from "./support/faults.mjs";
import { makeHome, startObserver } from "./support/observer.mjs";
import { startRelay } from "./support/perch.mjs";

const inside = process.env.PERCH_TEST_NAMESPACE === "1";
const unshare = process.getuid() === 0 ? ["-nm"] : ["-Urnm"];
const lacking = spawnSync("unshare", [...unshare, "sh", "-c", "ip link set lo up && mount -t tmpfs none /mnt"]).status !== 0 &&
	"no network and mount namespaces here";
const faketime = readdirSync("/usr/lib").map((folder) => `/usr/lib/${folder}/faketime/libfaketimeMT.so.1`).find(existsSync);

if (!inside)
	test("faults of the machine, in namespaces of our own", { skip: lacking }, async () => {
		const env = { ...process.env, PERCH_TEST_NAMESPACE: "1" };
		delete env.NODE_TEST_CONTEXT; // else the inner run speaks to the outer one's reporter
		const child = spawn("unshare", [...unshare, "sh", "-c", 'ip link set lo up && exec "$@"', "sh",
			process.execPath, "--test", "--test-reporter=tap", fileURLToPath(import.meta.url)], { env, stdio: ["ignore", "pipe", "inherit"] });
		let text = "";
		child.stdout.setEncoding("utf8").on("data", (piece) => (text += piece));
		const [code] = await once(child, "close");
		assert.equal(code, 0, text);
		console.log(text.split("\n").filter((line) => /^ *(ok|not ok) /.test(line)).join("\n"));
	});

/** All markers, in order, once, from one prompt; nothing given up. */
async function assertWhole(home, markers, turns) {
	const found = await untilExport(home, (all) =>
		markersOf(all.events).length === markers && kindCount(all, "turn_completed") === turns);
	assert.deepEqual(markersOf(found.events), count(markers));
	assert.equal(kindCount(found, "turn_completed"), turns);
	assert.equal(prompts(found), turns, "each prompt ran once");
	assert.deepEqual(found.gone, []);
	assertOnce(found);
}

const sh = (script) => execFileSync("sh", ["-c", script]);

// Longer by hand: PERCH_TEST_PARTITION_S=200. 33 s are more than a frame may wait for its OK.
const PARTITION_MS = 1000 * Number(process.env.PERCH_TEST_PARTITION_S ?? 33);

test("a network that is cut while the agent works loses nothing", { skip: !inside }, async () => {
	const home = makeHome();
	const holder = spawn("unshare", ["-n", "sleep", "600"], { stdio: "ignore" });
	while (sh(`readlink /proc/${holder.pid}/ns/net`).equals(sh("readlink /proc/self/ns/net")))
		await pause(50);
	sh(`ip link add name near type veth peer name far netns ${holder.pid} && ip addr add 10.77.7.1/30 dev near && ip link set near up &&
		nsenter -t ${holder.pid} -n sh -c 'ip link set lo up && ip addr add 10.77.7.2/30 dev far && ip link set far up'`);
	const relay = await startRelay(["--listen", "0.0.0.0:0", "--owners", "open"]);
	const observer = await startObserver(relay.url, home);
	const agent = await startAgent(`ws://10.77.7.1:${relay.port}`, home, { inside: ["nsenter", "-t", String(holder.pid), "-n"] });
	await prompt(observer, await laneOf(observer), "markers 300 40");
	await untilExport(home, ({ events }) => markersOf(events).length > 0);
	sh("ip link set near down");
	await pause(PARTITION_MS);
	sh("ip link set near up");
	await assertWhole(home, 300, 1);
	await assertEqualsJournal(relay.url, home);
	await agent.stop();
	await observer.end();
	await relay.stop();
	holder.kill("SIGKILL");
	home.remove();
});

test("what the archive's disk had no room for comes from the journal once there is some", { skip: !inside }, async () => {
	const home = makeHome(), agentHome = makeHome(home.owner), relay = await startRelay();
	sh(`mkdir ${home.dir}/keep && cp -a ${home.dir}/keys ${home.dir}/keep/ && mount -t tmpfs -o size=700k,mode=700 none ${home.dir}`);
	execFileSync("cp", ["-a", join(agentHome.dir, "keys"), home.dir]);
	const observer = await startObserver(relay.url, home);
	const agent = await startAgent(relay.url, agentHome);
	const page = await observer.page();
	await prompt(observer, await laneOf(observer), "markers 20 5\nnoise 40 20000\nmarkers 40 5");
	const reason = await page.until(({ health }) => health?.archive.state === "failing" && health.archive.reason);
	assert.match(reason, /full/);
	await page.until(({ lanes }) => lanes?.find(({ turn }) => turn?.state === "completed")); // shown all the same
	sh(`mount -o remount,size=64m ${home.dir}`);
	await prompt(observer, await laneOf(observer), "say room again");
	await page.until(({ health }) => health?.archive.state === "ok");
	page.close();
	const found = await untilExport(home, (all) => kindCount(all, "turn_completed") === 2 && markersOf(all.events).length >= 60);
	assert.equal(kindCount(found, "turn_completed"), 2);
	assert.equal(prompts(found), 2);
	assert.deepEqual(found.gone, []);
	assertOnce(found);
	await assertEqualsJournal(relay.url, home);
	await agent.stop();
	await observer.end();
	await relay.stop();
	sh(`umount ${home.dir}`);
	agentHome.remove();
	home.remove();
});

for (const victim of ["agent", "observer"])
	test(`${victim === "agent" ? "an agent" : "an observer"}'s clock that jumps ten minutes ahead, and back, loses nothing`, {
		skip: !inside || (!faketime && "no libfaketime here (Debian package faketime)"),
	}, async () => {
		const home = makeHome(), relay = await startRelay(), clock = join(home.dir, "clock");
		writeFileSync(clock, "+0\n");
		const jumping = {
			LD_PRELOAD: faketime, FAKETIME_TIMESTAMP_FILE: clock, FAKETIME_NO_CACHE: "1", FAKETIME_DONT_FAKE_MONOTONIC: "1",
			ASAN_OPTIONS: `${process.env.ASAN_OPTIONS ?? ""}:verify_asan_link_order=0`,
		};
		const envOf = (who) => (who === victim ? jumping : {});
		const observer = await startObserver(relay.url, home, [], envOf("observer"));
		const agent = await startAgent(relay.url, home, { env: envOf("agent") });
		await prompt(observer, await laneOf(observer), "markers 300 30");
		await untilExport(home, ({ events }) => markersOf(events).length > 0);
		for (const jump of ["+600", "-600", "+0"]) {
			writeFileSync(clock, `${jump}\n`);
			await pause(2500);
			const answer = await prompt(observer, await laneOf(observer), "say and on");
			assert.equal(answer.status, 202, answer.text);
		}
		await assertWhole(home, 300, 4);
		await agent.stop();
		await observer.end();
		await relay.stop();
		home.remove();
	});
