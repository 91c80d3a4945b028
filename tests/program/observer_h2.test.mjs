// The local API by HTTP/2 over TLS: the same answers, the same guards, and what a hostile peer gets.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { X509Certificate } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import tls from "node:tls";
import { logged, startRelay } from "./support/perch.mjs";
import { Frames } from "./support/frames.mjs";
import { H2 } from "./support/h2.mjs";
import { Harness, ask, channelId, makeHome, run, startObserver } from "./support/observer.mjs";
import { until } from "./support/up.mjs";

let relay, home, observer, h2, port;

before(async () => {
	relay = await startRelay();
	home = makeHome();
	observer = await startObserver(relay.url, home, ["--tls", "127.0.0.1:0"]);
	await observer.connected();
	port = Number(new URL(observer.tlsUrl).port);
	h2 = await H2.connect(observer);
});

after(async () => {
	h2.close();
	await observer.end();
	await relay.stop();
	home.remove();
});

// ---- the same as by HTTP/1.1 ----

/* What differs from answer to answer, or belongs to one of the two. */
const comparable = ({ status, headers, bytes, text }) => {
	assert.equal(Number(headers["content-length"]), bytes.length);
	const rest = Object.fromEntries(Object.entries(headers).filter(([name]) => !/^(:|date$|connection$|keep-alive$|content-length$)/.test(name)));
	return { status, headers: rest, text: text.replace(/"(now|retryAtMs|rttMs|atMs)":\d+|"cursor":"[^"]*"/g, "") };
};

test("every answer is the one that HTTP/1.1 gives", async () => {
	const shape = (await h2.request("/")).text.match(/\/[a-z0-9-]+\.(?:js|css)/gi);
	assert.ok(shape.length >= 2, String(shape));
	for (const path of ["/", ...shape, "/healthz", "/nothing", "/api/nothing", "/api/fleet", "/api/rows?lane=x", "/api/report?view=flat&from=1&to=1000", "/api/report?view=no",
		"/api/timeline?width=0", "/api/rows?lane=a%2fb", "/api/rows?lane=x&before=1", "/api/event/x", "/api/event/a/b/c", "/%68ealthz", "/healthz?x=1", "/api/open"])
		for (const headers of [{}, { "accept-encoding": "gzip, br" }, { authorization: "Bearer wrong" }])
			assert.deepEqual(comparable(await h2.get(path, headers)), comparable(await observer.get(path, { headers })), path);
	const head = await h2.request("/", { method: "HEAD" });
	assert.equal(head.text, "");
	assert.equal(head.headers["content-length"], (await h2.request("/")).headers["content-length"]);
	for (const method of ["DELETE", "OPTIONS", "PUT"])
		assert.equal((await h2.request("/api/fleet", { method, headers: h2.token })).status, 405);
	assert.equal((await h2.request("*", { method: "OPTIONS", headers: h2.token })).status, 400);
});

test("without the token, and from another Host, Origin or site, there is no answer", async () => {
	for (const authorization of ["", "Bearer wrong", `Bearer ${"A".repeat(43)}`, "Basic x"])
		assert.equal((await h2.get("/api/fleet", { authorization })).status, 401);
	for (const headers of [
		{ ":authority": "evil.example" }, { ":authority": `evil.example:${port}` }, { ":authority": `127.0.0.1:${port + 1}` }, { ":authority": "127.0.0.1" },
		{ ":authority": `127.0.0.1:${observer.port}` }, { ":authority": `[::1:${port}` }, { ":authority": `127.0.0.1:0x${port}` }, { ":authority": `a@127.0.0.1:${port}` },
		{ origin: "https://evil.example" }, { origin: "null" }, { origin: "" }, { origin: `http://127.0.0.1:${port}` }, { origin: `https://127.0.0.1:${port + 1}` },
		{ origin: `https://localhost:${port}` }, { "sec-fetch-site": "cross-site" }, { "sec-fetch-site": "same-site" },
	])
		assert.equal((await h2.get("/api/fleet", headers)).status, 403, JSON.stringify(headers));
});

test("our own page is served, by address and by a name of the certificate", async () => {
	for (const name of ["127.0.0.1", "localhost", "[::1]", "192.0.2.77"]) {
		const headers = { ":authority": `${name}:${port}`, origin: `https://${name}:${port}`, "sec-fetch-site": "same-origin" };
		assert.equal((await h2.get("/api/fleet", headers)).status, 200, name);
	}
});

test("a Host that says another than the authority is refused", async () => {
	const peer = await Frames.connect(port);
	const good = peer.get("/healthz", { host: peer.authority }), bad = peer.get("/healthz", { host: `localhost:${port}` });
	assert.equal(await peer.body(good), "ok");
	assert.notEqual(await peer.body(bad), "ok");
	peer.close();
});

test("a body that is too large or may not be sent is refused, and its connection goes on", async () => {
	const big = "x".repeat((1 << 20) + 1);
	assert.equal((await h2.post(big)).status, 413);
	assert.equal((await h2.post("x".repeat(3 << 20))).status, 413);
	assert.equal((await h2.post(big, { authorization: "" })).status, 401);
	assert.equal((await h2.post(" ".repeat(1 << 20))).status, 400);
	assert.equal((await h2.post("{}", { "content-type": "text/plain" })).status, 415);
	const told = await h2.open("/api/control", { method: "POST", headers: { ...h2.token, "content-length": "99999999999999" } }).catch(() => undefined);
	assert.ok(!told || told.answer[":status"] === 413);
	assert.equal((await h2.get("/api/fleet")).status, 200);
});

// ---- the jobs ----

test("a page follows the stream, prompts and decides", async () => {
	const page = await h2.page();
	const channel = channelId();
	const agent = await Harness.open(relay.url, home.owner);
	await agent.send(agent.started_event(channel));
	await page.until((message) => message.lanes?.find(({ id }) => id.endsWith(channel)));
	const posted = await h2.post({ type: "prompt", agent: agent.id, channel, text: "go" });
	assert.equal(posted.status, 202);
	const prompt = await agent.control("prompt");
	assert.equal(prompt.requestId, posted.json().requestId);
	await agent.answer(prompt, "started");
	await page.until((message) => message.controls?.find((at) => at.requestId === prompt.requestId && at.status === "started"));
	await agent.send(agent.event("acp_read", ask("make"), { channel, turn: "t1", authorization: { requestNonce: `h2-${channel}`, actionable: true } }));
	await page.until((message) => message.cards?.find(({ id }) => id === `h2-${channel}`));
	assert.equal((await h2.post({ type: "permission_decision", card: `h2-${channel}`, option: "ok" })).status, 202);
	assert.equal((await agent.control("permission_decision")).optionId, "ok");
	const { cursor } = page.messages.at(-1);
	page.close();
	await agent.send(agent.event("note", { text: "while away" }, { channel }));
	const again = await h2.page(cursor);
	await again.row(({ text }) => text === "while away");
	assert.ok(!again.messages.some(({ snapshot }) => snapshot));
	again.close();
	await agent.close();
});

test("pages by both ways get the same messages", async () => {
	const [one, two] = [await h2.page(), await observer.page()];
	await Promise.all([one, two].map((page) => page.until((message) => message.snapshot)));
	const channel = channelId();
	const agent = await Harness.open(relay.url, home.owner);
	await agent.send(agent.event("note", { text: "for all" }, { channel }));
	const [a, b] = await Promise.all([one, two].map((page) => page.until((message) => message.rows?.some(({ text }) => text === "for all") && message)));
	assert.deepEqual(a, b);
	one.close();
	two.close();
	await agent.close();
});

test("a page that stops reading finds a snapshot later; meanwhile its connection serves the rest", async () => {
	const client = await H2.connect(observer, { settings: { initialWindowSize: 65535 } });
	const watcher = await observer.page();
	const channel = channelId();
	const agent = await Harness.open(relay.url, home.owner);
	const slow = await client.page();
	const { cursor } = await slow.until((message) => message.snapshot && message);
	slow.res.pause();
	const text = "y".repeat(60000);
	for (let i = 0; i < 200; i++)
		await agent.send(agent.event("note", { text: `${i} ${text}` }, { channel }));
	await watcher.row((at) => at.text?.startsWith("199 "));
	assert.equal((await client.get("/healthz")).text, "ok");
	slow.res.resume();
	await slow.until((message) => message.snapshot && message.cursor !== cursor);
	assert.ok(slow.messages.filter(({ rows }) => rows).length < 190, "no backlog");
	await agent.send(agent.event("note", { text: "live again" }, { channel }));
	await slow.row((at) => at.text === "live again");
	slow.close();
	client.close();
	watcher.close();
	await agent.close();
});

// ---- TLS ----

/** What comes until the other side ends. */
const ending = (socket) => new Promise((resolve) => {
	let text = "";
	socket.on("data", (piece) => { text += piece; }).on("error", (error) => { text += error.code ?? error; }).on("close", () => resolve(text));
});

test("who speaks no HTTP/2, no TLS or nothing that we know is told so", async () => {
	const get = `GET / HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\n\r\n`;
	for (const ALPNProtocols of [["http/1.1"], undefined]) {
		const socket = tls.connect({ port, host: "127.0.0.1", rejectUnauthorized: false, ALPNProtocols });
		socket.write(get);
		assert.match(await ending(socket), /^HTTP\/1\.1 505 .*speaks HTTP\/2 only/s);
	}
	const other = tls.connect({ port, host: "127.0.0.1", rejectUnauthorized: false, ALPNProtocols: ["imap"] });
	assert.match(await ending(other), /NO_APPLICATION_PROTOCOL/);
	const plain = net.connect(port, "127.0.0.1");
	plain.write(get);
	assert.match(await ending(plain), /^HTTP\/1\.1 400 .*begins with https/s);
	const old = tls.connect({ port, host: "127.0.0.1", rejectUnauthorized: false, ALPNProtocols: ["h2"], minVersion: "TLSv1.1", maxVersion: "TLSv1.1", ciphers: "DEFAULT@SECLEVEL=0" });
	assert.match(await ending(old), /PROTOCOL_VERSION|ERR_SSL/);
});

test("the certificate is this machine's, kept 0600 over restarts, and its fingerprint is the one that is printed", async () => {
	const own = makeHome();
	let one = await startObserver("ws://127.0.0.1:1", own, ["--tls", "127.0.0.1:0"]);
	const path = join(own.dir, "tls.pem");
	const cert = new X509Certificate(readFileSync(path));
	assert.equal(statSync(path).mode & 0o777, 0o600);
	assert.equal(cert.fingerprint256, one.fingerprint);
	await logged(one, new RegExp(one.fingerprint));
	assert.ok(cert.checkHost("localhost") && cert.checkIP("127.0.0.1") && cert.verify(cert.publicKey));
	const days = (new Date(cert.validTo) - new Date(cert.validFrom)) / 86400000;
	assert.ok(days > 800 && days <= 825, `${days} days`);
	assert.equal((await run(own, "open")).stdout, `http://127.0.0.1:${one.port}/#${one.token}\n`);
	assert.deepEqual(await run(own, "open", "--tls"), { code: 0, stdout: `${one.tlsUrl}#${one.token}\n`, stderr: `certificate SHA-256 ${one.fingerprint}\n` });
	const { fingerprint } = one;
	await one.end();
	one = await startObserver("ws://127.0.0.1:1", own, ["--tls", "127.0.0.1:0"]);
	assert.equal(one.fingerprint, fingerprint);
	await one.end();
	own.remove();
});

test("a certificate that is given is used, and its names are served", async () => {
	const own = makeHome(), dir = mkdtempSync(join(tmpdir(), "perch-cert-"));
	const [cert, key] = [join(dir, "cert.pem"), join(dir, "key.pem")];
	execFileSync("openssl", ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-keyout", key, "-out", cert,
		"-subj", "/CN=x", "-addext", "subjectAltName=DNS:*.perch.example,DNS:perch.example"], { stdio: "ignore" });
	const one = await startObserver("ws://127.0.0.1:1", own, ["--tls", "0.0.0.0:0", "--tls-cert", cert, "--tls-key", key]);
	const at = new URL(one.tlsUrl);
	assert.equal(at.hostname, "perch.example");
	assert.equal(new X509Certificate(readFileSync(cert)).fingerprint256, one.fingerprint);
	const client = await H2.connect({ ...one, tlsUrl: `https://127.0.0.1:${at.port}/` });
	for (const [name, status] of [["perch.example", 200], ["a.perch.example", 200], ["a.b.perch.example", 403], ["evil.test", 403]])
		assert.equal((await client.get("/api/fleet", { ":authority": `${name}:${at.port}` })).status, status, name);
	client.close();
	await one.end();
	for (const [args, words] of [
		[["--tls", "127.0.0.1:0", "--tls-cert", cert], /go together/], [["--tls", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", cert], /key/],
		[["--tls", "perch.example:0"], /numeric address/], [["--tls", `127.0.0.1:${port}`], /taken by.*--tls HOST:PORT/], [["--listen", "0.0.0.0:0"], /--tls HOST:PORT/],
	]) {
		const failed = await run(own, "observer", "--relay", "ws://127.0.0.1:1", "--listen", "127.0.0.1:0", ...args);
		assert.equal(failed.code, 1, args.join(" "));
		assert.match(failed.stderr, words);
	}
	own.remove();
	rmSync(dir, { recursive: true });
});

test("SIGHUP shows a renewed certificate to who comes, and one that cannot be read changes nothing", async () => {
	const own = makeHome(), dir = mkdtempSync(join(tmpdir(), "perch-cert-"));
	const [cert, key] = [join(dir, "cert.pem"), join(dir, "key.pem")];
	const make = (name) => execFileSync("openssl", ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
		"-keyout", key, "-out", cert, "-subj", "/CN=x", "-addext", `subjectAltName=DNS:${name}`], { stdio: "ignore" });
	make("old.example");
	const one = await startObserver("ws://127.0.0.1:1", own, ["--tls", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key]);
	const at = new URL(one.tlsUrl).port, there = { ...one, tlsUrl: `https://127.0.0.1:${at}/` };
	const before = await H2.connect(there);
	const shown = async () => {
		const client = await H2.connect(there);
		const { fingerprint256 } = client.session.socket.getPeerCertificate();
		const statuses = [];
		for (const name of ["old.example", "new.example"])
			statuses.push((await client.get("/api/fleet", { ":authority": `${name}:${at}` })).status);
		client.close();
		return [fingerprint256, ...statuses];
	};
	assert.deepEqual(await shown(), [one.fingerprint, 200, 403]);
	make("new.example");
	const { fingerprint256 } = new X509Certificate(readFileSync(cert));
	one.child.kill("SIGHUP");
	await until(() => one.stderr().includes(`certificate read again, SHA-256 ${fingerprint256}`), "the new one");
	assert.deepEqual(await shown(), [fingerprint256, 403, 200]);
	// Who was there stays, and is served by the names of now.
	assert.equal((await before.get("/api/fleet", { ":authority": `new.example:${at}` })).status, 200);
	writeFileSync(key, "no key");
	one.child.kill("SIGHUP");
	await until(() => one.stderr().includes("the certificate stays as it was"), "the refusal");
	assert.deepEqual(await shown(), [fingerprint256, 403, 200]);
	before.close();
	await one.end();
	own.remove();
	rmSync(dir, { recursive: true });
});

test("SIGTERM says goodbye to pages that are open", async () => {
	const own = makeHome();
	const one = await startObserver("ws://127.0.0.1:1", own, ["--tls", "127.0.0.1:0"]);
	const client = await H2.connect(one);
	const page = await client.page();
	await page.until(({ snapshot }) => snapshot);
	const gone = new Promise((resolve) => client.session.once("close", resolve));
	await one.end();
	await gone;
	assert.deepEqual(client.goaways, [0]);
	own.remove();
});
