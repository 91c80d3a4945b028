// Real agents under `perch agent`, offline: their model is ours. Not part of the usual tests: they are
// fetched when asked for (./dev test real-agents), into $PERCH_REAL_AGENTS/node_modules.
import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { Harness } from "../program/support/harness.mjs";
import { FakeModel } from "./support/model.mjs";

const tee = fileURLToPath(new URL("support/tee.mjs", import.meta.url));
const bin = (name) => join(process.env.PERCH_REAL_AGENTS ?? "build/real-agents", "node_modules/.bin", name);

const agents = {
	"claude-agent-acp": {
		command: () => [bin("claude-agent-acp")],
		env: (model) => ({
			ANTHROPIC_BASE_URL: model.url, ANTHROPIC_API_KEY: "none", IS_SANDBOX: "1",
			CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
		}),
	},
	opencode: {
		command: () => [bin("opencode"), "acp"],
		env: () => ({ OPENCODE_DISABLE_AUTOUPDATE: "1", OPENCODE_DISABLE_MODELS_FETCH: "1" }),
		prepare(home, model) {
			mkdirSync(join(home, ".config/opencode"), { recursive: true });
			writeFileSync(join(home, ".config/opencode/opencode.json"), JSON.stringify({
				provider: { fake: { npm: "@ai-sdk/openai-compatible", name: "Fake", options: { baseURL: `${model.url}/v1`, apiKey: "none" }, models: { fake: { name: "Fake" } } } },
				model: "fake/fake", small_model: "fake/fake", permission: { bash: "ask" }, autoupdate: false, share: "disabled",
			}));
		},
	},
};

/** Joins neighbouring chunks that differ in their text alone, as the feed does with a burst. */
function joined(messages) {
	const out = [];
	for (const { dir, message } of messages) {
		const update = message.params?.update;
		const isChunk = /_chunk$/.test(update?.sessionUpdate ?? "") && typeof update.content?.text === "string";
		const frame = isChunk && JSON.stringify({ ...message, params: { ...message.params, update: { ...update, content: { ...update.content, text: "" } } } });
		const last = out.at(-1);
		if (isChunk && last?.frame === frame && last.dir === dir)
			last.text += update.content.text;
		else
			out.push(isChunk ? { dir, frame, text: update.content.text } : { dir, message });
	}
	return out;
}

/** What the owner was shown is what went over the pipe. */
function assertSame(harness, file) {
	const piped = readFileSync(file, "utf8").trim().split("\n").map((text) => JSON.parse(text));
	const events = harness.events.all.filter(({ kind }) => kind === "acp_read" || kind === "acp_write").sort((a, b) => a.seq - b.seq);
	let trimmed = 0;
	for (const dir of ["read", "write"]) {
		const ofPipe = joined(piped.filter((line) => line.dir === dir).map(({ line }) => ({ dir, message: JSON.parse(line) })));
		const shown = joined(events.filter(({ kind }) => kind === `acp_${dir}`).map(({ payload }) => ({ dir, message: payload })));
		assert.equal(shown.length, ofPipe.length, `${dir}: as many messages`);
		const marks = events.filter((event) => event.trimmed || event.redacted);
		trimmed += marks.length;
		if (marks.length === 0)
			assert.deepEqual(shown, ofPipe, dir);
	}
	return { lines: piped.length, events: events.length, trimmed };
}

for (const [name, agent] of Object.entries(agents)) {
	test(`${name}: a tool call allowed, one rejected, one cancelled while it waits`, { timeout: 300000 }, async (t) => {
		const home = mkdtempSync(join(tmpdir(), "perch-real-"));
		const model = await FakeModel.start("echo marker-from-tool > out.txt; cat out.txt", "write the marker");
		const file = join(home, "tee.jsonl");
		agent.prepare?.(home, model);
		const started = Date.now();
		const harness = await Harness.start([], {
			command: [process.execPath, tee, file, ...agent.command()],
			agentEnv: { HOME: home, XDG_CONFIG_HOME: join(home, ".config"), XDG_DATA_HOME: join(home, ".local/share"), XDG_CACHE_HOME: join(home, ".cache"), XDG_STATE_HOME: join(home, ".local/state"), ...agent.env(model) },
		});
		try {
			t.diagnostic(`ready after ${Date.now() - started} ms; initialize took ${harness.ofKind("agent_initialized")[0].payload.tookMs} ms`);
			const marker = join(harness.work, "out.txt");
			const decide = async (kind) => {
				const from = harness.mark;
				await harness.prompt("write the marker");
				const request = await harness.permission(from);
				assert.equal(request.authorization.actionable, true);
				const option = request.payload.params.options.find((one) => one.kind === kind);
				assert.ok(option, `${kind} among ${JSON.stringify(request.payload.params.options)}`);
				assert.equal((await harness.ask("permission_decision", { requestNonce: request.authorization.requestNonce, optionId: option.optionId })).status, "sent");
				return harness.completed(from);
			};

			const rejected = await decide("reject_once");
			t.diagnostic(`rejected: ${JSON.stringify(rejected)}`);
			assert.ok(!existsSync(marker), "nothing was written");

			const allowed = await decide("allow_once");
			t.diagnostic(`allowed: ${JSON.stringify(allowed)}`);
			assert.equal(allowed.stopReason, "end_turn");
			assert.equal(readFileSync(marker, "utf8"), "marker-from-tool\n");
			rmSync(marker);

			const from = harness.mark;
			await harness.prompt("write the marker");
			const request = await harness.permission(from);
			assert.equal((await harness.ask("cancel_turn")).status, "sent");
			const cancelled = await harness.completed(from);
			t.diagnostic(`cancelled: ${JSON.stringify(cancelled)}`);
			assert.equal(cancelled.cancelledBy, "owner");
			const answer = await harness.answer(request.authorization.requestNonce);
			assert.deepEqual(answer.payload.result.outcome, { outcome: "cancelled" });
			assert.ok(!existsSync(marker), "nothing was written");

			// The session is of use still.
			assert.equal((await decide("allow_once")).stopReason, "end_turn");
			assert.equal(harness.ofKind("agent_exited").length, 0);
			const { pid } = harness.ofKind("agent_initialized")[0].payload;
			t.diagnostic(`agent pid ${pid}, ${model.requests.length} requests to the model`);
			await harness.stop();
			t.diagnostic(`${JSON.stringify(assertSame(harness, file))}`);
		} finally {
			if (!harness.status)
				await harness.stop();
			await model.stop();
			rmSync(home, { recursive: true, force: true });
		}
	});
}
