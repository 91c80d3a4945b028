// Who is served: the list of owners, what attestations bind, what a revocation ends; all of it
// over restarts, and by commands that change a relay while it runs.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, test } from "node:test";
import { connect as connectTls } from "node:tls";
import { npubEncode } from "nostr-tools/nip19";
import { attest, authEvent, control, makeAgent, makeKey, sign, telemetry } from "./support/keys.mjs";
import { Relay } from "./support/nostr_tools.mjs";
import { Peer } from "./support/peer.mjs";
import { fetchAlone, logged, perchBin, startRelay, withRelay as withRelayOf } from "./support/perch.mjs";
import { until } from "./support/up.mjs";

let home; // of one test: its database and perch.conf
beforeEach(() => (home = mkdtempSync(join(tmpdir(), "perch-owners-"))));
afterEach(() => rmSync(home, { recursive: true, force: true }));

const env = () => ({ PERCH_HOME: home, XDG_CONFIG_HOME: home });

const withRelay = (args, run) => withRelayOf(args, run, { env: env() });

/** Runs `perch relay ...words` on this test's database. */
async function command(...words) {
	const child = spawn(perchBin, ["relay", ...words], { env: { ...process.env, ...env() }, stdio: ["ignore", "pipe", "pipe"] });
	const out = { stdout: "", stderr: "" };
	for (const name of ["stdout", "stderr"])
		child[name].setEncoding("utf8").on("data", (piece) => (out[name] += piece));
	const [code] = await once(child, "close");
	return { code, ...out };
}

/** Until `perch relay agents` knows them: what an agent has shown is written after it was answered. */
async function untilKept(...agents) {
	await until(async () => {
		const { stdout } = await command("agents");
		return agents.every(({ pub }) => stdout.includes(npubEncode(pub)));
	}, "the agents in the database");
}

async function told(relay, ...words) {
	const before = relay.stderr().length;
	const { code, stdout, stderr } = await command(...words);
	assert.equal(code, 0, stderr);
	assert.equal(stderr, `the relay (process ${relay.child.pid}) was told\n`);
	await logged(relay, /owners read again/, before);
	return stdout;
}

/** Asks the relay to read its files again; what it then logs has these words. */
async function hup(relay, words) {
	const before = relay.stderr().length;
	relay.child.kill("SIGHUP");
	await logged(relay, words, before);
}

async function auth(peer, key) {
	const event = authEvent(key, peer.url, await peer.challenge());
	peer.send("AUTH", event);
	return peer.next("OK", event.id);
}

test("with a list nobody is served until the operator says so, and then at once", async () => {
	await withRelay(["--owners", "list"], async (relay) => {
		const owner = makeKey(), agent = makeAgent(owner), npub = npubEncode(owner.pub);
		await logged(relay, /^warn relay: no owner is listed, so nobody is served: perch relay owners add NPUB$/m);
		const reader = await Peer.as(relay.url, owner);
		const filter = { kinds: [24200], "#p": [owner.pub] };
		const refused = `restricted: this relay serves listed owners and the agents they attested: its operator can run: perch relay owners add ${npub}`;
		reader.send("REQ", "frames", filter);
		assert.equal((await reader.next("CLOSED", "frames"))[2], refused);
		reader.send("COUNT", "count", {});
		assert.equal((await reader.next("CLOSED", "count"))[2], refused);
		const writer = await Peer.as(relay.url, agent);
		assert.deepEqual((await writer.publish(telemetry(agent, owner.pub, "1"))).slice(2), [false, refused]);
		assert.deepEqual((await reader.publish(sign(owner, { kind: 20001 }))).slice(2), [false, refused]);
		const stranger = await Peer.open(relay.url);
		stranger.send("REQ", "all", {});
		assert.match((await stranger.next("CLOSED", "all"))[2], /^auth-required: .*listed owners/);

		assert.equal(await told(relay, "owners", "add", npub), `listed ${npub}\n`);
		assert.deepEqual(await reader.subscribe("frames", filter), []);
		// The attestation in the frame itself binds, though AUTH came too early for it.
		const frame = telemetry(agent, owner.pub, "2", { tags: [agent.auth] });
		assert.equal((await writer.publish(frame))[3], "received by 1 reader");
		assert.equal((await reader.next("EVENT", "frames"))[2].id, frame.id);
		assert.match(await told(relay, "owners", "add", owner.pub), /^was listed already: npub1/);
		for (const peer of [reader, writer, stranger])
			await peer.close();
	});
});

