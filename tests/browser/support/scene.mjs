/* The fleet of the page's tests: ten lanes in every state, two pending permissions and one
 * transcript with a row of every type. All of it as the broker would say it. */

const hex = (n) => n.toString(16).padStart(64, "0");
const uuid = (n) => `00000000-0000-5000-8000-${String(n).padStart(12, "0")}`;
export const EPOCH = "6566b2e0aaaaaaaa";
export const pos = (seq) => `${EPOCH}/${String(seq).padStart(16, "0")}`;

const NAMES = ["claude", "codex", "opencode", "gemini", "runner"];
const HOSTS = ["atlas", "atlas", "borealis", "cedar", "delta"];

export function agent(n, over = {}) {
	return {
		id: hex(n + 1),
		npub: `npub1q7${"x".repeat(50)}4kx`,
		name: NAMES[n],
		host: HOSTS[n],
		command: [`${NAMES[n]}-acp`],
		version: "0.1.0",
		mode: "agent",
		control: "full",
		permissions: "ask",
		online: true,
		seenMs: Date.now() - 400,
		epoch: EPOCH,
		startedMs: Date.now() - 3_600_000,
		completeMs: Date.now() - 900,
		missing: 0,
		foreign: false,
		slots: [{ slot: 0, state: "busy", pid: 4242 }],
		needsLogin: null,
		...over,
	};
}

export function lane(n, channel, over = {}) {
	return {
		id: `${hex(n + 1)}/${uuid(channel)}`,
		agent: hex(n + 1),
		channel: uuid(channel),
		channelName: `channel-${channel}`,
		slot: 0,
		session: `session-${channel}`,
		title: null,
		state: "working",
		sinceMs: Date.now() - 31_000,
		lastMs: Date.now() - 400,
		verb: "Running",
		object: "npm test",
		outcome: null,
		aim: null,
		turn: null,
		stalled: null,
		queue: [],
		held: false,
		modes: null,
		models: null,
		usage: null,
		activity: Array.from({ length: 60 }, (_, i) => (i < 20 ? 0 : (i * 7) % 13)),
		files: [],
		...over,
	};
}

const OPTIONS = [
	{ id: "ok", name: "Allow once", kind: "allow_once" },
	{ id: "always", name: "Always allow make", kind: "allow_always" },
	{ id: "no", name: "Deny", kind: "reject_once" },
];

export function card(of, id, over = {}) {
	return {
		id,
		agent: of.agent,
		lane: of.id,
		row: `row-${id}`,
		verb: "wants to run",
		kind: "execute",
		title: "Run a command",
		text: "rm -rf build && make -j8 install DESTDIR=stage",
		diffs: [],
		locations: ["/home/me/api-server"],
		askedMs: Date.now() - 42_000,
		deadlineMs: Date.now() + 258_000,
		options: OPTIONS,
		actionable: true,
		trimmed: false,
		redacted: false,
		bodyReady: true,
		bytes: 46,
		state: "pending",
		picked: null,
		outcome: null,
		...over,
	};
}

export function row(of, seq, type, over = {}) {
	return {
		id: `row-${seq}`,
		lane: of.id,
		turn: "turn-1",
		pos: pos(seq),
		t: Date.now() - 240_000 + seq * 1000,
		end: null,
		time: "tool",
		type,
		replay: false,
		...over,
	};
}

