// A browser's way to a broker by HTTP/2, on Node's own client.
import { once } from "node:events";
import http2 from "node:http2";
import { Page } from "./observer.mjs";

export class H2 {
	goaways = [];

	/** `options` as of http2.connect. */
	static async connect(observer, options = {}) {
		const client = new H2();
		client.observer = observer;
		client.session = http2.connect(observer.tlsUrl, { rejectUnauthorized: false, ...options });
		client.session.on("error", () => {}).on("goaway", (code) => client.goaways.push(code));
		await once(client.session, "connect");
		return client;
	}

	get token() {
		return { authorization: `Bearer ${this.observer.token}` };
	}

	/** The stream of a request, and what its answer's headers are. */
	async open(path, { headers = {}, body, method = body === undefined ? "GET" : "POST" } = {}) {
		const stream = this.session.request({ ":path": path, ":method": method, ...headers }, { endStream: body === undefined });
		stream.on("error", () => {});
		if (body !== undefined)
			stream.end(body);
		const [answer] = await once(stream, "response");
		return { stream, answer };
	}

	async request(path, options) {
		const { stream, answer } = await this.open(path, options);
		const pieces = [];
		for await (const piece of stream)
			pieces.push(piece);
		const bytes = Buffer.concat(pieces);
		return { status: answer[":status"], headers: answer, bytes, text: bytes.toString(), json: () => JSON.parse(bytes.toString()) };
	}

	get(path, headers = {}) {
		return this.request(path, { headers: { ...this.token, ...headers } });
	}

	post(body, headers = {}) {
		return this.request("/api/control", {
			body: typeof body === "string" ? body : JSON.stringify(body),
			headers: { ...this.token, "content-type": "application/json", ...headers },
		});
	}

	async page(cursor) {
		const { stream, answer } = await this.open(`/api/stream${cursor ? `?cursor=${encodeURIComponent(cursor)}` : ""}`, { headers: this.token });
		if (answer[":status"] !== 200)
			throw new Error(`the stream was answered ${answer[":status"]}`);
		return new Page(stream, stream);
	}

	close() {
		this.session.destroy();
	}
}