test("nostr-tools: a listed owner and their agent work, another pair hears why not", async () => {
	const owner = makeKey(), agent = makeAgent(owner), other = makeKey(), others = makeAgent(other);
	assert.equal((await command("owners", "add", npubEncode(owner.pub))).code, 0);
	await withRelay(["--owners", "list"], async ({ url }) => {
		const open = async (key) => {
			const relay = await Relay.connect(url);
			const challenge = new Promise((resolve) => (relay._onauth = resolve));
			relay.onauth = async (template) => sign(key, { ...template, tags: [...template.tags, ...(key.auth ? [key.auth] : [])] });
			await Promise.race([challenge, new Promise((resolve) => setImmediate(resolve))]);
			await untilAuth(relay, relay.onauth);
			return relay;
		};
		const [reader, writer, outsider] = await Promise.all([open(owner), open(agent), open(others)]);
		const got = new Promise((resolve) => reader.subscribe([{ kinds: [24200], "#p": [owner.pub] }],
			{ onevent: resolve, oneose: () => writer.publish(telemetry(agent, owner.pub, "hello")) }));
		assert.equal((await got).pubkey, agent.pub);
		await assert.rejects(outsider.publish(telemetry(others, other.pub, "hello")), /restricted: this relay serves listed owners/);
		const closed = new Promise((resolve) => outsider.subscribe([{ kinds: [24200], "#p": [others.pub] }], { onclose: resolve }));
		assert.match(String(await closed), /restricted: this relay serves listed owners/);
		for (const relay of [reader, writer, outsider])
			relay.close();
	});
});

/** The challenge comes right after the handshake; nostr-tools throws until it has it. */
async function untilAuth(relay, onauth) {
	for (;;) {
		try {
			return await relay.auth(onauth);
		} catch (error) {
			if (!/challenge/.test(String(error)))
				throw error;
			await new Promise((resolve) => setImmediate(resolve));
		}
	}
}

test("removing an owner ends the subscriptions of theirs and of their agents", async () => {
	const owner = makeKey(), agent = makeAgent(owner), other = makeKey();
	await command("owners", "add", owner.pub, other.pub);
	await withRelay(["--owners", "list"], async (relay) => {
		const [reader, writer, stays] = await Promise.all([Peer.as(relay.url, owner), Peer.as(relay.url, agent), Peer.as(relay.url, other)]);
		await reader.subscribe("frames", { kinds: [24200], "#p": [owner.pub] });
		await writer.subscribe("controls", { kinds: [24200], "#p": [agent.pub] });
		await stays.subscribe("mine", { kinds: [24200], "#p": [other.pub] });
		await told(relay, "owners", "remove", owner.pub);
		for (const [peer, id] of [[reader, "frames"], [writer, "controls"]]) {
			assert.match((await peer.next("CLOSED", id))[2], /^restricted: this relay serves listed owners/);
			assert.equal((await peer.closed).code, 1008);
		}
		await stays.subscribe("more", {});
		await stays.close();
		assert.equal((await command("owners", "list")).stdout, `${npubEncode(other.pub)}\n`);
	});
});

