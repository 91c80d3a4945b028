/* A page that was written into a file asks nobody: replay.ts has what the broker would say. */

import type { Message } from "./types";

export interface Offline {
	snapshot: Message;
	/* Unix ms: what it tells of, and when it stood still. */
	from: number;
	to: number;
	now: number;
	/* Like a request; a refusal is an Error with a sentence. */
	ask(path: string): Promise<Response>;
}

export const offline: { is: Offline | null } = { is: null };
