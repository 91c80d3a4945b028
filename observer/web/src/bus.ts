/* The tabs of one browser talk over one BroadcastChannel. */

import type { Message } from "./types";
import type { Link } from "./store";

export type BusMessage =
	| { type: "token?" }
	| { type: "token"; token: string }
	| { type: "snapshot?" }
	| { type: "snapshot"; message: Message }
	| { type: "message"; message: Message; since: number }
	| { type: "link"; link: Link; since: number }
	/* Is the tab that reads for all awake? */
	| { type: "awake?" }
	| { type: "awake" };

type Handler<T> = (message: Extract<BusMessage, { type: T }>) => void;

const channel = new BroadcastChannel("perch");
const handlers = new Map<string, Handler<never>>();

/* Another tab was heard. Each says something when it opens, so until then there is none. */
let heard = false;

channel.onmessage = (event) => {
	heard = true;
	handlers.get(event.data.type)?.(event.data as never);
};

export const bus = {
	/* What comes all the time is not copied for nobody. */
	get hears() {
		return heard;
	},
	post(message: BusMessage) {
		channel.postMessage(message);
	},
	on<T extends BusMessage["type"]>(type: T, handler: Handler<T>) {
		handlers.set(type, handler as unknown as Handler<never>);
	},
};
