// The relay's messages as @nostrability/schemata describes them, which is not ours.
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import Ajv from "ajv";

const require = createRequire(import.meta.url);
const root = dirname(require.resolve("@nostrability/schemata/package.json"));
const ajv = new Ajv({ strict: false, allErrors: true, logger: false });
const load = (path) => ajv.compile(require(join(root, "dist/nips", path, "schema.json")));

const verbs = {
	EVENT: load("nip-01/messages/relay-event"),
	EOSE: load("nip-01/messages/relay-eose"),
	OK: load("nip-01/messages/relay-ok"),
	NOTICE: load("nip-01/messages/relay-notice"),
	CLOSED: load("nip-01/messages/relay-closed"),
	AUTH: load("nip-42/messages/relay-auth"),
	COUNT: load("nip-45/messages/relay-count"),
};

export const information = load("nip-11");

const PREFIXED = /^(duplicate|pow|blocked|rate-limited|invalid|restricted|mute|error|auth-required|unsupported): ./;

/** Fails unless a message from the relay is what its verb's schema says. */
export function assertMessage(message) {
	const valid = verbs[message[0]];
	if (!valid)
		throw new Error(`no relay sends ${JSON.stringify(message).slice(0, 200)}`);
	if (!valid(message))
		throw new Error(`${ajv.errorsText(valid.errors)} in ${JSON.stringify(message).slice(0, 500)}`);
	// The schema leaves out what NIP-01 asks of a refusal.
	if (message[0] === "OK" && !message[2] && !PREFIXED.test(message[3]))
		throw new Error(`no prefix in ${JSON.stringify(message)}`);
}
