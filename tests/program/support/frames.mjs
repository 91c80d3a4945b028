// HTTP/2 frame by frame (RFC 9113, 4.1), for what no client library would send.
import tls from "node:tls";

export const TYPE = { DATA: 0, HEADERS: 1, PRIORITY: 2, RST_STREAM: 3, SETTINGS: 4, PUSH_PROMISE: 5, PING: 6, GOAWAY: 7, WINDOW_UPDATE: 8, CONTINUATION: 9 };
export const FLAG = { ACK: 1, END_STREAM: 1, END_HEADERS: 4 };
export const CODE = { NO_ERROR: 0, PROTOCOL_ERROR: 1, INTERNAL_ERROR: 2, FLOW_CONTROL_ERROR: 3, SETTINGS_TIMEOUT: 4, STREAM_CLOSED: 5, FRAME_SIZE_ERROR: 6, REFUSED_STREAM: 7, CANCEL: 8, ENHANCE_YOUR_CALM: 11 };
export const PREFACE = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");

export function frame(type, flags, stream, payload = Buffer.alloc(0)) {
	const head = Buffer.alloc(9);
	head.writeUIntBE(payload.length, 0, 3);
	head[3] = type;
	head[4] = flags;
	head.writeUInt32BE(stream, 5);
	return Buffer.concat([head, payload]);
}

export function u32(...numbers) {
	const out = Buffer.alloc(4 * numbers.length);
	numbers.forEach((number, i) => out.writeUInt32BE(number, 4 * i));
	return out;
}

/** An integer of HPACK (RFC 7541, 5.1) in the low `bits` of a byte that begins with `first`. */
function integer(first, bits, value) {
	const most = (1 << bits) - 1;
	if (value < most)
		return Buffer.from([first | value]);
	const bytes = [first | most];
	for (value -= most; value >= 128; value = Math.floor(value / 128))
		bytes.push(value % 128 | 128);
	return Buffer.from([...bytes, value]);
}

/** A field as a literal, never indexed, without Huffman's code (RFC 7541, 6.2.3). */
export function field(name, value) {
	const [n, v] = [Buffer.from(name), Buffer.from(value)];
	return Buffer.concat([Buffer.from([0x10]), integer(0, 7, n.length), n, integer(0, 7, v.length), v]);
}

/** The same, put into the table: entry 62 is the newest. */
export function indexedField(name, value) {
	const [n, v] = [Buffer.from(name), Buffer.from(value)];
	return Buffer.concat([Buffer.from([0x40]), integer(0, 7, n.length), n, integer(0, 7, v.length), v]);
}

export const headers = (fields) => Buffer.concat(Object.entries(fields).map(([name, value]) => field(name, value)));

/** A connection that has said hello, unless `raw`. */
export class Frames {
	frames = [];
	closed = false;
	#rest = Buffer.alloc(0);
	#waiting = new Set();
	#next = 1;

	static async connect(port, { raw = false, settings = Buffer.alloc(0), host = "127.0.0.1" } = {}) {
		const peer = new Frames();
		peer.authority = `${host}:${port}`;
		peer.socket = tls.connect({ port, host, ALPNProtocols: ["h2"], rejectUnauthorized: false });
		peer.socket.on("data", (piece) => peer.#take(piece)).on("error", () => {}).on("close", () => {
			peer.closed = true;
			peer.#wake();
		});
		await new Promise((resolve, reject) => peer.socket.once("secureConnect", resolve).once("error", reject));
		if (!raw)
			peer.write(PREFACE, frame(TYPE.SETTINGS, 0, 0, settings));
		return peer;
	}

	#take(piece) {
		this.#rest = Buffer.concat([this.#rest, piece]);
		while (this.#rest.length >= 9 && this.#rest.length >= 9 + this.#rest.readUIntBE(0, 3)) {
			const end = 9 + this.#rest.readUIntBE(0, 3);
			const one = { type: this.#rest[3], flags: this.#rest[4], stream: this.#rest.readUInt32BE(5), payload: this.#rest.subarray(9, end) };
			this.#rest = this.#rest.subarray(end);
			this.frames.push(one);
			if (one.type === TYPE.SETTINGS && !(one.flags & FLAG.ACK))
				this.onSettings();
		}
		this.#wake();
	}

	/** A test's to replace. */
	onSettings() {
		this.write(frame(TYPE.SETTINGS, FLAG.ACK, 0));
	}

	#wake() {
		for (const look of [...this.#waiting])
			look();
	}

	write(...buffers) {
		if (!this.closed)
			this.socket.write(Buffer.concat(buffers));
	}

	/** The next stream's id. */
	id() {
		this.#next += 2;
		return this.#next - 2;
	}

	head(path, more = {}, method = "GET") {
		return headers({ ":method": method, ":scheme": "https", ":path": path, ":authority": this.authority, ...more });
	}

	/** A request without a body; its stream. */
	get(path, more) {
		const id = this.id();
		this.write(frame(TYPE.HEADERS, FLAG.END_HEADERS | FLAG.END_STREAM, id, this.head(path, more)));
		return id;
	}

	/** Until `find()` gives something. */
	until(find, what = String(find), timeoutMs = 90000) {
		return new Promise((resolve, reject) => {
			const timer = setTimeout(() => {
				this.#waiting.delete(look);
				reject(new Error(`never: ${what}; came: ${JSON.stringify(this.frames.map(({ type, flags, stream, payload }) => [type, flags, stream, payload.length])).slice(-2000)}`));
			}, timeoutMs);
			const look = () => {
				const found = find();
				if (!found)
					return;
				clearTimeout(timer);
				this.#waiting.delete(look);
				resolve(found);
			};
			this.#waiting.add(look);
			look();
		});
	}

	of(type, stream) {
		return this.frames.filter((one) => one.type === type && (stream === undefined || one.stream === stream));
	}

	/** The code of the GOAWAY, and the end of the connection. */
	async goaway() {
		const one = await this.until(() => this.of(TYPE.GOAWAY).at(-1), "GOAWAY");
		await this.until(() => this.closed, "the end of the connection");
		return one.payload.readUInt32BE(4);
	}

	async reset(stream) {
		return (await this.until(() => this.of(TYPE.RST_STREAM, stream)[0], `RST_STREAM of ${stream}`)).payload.readUInt32BE(0);
	}

	/** The answer's body once it is whole. */
	async body(stream) {
		await this.until(() => this.frames.some((one) => one.stream === stream && (one.type === TYPE.DATA || one.type === TYPE.HEADERS) && one.flags & FLAG.END_STREAM), `the end of ${stream}`);
		return Buffer.concat(this.of(TYPE.DATA, stream).map(({ payload }) => payload)).toString();
	}

	close() {
		this.socket.destroy();
	}
}