test("a revoked agent is cut off at once, stays out over a restart, and comes back when allowed", async () => {
	const owner = makeKey(), agent = makeAgent(owner), sibling = makeAgent(owner), npub = npubEncode(agent.pub);
	const reason = `restricted: this key is revoked on this relay: its operator can run: perch relay allow ${npub}`;
	await withRelay([], async (relay) => {
		const [one, two, brother, reader] = await Promise.all([agent, agent, sibling, owner].map((key) => Peer.as(relay.url, key)));
		await one.subscribe("controls", { kinds: [24200], "#p": [agent.pub] });
		assert.equal(await told(relay, "revoke", npub), `revoked ${npub}\n`);
		assert.equal((await one.next("CLOSED", "controls"))[2], reason);
		for (const peer of [one, two]) {
			assert.equal((await peer.next("NOTICE"))[1], reason);
			assert.equal((await peer.closed).code, 1008);
		}
		const again = await Peer.open(relay.url);
		assert.deepEqual((await auth(again, agent)).slice(2), [false, reason]);
		assert.match((await again.publish(telemetry(agent, owner.pub, "x", { tags: [agent.auth] })))[3], /^auth-required: /);
		assert.equal((await brother.publish(telemetry(sibling, owner.pub, "x")))[2], true);
		assert.deepEqual((await reader.publish(control(owner, agent.pub))).slice(2), [false, reason]);
		for (const peer of [again, brother, reader])
			await peer.close();
		await logged(relay, /reason=revoked/);
	});
	await withRelay([], async (relay) => {
		const peer = await Peer.open(relay.url);
		assert.deepEqual((await auth(peer, agent)).slice(2), [false, reason]);
		const { stdout } = await command("agents");
		assert.match(stdout, new RegExp(`^${npub}\trevoked\tsince 20\\d\\d-\\d\\d-\\d\\d \\d\\d:\\d\\d:\\d\\d UTC$`, "m"));
		assert.match(stdout, new RegExp(`^${npubEncode(sibling.pub)}\t${npubEncode(owner.pub)}\tuntil always$`, "m"));
		assert.equal(await told(relay, "allow", agent.pub), `allowed ${npub}\n`);
		assert.equal((await auth(peer, agent))[2], true);
		assert.equal((await peer.publish(telemetry(agent, owner.pub, "x")))[2], true);
		await peer.close();
	});
});

test("a revocation that is taken back before the relay looks still ends sessions and what bound the agent", async () => {
	const owner = makeKey(), agent = makeAgent(owner), bare = { secret: agent.secret, pub: agent.pub };
	await withRelay([], async (relay) => {
		const before = await Peer.as(relay.url, agent);
		assert.equal((await before.publish(telemetry(agent, owner.pub, "x")))[2], true);
		await untilKept(agent); // stopped while it writes, it would keep the commands out
		relay.child.kill("SIGSTOP");
		for (const word of ["revoke", "allow"])
			assert.equal((await command(word, agent.pub)).code, 0);
		const length = relay.stderr().length;
		relay.child.kill("SIGCONT");
		assert.equal((await before.closed).code, 1008);
		await logged(relay, /owners read again/, length);
		const after = await Peer.as(relay.url, bare);
		assert.match((await after.publish(telemetry(agent, owner.pub, "y")))[3], /^restricted: nothing attests/);
		await after.auth(agent);
		assert.equal((await after.publish(telemetry(agent, owner.pub, "z")))[2], true);
		// Once, not at every reading.
		await hup(relay, /owners read again/);
		assert.equal((await after.publish(telemetry(agent, owner.pub, "still")))[2], true);
		await after.close();
	});
	assert.match((await command("agents")).stdout, new RegExp(`^${npubEncode(agent.pub)}\t${npubEncode(owner.pub)}\t`, "m"));
});

