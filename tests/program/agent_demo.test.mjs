// The demo agent, driven by a client on the official SDK.
import * as acp from "@agentclientprotocol/sdk";
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { Readable, Writable } from "node:stream";
import { test } from "node:test";
import { perchBin } from "./support/perch.mjs";

/** Runs `use(client, updates, sessions)` against a demo agent; `permit` answers its requests. */
async function withDemo(use, permit = () => "once") {
	const child = spawn(perchBin, ["demo-agent", "--speed", "20"], { stdio: ["pipe", "pipe", "inherit"] });
	const exited = once(child, "close");
	const updates = [];
	let woken = () => {};
	const app = acp.client({ name: "test" })
		.onNotification("session/update", async ({ params }) => {
			updates.push(params);
			woken();
		})
		.onRequest("session/request_permission", async ({ params }) => {
			const optionId = await permit(params);
			return { outcome: optionId ? { outcome: "selected", optionId } : { outcome: "cancelled" } };
		});
	await app.connectWith(acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout)), async (client) => {
		const hello = await client.request("initialize", { protocolVersion: 1, clientCapabilities: {} });
		assert.equal(hello.protocolVersion, 1);
		const until = async (matches) => {
			while (!updates.some(matches))
				await new Promise((resolve) => (woken = resolve));
		};
		const open = () => client.request("session/new", { cwd: "/", mcpServers: [] });
		await use({ client, updates, until, open });
	});
	child.stdin.end();
	const [code] = await exited;
	assert.equal(code, 0, "it ends with its stdin");
}

const prompt = (client, sessionId, text) => client.request("session/prompt", { sessionId, prompt: [{ type: "text", text }] });
const textOf = (updates) => updates.map(({ update }) => update).filter(({ sessionUpdate }) => sessionUpdate === "agent_message_chunk").map(({ content }) => content.text).join("");

test("it plays thought, plan, edits, terminal output, a failure and a permission", () => withDemo(async ({ client, updates, open }) => {
	const { sessionId, modes, configOptions } = await open();
	assert.equal(modes.availableModes.length, 2);
	assert.equal(configOptions[0].category, "model");
	assert.equal((await prompt(client, sessionId, "demo")).stopReason, "end_turn");
	const seen = updates.map(({ update }) => update);
	for (const kind of ["agent_thought_chunk", "agent_message_chunk", "plan", "tool_call", "tool_call_update", "usage_update"])
		assert.ok(seen.some(({ sessionUpdate }) => sessionUpdate === kind), kind);
	const diffs = seen.flatMap(({ content }) => Array.isArray(content) ? content : []).filter(({ type }) => type === "diff");
	assert.equal(new Set(diffs.map(({ path }) => path)).size, 2);
	assert.ok(seen.some(({ status }) => status === "failed"));
	assert.ok(JSON.stringify(seen).includes("\\u001b[3"));
	const last = seen.filter(({ sessionUpdate }) => sessionUpdate === "plan").at(-1);
	assert.ok(last.entries.every(({ status }) => status === "completed"));
}));

test("a refused permission leaves the command alone", () => withDemo(async ({ client, updates, open }) => {
	const { sessionId } = await open();
	assert.equal((await prompt(client, sessionId, "demo")).stopReason, "end_turn");
	assert.match(textOf(updates), /I left `build\/` alone/);
}, () => "no"));

test("the second session plays another script, and any other prompt is answered", () => withDemo(async ({ client, updates, open }) => {
	await open();
	const { sessionId } = await open();
	assert.equal((await prompt(client, sessionId, "demo")).stopReason, "end_turn");
	assert.match(textOf(updates), /install page/);
	assert.equal((await prompt(client, sessionId, "what is this?")).stopReason, "end_turn");
	assert.match(textOf(updates), /what is this\?.*\[marker 2\.2\]/s);
}));

test("a cancel ends it while it streams and while a permission waits", () => {
	let asked;
	const waits = new Promise((resolve) => (asked = resolve));
	let release;
	const held = new Promise((resolve) => (release = resolve));
	return withDemo(async ({ client, until, open }) => {
		const { sessionId } = await open();
		const first = prompt(client, sessionId, "demo");
		await until(({ update }) => update.sessionUpdate === "agent_thought_chunk");
		await client.notify("session/cancel", { sessionId });
		assert.equal((await first).stopReason, "cancelled");
		const second = prompt(client, sessionId, "demo");
		await waits;
		await client.notify("session/cancel", { sessionId });
		release(null);
		assert.equal((await second).stopReason, "cancelled");
		assert.equal((await prompt(client, sessionId, "still there?")).stopReason, "end_turn");
	}, () => {
		asked();
		return held;
	});
});

test("modes and models are set, strangers refused", () => withDemo(async ({ client, updates, open }) => {
	const { sessionId } = await open();
	await client.request("session/set_mode", { sessionId, modeId: "code" });
	assert.ok(updates.some(({ update }) => update.currentModeId === "code"));
	const { configOptions } = await client.request("session/set_config_option", { sessionId, configId: "model", value: "demo-large" });
	assert.equal(configOptions[0].currentValue, "demo-large");
	await assert.rejects(client.request("session/set_mode", { sessionId, modeId: "yolo" }), { code: -32602 });
	await assert.rejects(prompt(client, "nobody", "x"), { code: -32602 });
	await assert.rejects(client.request("_example.com/what", {}), { code: -32601 });
}));
