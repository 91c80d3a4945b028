// The clients of nostr-tools, which give up on a relay after few seconds; here they wait as long as all others do.
import { SimplePool as Pool, useWebSocketImplementation as useInPool } from "nostr-tools/pool";
import { Relay as Client, useWebSocketImplementation as useInRelay } from "nostr-tools/relay";
import WebSocket from "ws";
import { TIMEOUT_MS } from "./timeout.mjs";

useInPool(WebSocket);
useInRelay(WebSocket);

function makePatient(relay) {
	const prepare = relay.prepareSubscription.bind(relay);
	Object.assign(relay, { publishTimeout: TIMEOUT_MS, baseEoseTimeout: TIMEOUT_MS });
	relay.prepareSubscription = (...args) => {
		const subscription = prepare(...args), fire = subscription.fire.bind(subscription);
		subscription.fire = () => {
			fire();
			subscription.eoseTimeoutHandle.unref(); // what is closed before its EOSE forgets to clear it
		};
		return subscription;
	};
}

export class Relay extends Client {
	constructor(url) {
		super(url);
		makePatient(this);
	}

	static async connect(url) {
		const relay = new Relay(url);
		await relay.connect();
		return relay;
	}
}

export class SimplePool extends Pool {
	constructor(options) {
		super({ maxWaitForConnection: TIMEOUT_MS, ...options });
	}

	async ensureRelay(...args) {
		const relay = await super.ensureRelay(...args);
		if (relay.baseEoseTimeout !== TIMEOUT_MS)
			makePatient(relay);
		return relay;
	}
}