test("what an agent has shown at AUTH or in a frame outlives the relay, until its bound", async () => {
	const owner = makeKey(), bound = Math.floor(Date.now() / 1000) + 3600;
	const byAuth = makeAgent(owner, `created_at<${bound}`), byFrame = makeAgent(owner);
	const bare = (key) => ({ secret: key.secret, pub: key.pub });
	await withRelay([], async (relay) => {
		const one = await Peer.as(relay.url, byAuth), two = await Peer.as(relay.url, bare(byFrame));
		assert.equal((await two.publish(telemetry(byFrame, owner.pub, "x", { tags: [byFrame.auth] })))[2], true);
		await one.close();
		await two.close();
	});
	const { stdout } = await command("agents");
	assert.match(stdout, new RegExp(`^${npubEncode(byAuth.pub)}\t${npubEncode(owner.pub)}\tuntil ${new Date(bound * 1000).toISOString().slice(0, 10)} `, "m"));
	await withRelay([], async (relay) => {
		for (const agent of [byAuth, byFrame]) {
			const peer = await Peer.as(relay.url, bare(agent));
			assert.equal((await peer.publish(telemetry(agent, owner.pub, "no tag")))[2], true);
			await peer.close();
		}
		const reader = await Peer.as(relay.url, owner);
		assert.equal((await reader.publish(control(owner, byAuth.pub)))[2], true);
		await reader.close();
	});
});

test("kill -9 right after an agent has shown its attestation loses at most that one", async () => {
	const owner = makeKey(), agents = Array.from({ length: 30 }, () => makeAgent(owner));
	const relay = await startRelay([], { env: env() });
	for (const agent of agents.slice(0, -1))
		await (await Peer.as(relay.url, agent)).close();
	await untilKept(...agents.slice(0, -1));
	await Peer.as(relay.url, agents.at(-1));
	await relay.stop("SIGKILL");
	const { stdout, code } = await command("agents");
	assert.equal(code, 0);
	for (const { pub } of agents.slice(0, -1))
		assert.ok(stdout.includes(npubEncode(pub)), stdout);
	await withRelay([], async () => {});
});

/** Puts bindings into the database as if they had been attested: `count` agents of each owner. */
function bindInDatabase(owners, count) {
	const rows = owners.map((owner, n) => `INSERT INTO binding SELECT randomblob(31) || x'${n.toString(16).padStart(2, "0")}', ` +
		`x'${owner}', ${Number.MAX_SAFE_INTEGER} FROM (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${count}) SELECT i FROM n);`);
	execFileSync("sqlite3", [join(home, "relay.db")], { input: `BEGIN; ${rows.join("\n")} COMMIT;` });
}
const bound = async (relay) => {
	const metrics = await (await fetchAlone(/metrics on (http:\S+)/.exec(relay.stderr())[1])).text();
	return Number(/agents_bound (\d+)\n/.exec(metrics)[1]);
};
const hasSqlite = (() => {
	try { return Boolean(execFileSync("sqlite3", ["--version"])); } catch { return false; }
})();
const OWNER_AGENTS = 8192, ALL_AGENTS = 65536, AGENT_OWNERS = 16;

test("an owner has so many agents, and one who has them all pushes nobody out", { skip: !hasSqlite && "there is no sqlite3" }, async () => {
	const many = makeKey(), other = makeKey();
	const [last, beyond, theirs] = [makeAgent(many), makeAgent(many), makeAgent(other)];
	await withRelay([], async () => {});
	bindInDatabase([many.pub], OWNER_AGENTS - 1);
	await withRelay(["--metrics", "127.0.0.1:0"], async (relay) => {
		assert.equal(await bound(relay), OWNER_AGENTS - 1);
		const peer = await Peer.open(relay.url);
		assert.equal((await peer.auth(last))[3], "");
		assert.equal((await peer.auth(beyond))[3], "auth tag ignored: too many agents are bound here");
		assert.equal((await peer.auth(theirs))[3], "");
		assert.equal((await peer.publish(telemetry(last, many.pub)))[2], true);
		assert.equal((await peer.publish(telemetry(beyond, many.pub, "x", { tags: [beyond.auth] })))[3], "error: too many agents are bound here");
		assert.equal((await peer.publish(telemetry(theirs, other.pub)))[2], true);
		assert.equal(await bound(relay), OWNER_AGENTS + 1);
		await peer.close();
	});
});

