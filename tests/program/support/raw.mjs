// A WebSocket client that can break every rule: frames are built bit by bit.
import net from "node:net";
import { assertMessage } from "./schemas.mjs";
import { TIMEOUT_MS } from "./timeout.mjs";

/** One client frame; what is left out is as it should be. `length` may lie about the payload. */
export function frame({ opcode = 1, fin = true, rsv = 0, masked = true, payload = "", length } = {}) {
	const body = Buffer.from(payload);
	const len = length ?? body.length;
	const head = [(fin ? 0x80 : 0) | (rsv << 4) | opcode];
	const bit = masked ? 0x80 : 0;
	if (len < 126) head.push(bit | len);
	else if (len < 65536) head.push(bit | 126, len >> 8, len & 0xff);
	else head.push(bit | 127, ...[56, 48, 40, 32, 24, 16, 8, 0].map((shift) => Number((BigInt(len) >> BigInt(shift)) & 255n)));
	const mask = [0x37, 0xfa, 0x21, 0x3d];
	const data = masked ? body.map((byte, i) => byte ^ mask[i % 4]) : body;
	return Buffer.concat([Buffer.from(head), masked ? Buffer.from(mask) : Buffer.alloc(0), data]);
}

export const text = (value, more) => frame({ payload: typeof value === "string" ? value : JSON.stringify(value), ...more });
export const close = (code, reason = "") =>
	frame({ opcode: 8, payload: Buffer.concat([Buffer.from([code >> 8, code & 255]), Buffer.from(reason)]) });

export class Raw {
	frames = []; // {opcode, payload} not looked at yet
	#bytes = Buffer.alloc(0);
	#upgraded = false;
	#waiting = [];

	/** Connects; `handshake: false` says nothing. */
	static async open(port, { handshake = true } = {}) {
		const raw = new Raw();
		raw.socket = net.connect(port, "127.0.0.1");
		raw.socket.on("error", () => {});
		raw.ended = new Promise((resolve) => raw.socket.on("close", resolve));
		raw.socket.on("data", (bytes) => raw.#receive(bytes));
		raw.socket.on("close", () => raw.#settle());
		await new Promise((resolve, reject) => {
			raw.socket.once("connect", resolve);
			raw.socket.once("error", reject);
		});
		if (handshake) {
			raw.socket.write("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
				"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n");
			await raw.message("AUTH");
		}
		return raw;
	}

	#receive(bytes) {
		this.#bytes = Buffer.concat([this.#bytes, bytes]);
		if (!this.#upgraded) {
			const end = this.#bytes.indexOf("\r\n\r\n");
			if (end < 0) return;
			this.response = String(this.#bytes.subarray(0, end));
			this.#upgraded = true;
			this.#bytes = this.#bytes.subarray(end + 4);
		}
		for (;;) {
			if (this.#bytes.length < 2) break;
			let len = this.#bytes[1] & 0x7f, at = 2;
			if (len >= 126) {
				at = len === 126 ? 4 : 10;
				if (this.#bytes.length < at) break;
				len = len === 126 ? this.#bytes.readUInt16BE(2) : Number(this.#bytes.readBigUInt64BE(2));
			}
			if (this.#bytes.length < at + len) break;
			this.frames.push({ opcode: this.#bytes[0] & 15, payload: Buffer.from(this.#bytes.subarray(at, at + len)) });
			this.#bytes = this.#bytes.subarray(at + len);
		}
		this.#settle();
	}

	#settle() {
		this.#waiting = this.#waiting.filter(({ matches, resolve, reject }) => {
			const i = this.frames.findIndex(matches);
			if (i >= 0) resolve(this.frames.splice(i, 1)[0]);
			else if (this.socket.destroyed) reject(new Error("the connection ended without it"));
			else return true;
			return false;
		});
	}

	/** The next frame that matches; fails if the connection ends without one. */
	async next(matches) {
		let timer;
		const found = new Promise((resolve, reject) => {
			timer = setTimeout(() => reject(new Error(`not among ${this.frames.length} frames`)), TIMEOUT_MS);
			this.#waiting.push({ matches, resolve, reject });
			this.#settle();
		});
		return found.finally(() => clearTimeout(timer));
	}

	/** The next text message with this verb. */
	async message(verb) {
		const { payload } = await this.next(({ opcode, payload }) => opcode === 1 && JSON.parse(payload)[0] === verb);
		assertMessage(JSON.parse(payload));
		return JSON.parse(payload);
	}

	/** The code and reason of the close frame; undefined code for an empty one. */
	async close() {
		const { payload } = await this.next(({ opcode }) => opcode === 8);
		return { code: payload.length ? payload.readUInt16BE(0) : undefined, reason: String(payload.subarray(2)) };
	}

	send(...frames) {
		this.socket.write(Buffer.concat(frames));
	}

	/** True if a REQ is still answered. */
	async answers() {
		this.send(text(["REQ", "alive", { kinds: [20001], limit: 0 }]));
		return (await this.message("EOSE"))[1] === "alive";
	}

	end() {
		this.socket.destroy();
		return this.ended;
	}
}
