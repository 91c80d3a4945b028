/* Who this tab is to the broker: the token, and where the page stands.
 *
 * The token comes in the fragment, "#TOKEN" or "#TOKEN/lane/…", which browsers never send
 * anywhere. It is kept for the tab's life, handed to new tabs of this origin, and the
 * fragment becomes a plain route, so that a copied address holds no secret. */

import { effect, signal } from "@preact/signals";
import { bus } from "./bus";
import { offline } from "./offline";

/* query: how the reader has set a screen, so that a link shows the same. */
export type Route =
	| { screen: "fleet" }
	| {
			screen: "agent";
			lane: string;
			row: string | null;
			/* Where the row is, for one that may be far back. */
			pos: string | null;
			zoom: string | null;
	  }
	| { screen: Settable; query: string };
/* Screens that keep in their address how the reader has set them. */
export type Settable = "timeline" | "report" | "search" | "self";

export const token = signal<string | null>(null);
export const route = signal<Route>({ screen: "fleet" });

const KEY = "perch.token";

/* What the broker did not take: another tab may still offer it. */
const refusedTokens = new Set<string>();

function parseRoute(path: string): Route {
	const set = /^\/(timeline|report|search|self)(?:\?(.*))?$/.exec(path);
	if (set) return { screen: set[1] as Settable, query: set[2] ?? "" };
	const [place, query] = path.split("?") as [string, string?];
	const [, screen, agent, channel, row] = place.split("/").map(decodeURIComponent);
	if (screen === "lane" && agent && channel)
		return {
			screen: "agent",
			lane: `${agent}/${channel}`,
			row: row || null,
			pos: new URLSearchParams(query).get("at"),
			zoom: new URLSearchParams(query).get("zoom"),
		};
	return { screen: "fleet" };
}

export function routeTo(lane: string, row?: string | null, pos?: string): string {
	const [agent, channel] = [lane.slice(0, lane.indexOf("/")), lane.slice(lane.indexOf("/") + 1)];
	/* A channel is whatever a harness calls it. */
	return `#/lane/${agent}/${encodeURIComponent(channel)}${row ? `/${encodeURIComponent(row)}` : ""}${pos ? `?at=${pos}` : ""}`;
}

/* Keeps a screen's settings in the address without going anywhere. @step: "back" undoes it.
 * Whoever follows a link is elsewhere already, a moment before the screen is told. */
export function keepQuery(screen: Settable, query: URLSearchParams, step = false) {
	if (location.hash.split("?")[0] !== `#/${screen}`) return;
	const text = query.toString();
	const address = `#/${screen}${text ? `?${text}` : ""}`;
	history[step ? "pushState" : "replaceState"](null, "", address);
}

/* The same for how near a transcript is looked at; in detail is what no word says. */
export function keepZoom(zoom: string) {
	const [place, query] = location.hash.split("?");
	const said = new URLSearchParams(query);
	if (zoom === "detail") said.delete("zoom");
	else said.set("zoom", zoom);
	history.replaceState(null, "", said.size ? `${place}?${said}` : place);
}

function readFragment() {
	const fragment = location.hash.slice(1);
	const slash = fragment.indexOf("/");
	const given = slash < 0 ? fragment : fragment.slice(0, slash);
	const path = slash < 0 ? "/" : fragment.slice(slash);
	if (given && !offline.is) {
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
	if (offline.is) {
		token.value = "none is asked for";
		readFragment();
		addEventListener("hashchange", readFragment);
		return;
	}
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