test("when all is full whoever is away longest makes room, never who is here", { skip: !hasSqlite && "there is no sqlite3" }, async () => {
	const owners = Array.from({ length: ALL_AGENTS / OWNER_AGENTS }, makeKey), other = makeKey();
	const here = makeAgent(other), late = makeAgent(makeKey());
	await withRelay([], async (relay) => (await Peer.as(relay.url, here)).close());
	bindInDatabase(owners.map(({ pub }) => pub), OWNER_AGENTS);
	execFileSync("sqlite3", [join(home, "relay.db"), `DELETE FROM binding WHERE agent = (SELECT agent FROM binding WHERE owner = x'${owners[0].pub}' LIMIT 1)`]);
	await withRelay(["--metrics", "127.0.0.1:0"], async (relay) => {
		assert.equal(await bound(relay), ALL_AGENTS);
		const one = await Peer.as(relay.url, { secret: here.secret, pub: here.pub });
		const two = await Peer.open(relay.url);
		assert.equal((await two.auth(late))[3], "", "there is room for one more");
		assert.equal(await bound(relay), ALL_AGENTS);
		assert.equal((await one.publish(telemetry(here, other.pub)))[2], true);
		await Promise.all([one.close(), two.close()]);
	});
});

test("an agent has at most sixteen owners, and each of them has it", async () => {
	const owners = Array.from({ length: AGENT_OWNERS + 1 }, makeKey), agent = makeKey();
	await withRelay([], async (relay) => {
		const peer = await Peer.as(relay.url, agent);
		for (const [n, owner] of owners.entries()) {
			const frame = telemetry(agent, owner.pub, `${n}`, { tags: [attest(owner, agent.pub)] });
			assert.deepEqual((await peer.publish(frame)).slice(2), n < AGENT_OWNERS ? [true, "received by 0 readers"]
				: [false, "error: too many agents are bound here"], `owner ${n}`);
		}
		for (const owner of owners.slice(0, AGENT_OWNERS))
			assert.equal((await peer.publish(telemetry(agent, owner.pub, "again")))[2], true);
		await peer.close();
	});
});

test("an owner's agents use up their owner's account and nobody else's", async () => {
	await withRelay(["--owner-events", "3"], async (relay) => {
		const [loud, calm] = [makeKey(), makeKey()];
		const agents = [makeAgent(loud), makeAgent(loud), makeAgent(loud), makeAgent(calm)];
		const peers = await Promise.all(agents.map((agent) => Peer.as(relay.url, agent)));
		const events = Array.from({ length: 120 }, (_, i) => sign(agents[i % 3], { kind: 20001, content: `${i}` }));
		const answers = await Promise.all(events.map((event, i) => peers[i % 3].publish(event)));
		const refused = answers.filter(([, , accepted]) => !accepted);
		assert.ok(refused.length > 0);
		for (const [, , , text] of refused)
			assert.match(text, /^rate-limited: events of this owner: 3\/s, try again in \d s$/);
		// Another of their keys changes nothing, a stranger's neither: who signed it pays.
		const stranger = makeKey();
		for (let i = 0; i < 20; i++)
			assert.equal((await peers[3].publish(sign(agents[3], { kind: 20001, content: `calm ${i}` })))[2], true);
		await peers[0].auth(stranger);
		assert.equal((await peers[0].publish(sign(stranger, { kind: 20001 })))[2], true);
		await Promise.all(peers.map((peer) => peer.close()));
	});
});

test("the words are checked: usage errors exit 2, and nothing is written", async () => {
	for (const words of [["owners"], ["owners", "add"], ["owners", "add", "npub1nonsense"], ["owners", "list", "x"],
		["revoke"], ["agents", "x"], ["dance"], ["revoke", "nsec1vl029mgpspedva04g90vltkh6fvh240zqtv9k0t9af8935ke9laqsnlfe5"]]) {
		const { code, stderr } = await command(...words);
		assert.equal(code, 2, words.join(" "));
		assert.match(stderr, /^perch relay: [^\n]+\n$/);
		assert.doesNotMatch(stderr, /nsec1vl029/);
	}
	const { code, stdout, stderr } = await command("owners", "list");
	assert.deepEqual({ code, stdout, stderr }, { code: 0, stdout: "", stderr: "no owner is listed: perch relay owners add NPUB\n" });
	const added = await command("owners", "add", makeKey().pub);
	assert.match(added.stderr, /^no relay runs on .*relay\.db now: the next one that does knows it\n$/);
});