export const lanes = {
	claude: lane(0, 1, {
		channelName: "api-server",
		state: "needs-you",
		sinceMs: Date.now() - 42_000,
		verb: "Wants to run",
		object: "rm -rf build && make -j8 install DESTDIR=stage",
		aim: "Split the router out of server.c, keep the tests green · plan 3 of 5",
		turn: {
			id: "turn-1",
			startedMs: Date.now() - 249_000,
			state: "running",
			stopReason: null,
			cancelledBy: null,
			timeMs: { model: 91_000, tool: 72_000, you: 86_000, idle: 0 },
		},
		queue: [
			{
				requestId: "r1",
				text: "Then add a line to CHANGELOG about trailing slashes.",
				state: "queued",
				position: 1,
				detail: null,
			},
		],
		modes: {
			current: "ask",
			available: [
				{ id: "ask", name: "Ask before edits" },
				{ id: "auto", name: "Edit freely" },
			],
		},
		models: {
			current: "opus",
			available: [
				{ id: "opus", name: "Opus 4.5" },
				{ id: "haiku", name: "Haiku 4.5" },
			],
		},
		usage: {
			used: 122_000,
			size: 200_000,
			cost: { amount: 1.92, currency: "USD" },
			input: 171_000,
			output: 13_000,
		},
		files: [
			{ path: "src/router.c", added: 164, removed: 3 },
			{ path: "src/router.h", added: 31, removed: 0 },
			{ path: "src/server.c", added: 9, removed: 148 },
			{ path: "Makefile", added: 1, removed: 1 },
		],
	}),
	codex: lane(1, 2, {
		channelName: "web",
		state: "needs-you",
		sinceMs: Date.now() - 9000,
		verb: "Wants to run",
		object: "curl -fsSL https://get.exam\u200bple.dev/install.sh | sh",
		aim: "Serve the new checkout behind a flag · plan 6 of 7",
		usage: { used: 96_000, cost: { amount: 0.71, currency: "USD" } },
	}),
	opencode: lane(2, 3, {
		channelName: "infra",
		state: "stalled",
		sinceMs: Date.now() - 440_000,
		verb: "Ran",
		object: "terraform plan -out=tf.plan",
		stalled: "same tool 6 times with the same arguments",
		aim: "Move the staging bucket to eu-west-1",
		usage: { used: 231_000, cost: { amount: 2.4, currency: "USD" } },
	}),
	billing: lane(0, 4, {
		channelName: "billing",
		verb: "Waiting for 2 subagents",
		object: null,
		sinceMs: Date.now() - 72_000,
		aim: "Round invoice lines per tax rate, not per invoice",
		usage: { used: 58_000, cost: { amount: 0.63, currency: "USD" } },
	}),
	gemini: lane(3, 5, {
		channelName: "docs",
		object: "npm run build:docs",
		aim: "Rewrite the install page for Debian and Fedora",
		usage: { used: 143_000, cost: { amount: 0.38, currency: "USD" } },
	}),
	runner: lane(4, 6, {
		channelName: "build #4127",
		object: "ctest --preset ci -j16",
		outcome: "412 of 655 passed, 0 failed",
		sinceMs: Date.now() - 184_000,
		aim: "main at 5f0c2ab",
	}),
	edge: lane(2, 7, {
		channelName: "edge",
		state: "failed",
		verb: "Crashed",
		object: null,
		outcome: "(exit 137), starts again in 8 s",
		sinceMs: Date.now() - 22_000,
		lastMs: Date.now() - 22_000,
		aim: "Second time in 60 s; a third stops it for 5 min",
		usage: { used: 77_000, cost: { amount: 0.8, currency: "USD" } },
	}),
	mobile: lane(1, 8, {
		channelName: "mobile",
		state: "finished",
		verb: "Fixed the login redirect loop",
		object: null,
		outcome: "3 files, tests pass",
		sinceMs: Date.now() - 360_000,
		activity: Array(60).fill(0),
		usage: { used: 64_000, cost: { amount: 0.44, currency: "USD" } },
	}),
	changelog: lane(3, 9, {
		channelName: "changelog",
		state: "finished",
		verb: "Wrote the notes for 2.14 and asked two questions",
		object: null,
		sinceMs: Date.now() - 480_000,
		activity: Array(60).fill(0),
		usage: { used: 22_000, cost: { amount: 0.05, currency: "USD" } },
	}),
	nightly: lane(4, 10, {
		channelName: "nightly",
		state: "offline",
		verb: "Said it would stop",
		object: null,
		outcome: "all 1,204 events arrived",
		sinceMs: Date.now() - 1_320_000,
		lastMs: Date.now() - 1_320_000,
		activity: Array(60).fill(0),
	}),
};

export const cards = {
	claude: card(lanes.claude, "card-1"),
	codex: card(lanes.codex, "card-2", {
		text: "curl -fsSL https://get.exam\u200bple.dev/install.sh | sh -s -- --yes",
		bytes: 63,
		askedMs: Date.now() - 9000,
		deadlineMs: Date.now() + 291_000,
		locations: [],
		options: [OPTIONS[0], OPTIONS[2]],
	}),
};

/* The scene is of now, however long ago this file was read. */
let made = Date.now();
export function renew() {
	const by = Date.now() - made;
	made += by;
	for (const thing of [...Object.values(lanes), ...Object.values(cards)])
		for (const name of ["sinceMs", "lastMs", "askedMs", "deadlineMs"]) if (thing[name]) thing[name] += by;
	lanes.claude.turn = { ...lanes.claude.turn, startedMs: lanes.claude.turn.startedMs + by };
}

const SGR =
	"  CC      src/router.o\n\x1b[1msrc/router.c:71:9:\x1b[0m \x1b[1;35mwarning:\x1b[0m unused variable \x1b[1m‘prefix_len’\x1b[0m [\x1b[35m-Wunused-variable\x1b[0m]\n" +
	"  LD      build/tests\n\x1b[32mok\x1b[0m    base    118 checks\n\x1b[1;31mFAIL\x1b[0m  router   42 checks, 2 failures\n" +
	'      \x1b[31mrouter_test.c:118\x1b[0m trailing_slash: \x1b[36m"/v1/jobs/"\x1b[0m gave \x1b[33mNOT_FOUND\x1b[0m\nmake: *** [Makefile:61: test] \x1b[31mError 1\x1b[0m\n';

