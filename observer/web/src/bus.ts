/* The tabs of one browser talk over one BroadcastChannel. */

import type { Message } from "./types";
import type { Link } from "./store";

export type BusMessage =
	| { type: "token?" }
	| { type: "token"; token: string }
	| { type: "snapshot?" }
	| { type: "snapshot"; message: Message }
	| { type: "message"; message: Message }
	| { type: "link"; link: Link };

type Handler<T> = (message: Extract<BusMessage, { type: T }>) => void;

const channel = new BroadcastChannel("perch");
const handlers = new Map<string, Handler<never>>();

channel.onmessage = (event) => handlers.get(event.data.type)?.(event.data as never);

export const bus = {
	post(message: BusMessage) {
		channel.postMessage(message);
	},
	on<T extends BusMessage["type"]>(type: T, handler: Handler<T>) {
		handlers.set(type, handler as unknown as Handler<never>);
	},
};