test("SIGHUP takes up limits of perch.conf; a file that is wrong changes nothing", async () => {
	const conf = (text) => writeFileSync(join(home, "perch.conf"), text, { mode: 0o600 });
	await withRelay([], async (relay) => {
		const key = makeKey(), peer = await Peer.as(relay.url, key);
		conf("[relay]\nkey-reqs = 1\nkey-frames = 20\n");
		await hup(relay, /owners read again/);
		const { perch } = await (await fetchAlone(relay.url.replace("ws:", "http:"), { headers: { accept: "application/nostr+json" } })).json();
		assert.equal(perch.frames_per_second, 20);
		const flood = async () => { // more than ten seconds' worth
			for (let i = 0; i < 30; i++)
				peer.send("REQ", "a", { limit: 0 });
			assert.match((await peer.next("CLOSED", "a"))[2], /^rate-limited: REQ and COUNT of this key: 1\/s, try again in 1 s/);
		};
		await flood();
		conf("[relay]\nkey-reqs = many\n");
		await hup(relay, /settings stay as they were[^]*owners read again/);
		assert.match(relay.stderr(), /perch\.conf.*key-reqs/);
		await flood();
		conf("[relay]\nkey-reqs = 0\nowners = list\nmetrics = 127.0.0.1:1\n");
		await hup(relay, /change with a restart only[^]*owners read again/);
		peer.send("REQ", "b", { limit: 0 });
		assert.match((await peer.next("CLOSED", "b"))[2], /^restricted: /);
		await peer.close();
	});
});

test("SIGHUP shows new connections the new certificate; a broken one keeps the old", async () => {
	for (const name of ["first", "second"])
		execFileSync("openssl", ["req", "-x509", "-newkey", name === "first" ? "rsa:2048" : "ec", ...(name === "first" ? [] : ["-pkeyopt", "ec_paramgen_curve:prime256v1"]),
			"-nodes", "-days", "2", "-subj", `/CN=${name}`, "-addext", "subjectAltName=DNS:localhost",
			"-keyout", join(home, `${name}.key`), "-out", join(home, `${name}.pem`)], { stdio: "ignore" });
	const use = (cert, key = cert) => {
		copyFileSync(join(home, `${cert}.pem`), join(home, "now.pem"));
		copyFileSync(join(home, `${key}.key`), join(home, "now.key"));
	};
	const shown = async (port) => {
		const socket = connectTls({ port, host: "127.0.0.1", servername: "localhost", rejectUnauthorized: false });
		await once(socket, "secureConnect");
		const name = socket.getPeerCertificate().subject.CN;
		socket.destroy();
		return name;
	};
	use("first");
	await withRelay(["--tls-cert", join(home, "now.pem"), "--tls-key", join(home, "now.key")], async (relay) => {
		const url = `wss://localhost:${relay.port}`, lax = { rejectUnauthorized: false };
		const old = await Peer.open(url, lax);
		await old.auth(makeKey());
		assert.equal(await shown(relay.port), "first");
		use("second");
		assert.equal(await shown(relay.port), "first", "nothing changes by itself");
		await hup(relay, /certificate read again/);
		assert.equal(await shown(relay.port), "second");
		use("first", "second");
		await hup(relay, /^warn relay: the certificate stays as it was: TLS key .*now\.key cannot be used: it is not that of /m);
		assert.equal(await shown(relay.port), "second");
		writeFileSync(join(home, "now.pem"), "");
		await hup(relay, /^warn relay: the certificate stays as it was: TLS certificate .*now\.pem cannot be used: ./m);
		assert.equal(await shown(relay.port), "second");
		await old.subscribe("still", { limit: 0 });
		await old.close();
		const fresh = await Peer.open(url, lax);
		await fresh.auth(makeKey());
		await fresh.close();
	});
});
