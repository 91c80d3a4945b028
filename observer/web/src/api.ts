/* Requests to the broker. An error is a sentence that can be shown. */

import { offline } from "./offline";
import { dropToken, token } from "./session";

export async function request(path: string, init: RequestInit = {}): Promise<Response> {
	if (offline.is) return offline.is.ask(path);
	const bearer = token.value;
	if (!bearer) throw new Error("this tab has no token");
	let response: Response;
	try {
		response = await fetch(path, {
			...init,
			cache: "no-store",
			credentials: "omit",
			headers: { ...init.headers, Authorization: `Bearer ${bearer}` },
		});
	} catch (error) {
		if ((error as Error).name === "AbortError") throw error;
		throw new Error("the broker does not answer");
	}
	if (response.ok) return response;
	if (response.status === 401) dropToken(bearer);
	const said = (await response.json().catch(() => null)) as { error?: string } | null;
	throw new Error(said?.error ?? `the broker said ${response.status}`);
}

export async function getJson<T>(path: string): Promise<T> {
	return (await (await request(path)).json()) as T;
}

export interface ControlBody {
	agent: string;
	channel?: string;
	type:
		| "prompt"
		| "cancel_turn"
		| "release_queue"
		| "permission_decision"
		| "switch_model"
		| "set_mode"
		| "fetch_body";
	text?: string;
	card?: string;
	option?: string;
	model?: string;
	mode?: string;
	epoch?: string;
	seq?: number;
}

export async function control(body: ControlBody): Promise<string> {
	const response = await request("/api/control", {
		method: "POST",
		headers: { "Content-Type": "application/json" },
		body: JSON.stringify(body),
	});
	return ((await response.json()) as { requestId: string }).requestId;
}
