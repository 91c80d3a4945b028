// Events whose signatures wait to be checked while one of their readers goes.
import { test } from "node:test";
import { makeKey, now, sign } from "./support/keys.mjs";
import { Peer } from "./support/peer.mjs";
import { startRelay } from "./support/perch.mjs";

test("a reader that is gone in the turn in which others spoke is told nothing, and the relay lives on", async () => {
	const relay = await startRelay(), key = makeKey();
	const writer = await Peer.as(relay.url, key);
	for (let round = 0; round < 5; round++) {
		const reader = await Peer.as(relay.url, makeKey());
		reader.socket.send(JSON.stringify(["REQ", "all", { kinds: [20001] }]));
		await reader.next("EOSE", "all");
		relay.child.kill("SIGSTOP"); // what comes now comes in one turn
		for (let i = 0; i < 8; i++)
			writer.socket.send(JSON.stringify(["EVENT", sign(key, { kind: 20001, created_at: now(), tags: [], content: `${round} ${i}` })]));
		reader.socket.terminate();
		await reader.closed;
		relay.child.kill("SIGCONT");
		for (let i = 0; i < 8; i++)
			await writer.next("OK");
	}
	writer.socket.close();
	await relay.stop();
});