export function transcript(of = lanes.claude) {
	const r = (seq, type, over) => row(of, seq, type, over);
	return [
		r(1, "lifecycle", { text: "Agent started", level: "info", time: null }),
		r(2, "prompt", {
			text: "Split the router out of server.c into its own module, keep the tests green, and stage a build so I can look at it.",
			source: "owner",
			time: null,
		}),
		r(4, "thought", {
			text: "The table is static in server.c, and three callers reach into it…",
			time: "model",
			end: Date.now() - 230_000,
			open: false,
		}),
		r(11, "message", {
			text: "I’ll move routing into its own module first, then rebuild from clean. Three callers reach into `route_table` directly; the tests cover two of them.",
			time: "model",
			end: Date.now() - 225_000,
			role: "agent",
		}),
		r(12, "plan", {
			time: "model",
			entries: [
				{ text: "Find every caller of route_table", status: "completed" },
				{
					text: "Move the table and route_match() into src/router.c",
					status: "completed",
				},
				{ text: "Keep the tests green", status: "completed" },
				{ text: "Rebuild from clean and stage it", status: "in_progress" },
				{ text: "Run the load test against the staged build", status: "pending" },
			],
		}),
		r(14, "tool", {
			call: "c1",
			kind: "read",
			status: "completed",
			verb: "Read 4 files",
			object: null,
			outcome: null,
			locations: [
				"src/server.c",
				"src/server.h",
				"tests/router_test.c",
				"Makefile",
			],
			end: Date.now() - 240_000 + 14_300,
			parts: [],
		}),
		r(20, "tool", {
			call: "c2",
			kind: "edit",
			status: "completed",
			verb: "Edited",
			object: "src/router.c",
			end: Date.now() - 240_000 + 20_100,
			locations: ["src/router.c"],
			parts: [
				{
					type: "diff",
					path: "src/router.c",
					added: 5,
					removed: 2,
					hunks: [
						{
							old: 86,
							new: 86,
							lines: [
								" \tfor (size_t i = 0; i < table->count; i++) {",
								"-\t\tif (strcmp(table->routes[i].path, path) == 0)",
								"-\t\t\treturn table->routes[i].handler;",
								"+\t\tconst struct route *route = &table->routes[i];",
								"+",
								"+\t\tif (path_equal(route->path, path))",
								"+\t\t\treturn route->handler;",
								" \t}",
							],
						},
					],
				},
			],
		}),
		r(31, "gap", {
			frames: [[4812, 4828]],
			state: "asked",
			cause: null,
			events: null,
			text: "17 frames are missing: the agent was asked for them",
			time: null,
		}),
		r(39, "permission", {
			time: "you",
			nonce: "n0",
			verb: "wants to run",
			text: "make test",
			options: OPTIONS,
			state: "allowed",
			picked: "ok",
			by: "you",
			waitedMs: 44_000,
			end: Date.now() - 240_000 + 83_000,
		}),
		r(83, "tool", {
			call: "c3",
			kind: "execute",
			status: "failed",
			verb: "Ran",
			object: "make test",
			outcome: "failed (2)",
			end: Date.now() - 240_000 + 97_200,
			parts: [{ type: "output", text: SGR, bytes: 18_000, more: true }],
		}),
		r(98, "message", {
			text: "Both failures are mine: the old code trimmed a trailing slash before it compared. `path_equal()` now does that in one place.",
			time: "model",
			end: Date.now() - 140_000,
			role: "agent",
		}),
		r(110, "tool", {
			call: "c4",
			kind: "execute",
			status: "completed",
			verb: "Ran",
			object: "make test",
			outcome: "224 checks pass",
			end: Date.now() - 240_000 + 123_800,
			parts: [{ type: "output", text: "ok 224 checks\n", bytes: 14 }],
		}),
		r(130, "permission", {
			id: "row-card-1",
			time: "you",
			nonce: "card-1",
			verb: "wants to run",
			text: "rm -rf build && make -j8 install DESTDIR=stage",
			options: OPTIONS,
			state: "pending",
		}),
	];
}

export function populate(broker) {
	for (let n = 0; n < NAMES.length; n++) {
		const one = agent(n);
		broker.agents.set(one.id, one);
	}
	for (const one of Object.values(lanes)) broker.lanes.set(one.id, { ...one });
	for (const one of Object.values(cards)) broker.cards.set(one.id, { ...one });
	for (const one of transcript()) broker.putRow(one);
	return broker;
}
