import { signal } from "@preact/signals";

/* What the archive says that those are called which the fleet has not, by id of agent or lane. */
export const told = signal<ReadonlyMap<string, string>>(new Map());

export interface Names {
	agentName?: string;
	channelName?: string;
}
export function learnNames(lane: string, names: Names) {
	const was = told.peek();
	const now = new Map(was);
	if (names.agentName) now.set(lane.slice(0, 64), names.agentName);
	if (names.channelName) now.set(lane, names.channelName);
	for (const [id, name] of now)
		if (was.get(id) !== name) {
			told.value = now.size > 1000 ? new Map() : now;
			return;
		}
}
