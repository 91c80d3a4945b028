// Keys, attestations and frames, made by nostr-tools and noble, not by us.
import { schnorr } from "@noble/curves/secp256k1.js";
import { sha256 } from "@noble/hashes/sha2.js";
import { bytesToHex, hexToBytes, utf8ToBytes } from "@noble/hashes/utils.js";
import { finalizeEvent, generateSecretKey, getPublicKey } from "nostr-tools/pure";
import { v2 as nip44 } from "nostr-tools/nip44";

export const now = () => Math.floor(Date.now() / 1000);

/** A fresh key: {secret: bytes, pub: hex}. */
export function makeKey() {
	const secret = generateSecretKey();
	return { secret, pub: getPublicKey(secret) };
}

/** NIP-OA: the tag by which `owner` attests `agentPub`. */
export function attest(owner, agentPub, conditions = "") {
	const digest = sha256(utf8ToBytes(`nostr:agent-auth:${agentPub}:${conditions}`));
	return ["auth", owner.pub, conditions, bytesToHex(schnorr.sign(digest, owner.secret))];
}

/** An agent with its owner's attestation: a key with `auth`, the tag. */
export function makeAgent(owner, conditions) {
	const key = makeKey();
	return { ...key, auth: attest(owner, key.pub, conditions) };
}

export function sign(key, template) {
	return finalizeEvent({ created_at: now(), tags: [], content: "", ...template }, key.secret);
}

export function seal(from, toPub, plaintext) {
	return nip44.encrypt(plaintext, nip44.utils.getConversationKey(from.secret, toPub));
}

export function open(to, event) {
	return nip44.decrypt(event.content, nip44.utils.getConversationKey(to.secret, event.pubkey));
}

function frame(from, toPub, agentPub, type, plaintext, { tags = [], ...rest } = {}) {
	return sign(from, {
		kind: 24200,
		tags: [["p", toPub], ["agent", agentPub], ["frame", type], ...tags],
		content: seal(from, toPub, plaintext),
		...rest,
	});
}

/** A frame from an agent to its owner. */
export function telemetry(agent, ownerPub, plaintext = "{}", options) {
	return frame(agent, ownerPub, agent.pub, "telemetry", plaintext, options);
}

/** A frame from an owner to an agent. */
export function control(owner, agentPub, plaintext = "{}", options) {
	return frame(owner, agentPub, agentPub, "control", plaintext, options);
}

/** The answer to a NIP-42 challenge. */
export function authEvent(key, url, challenge, { tags = [], ...rest } = {}) {
	return sign(key, {
		kind: 22242,
		tags: [["relay", url], ["challenge", challenge], ...(key.auth ? [key.auth] : []), ...tags],
		...rest,
	});
}

export { bytesToHex, hexToBytes };
