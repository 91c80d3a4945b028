// A model on loopback, enough of Anthropic's messages and OpenAI's chat completions for a coding
// agent to run whole turns without a network: whatever is asked, it wants to run one shell command,
// and once it has the result it says that it is done.
import { once } from "node:events";
import { createServer } from "node:http";

export class FakeModel {
	requests = []; // {url, body}
	#calls = 0;

	/** @param command what it wants to run, @param prompt what makes it want to */
	static async start(command, prompt) {
		const model = new FakeModel();
		Object.assign(model, { command, prompt });
		model.server = createServer((request, response) => model.#serve(request, response));
		model.server.listen(0, "127.0.0.1");
		await once(model.server, "listening");
		model.url = `http://127.0.0.1:${model.server.address().port}`;
		return model;
	}

	async #serve(request, response) {
		let text = "";
		for await (const piece of request.setEncoding("utf8"))
			text += piece;
		const body = text ? JSON.parse(text) : {};
		this.requests.push({ url: request.url, body });
		if (request.url.includes("count_tokens"))
			this.#json(response, { input_tokens: 10 });
		else if (request.url.includes("/messages"))
			this.#messages(body, response);
		else if (request.url.includes("/chat/completions"))
			this.#chat(body, response);
		else if (request.url.includes("/models"))
			this.#json(response, { object: "list", data: [{ id: "fake", object: "model" }] });
		else
			this.#json(response, { error: { message: `no ${request.url} here` } }, 404);
	}

	#json(response, value, status = 200) {
		response.writeHead(status, { "content-type": "application/json" });
		response.end(JSON.stringify(value));
	}

	#stream(response, events) {
		response.writeHead(200, { "content-type": "text/event-stream" });
		for (const { event, data } of events)
			response.write(`${event ? `event: ${event}\n` : ""}data: ${typeof data === "string" ? data : JSON.stringify(data)}\n\n`);
		response.end();
	}

	get #input() {
		return { command: this.command, description: "Write a marker file" };
	}

	/**
	 * Anthropic: a tool call unless a tool's result stands behind the newest prompt, or there are no
	 * tools. A call that was interrupted has a result too, in the same message as the next prompt.
	 */
	#messages(body, response) {
		const blocks = (body.messages ?? []).flatMap(({ content }) => (Array.isArray(content) ? content : [{ type: "text", text: content }]));
		const isPrompt = ({ type, text }) => type === "text" && text.includes(this.prompt);
		const answered = blocks.findLastIndex(({ type }) => type === "tool_result") > blocks.findLastIndex(isPrompt);
		const tool = !answered && (body.tools ?? []).some(({ name }) => name === "Bash");
		const id = `msg_${++this.#calls}`;
		const usage = { input_tokens: 10, output_tokens: 5 };
		const text = tool ? "I will run a command — ünïcode ✓." : "Done: the marker was looked after.";
		if (!body.stream) {
			this.#json(response, { id, type: "message", role: "assistant", model: body.model, content: [{ type: "text", text: "A title" }], stop_reason: "end_turn", stop_sequence: null, usage });
			return;
		}
		const at = (type, members) => ({ event: type, data: { type, ...members } });
		this.#stream(response, [
			at("message_start", { message: { id, type: "message", role: "assistant", model: body.model, content: [], stop_reason: null, stop_sequence: null, usage } }),
			at("content_block_start", { index: 0, content_block: { type: "text", text: "" } }),
			...text.match(/.{1,12}/gu).map((piece) => at("content_block_delta", { index: 0, delta: { type: "text_delta", text: piece } })),
			at("content_block_stop", { index: 0 }),
			...(tool ? [
				at("content_block_start", { index: 1, content_block: { type: "tool_use", id: `toolu_${this.#calls}`, name: "Bash", input: {} } }),
				at("content_block_delta", { index: 1, delta: { type: "input_json_delta", partial_json: JSON.stringify(this.#input) } }),
				at("content_block_stop", { index: 1 }),
			] : []),
			at("message_delta", { delta: { stop_reason: tool ? "tool_use" : "end_turn", stop_sequence: null }, usage: { output_tokens: 5 } }),
			at("message_stop", {}),
		]);
	}

	/** OpenAI: the same. */
	#chat(body, response) {
		const answered = body.messages?.at(-1)?.role === "tool";
		const tool = answered ? undefined : (body.tools ?? []).map(({ function: f }) => f?.name).find((name) => /^(bash|shell)/i.test(name));
		const base = { id: `chat_${++this.#calls}`, object: "chat.completion.chunk", created: 1, model: body.model };
		const usage = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 };
		const text = tool ? "I will run a command — ünïcode ✓." : body.tools?.length ? "Done: the marker was looked after." : "A title";
		const piece = (delta, finish_reason = null) => ({ data: { ...base, choices: [{ index: 0, delta, finish_reason }] } });
		if (!body.stream) {
			this.#json(response, { ...base, object: "chat.completion", choices: [{ index: 0, message: { role: "assistant", content: text }, finish_reason: "stop" }], usage });
			return;
		}
		this.#stream(response, [
			piece({ role: "assistant", content: "" }),
			...text.match(/.{1,12}/gu).map((content) => piece({ content })),
			...(tool ? [
				piece({ tool_calls: [{ index: 0, id: `call_${this.#calls}`, type: "function", function: { name: tool, arguments: "" } }] }),
				piece({ tool_calls: [{ index: 0, function: { arguments: JSON.stringify(this.#input) } }] }),
			] : []),
			piece({}, tool ? "tool_calls" : "stop"),
			{ data: { ...base, choices: [], usage } },
			{ data: "[DONE]" },
		]);
	}

	async stop() {
		this.server.closeAllConnections();
		this.server.close();
		await once(this.server, "close");
	}
}
