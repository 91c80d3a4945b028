/* Who this tab is to the broker: the token, and where the page stands.
 *
 * The token comes in the fragment, "#TOKEN" or "#TOKEN/lane/…", which browsers never send
 * anywhere. It is kept for the tab's life, handed to new tabs of this origin, and the
 * fragment becomes a plain route, so that a copied address holds no secret. */

import { effect, signal } from "@preact/signals";
import { bus } from "./bus";

/* query: how the reader has set a screen, so that a link shows the same. */
export type Route =
	| { screen: "fleet" }
	| { screen: "agent"; lane: string; row: string | null }
	| { screen: "timeline" | "report"; query: string };

export const token = signal<string | null>(null);
export const route = signal<Route>({ screen: "fleet" });

const KEY = "perch.token";

/* What the broker did not take: another tab may still offer it. */
const refusedTokens = new Set<string>();

function parseRoute(path: string): Route {
	const times = /^\/(timeline|report)(?:\?(.*))?$/.exec(path);
	if (times)
		return { screen: times[1] as "timeline" | "report", query: times[2] ?? "" };
	const [, screen, agent, channel, row] = path.split("/").map(decodeURIComponent);
	if (screen === "lane" && agent && channel)
		return { screen: "agent", lane: `${agent}/${channel}`, row: row || null };
	return { screen: "fleet" };
}

export function routeTo(lane: string, row?: string | null): string {
	const [agent, channel] = [lane.slice(0, lane.indexOf("/")), lane.slice(lane.indexOf("/") + 1)];
	/* A channel is whatever a harness calls it. */
	return `#/lane/${agent}/${encodeURIComponent(channel)}${row ? `/${encodeURIComponent(row)}` : ""}`;
}

/* Keeps a screen's settings in the address without going anywhere. */
export function keepQuery(screen: "timeline" | "report", query: URLSearchParams) {
	const text = query.toString();
	history.replaceState(null, "", `#/${screen}${text ? `?${text}` : ""}`);
}

function readFragment() {
	const fragment = location.hash.slice(1);
	const slash = fragment.indexOf("/");
	const given = slash < 0 ? fragment : fragment.slice(0, slash);
	const path = slash < 0 ? "/" : fragment.slice(slash);
	if (given) {
		history.replaceState(null, "", `#${path}`);
		refusedTokens.delete(given);
		token.value = given;
		bus.post({ type: "token", token: given });
	}
	try {
		route.value = parseRoute(path);
	} catch {
		route.value = { screen: "fleet" }; /* not percent-encoded as we do it */
	}
}

export function openSession() {
	token.value = sessionStorage.getItem(KEY);
	readFragment();
	addEventListener("hashchange", readFragment);
	effect(() => {
		if (token.value) sessionStorage.setItem(KEY, token.value);
		else sessionStorage.removeItem(KEY);
	});
	bus.on("token?", () => {
		if (token.value) bus.post({ type: "token", token: token.value });
	});
	bus.on("token", (message) => {
		if (!token.value && !refusedTokens.has(message.token))
			token.value = message.token;
	});
	if (!token.value) bus.post({ type: "token?" });
}

/* What the broker refused is no token any more. */
export function dropToken(refused: string) {
	refusedTokens.add(refused);
	if (token.value !== refused) return;
	token.value = null;
	bus.post({ type: "token?" });
}
