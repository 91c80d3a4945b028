/* The shapes of the broker's API. The page renders these and knows nothing below them. */

export type LaneState =
	"needs-you" | "working" | "stalled" | "failed" | "finished" | "offline" | "idle";

export interface Missing {
	agent: string;
	frames: number;
	state: "missing" | "asked" | "coming" | "gone";
}

export interface Health {
	archive?: { state: "ok" | "failing"; reason?: string; inMemory?: boolean; aside?: string };
	relay?: {
		state: "ready" | "connecting" | "down";
		url?: string;
		rttMs?: number | null;
		reason?: string | null;
		retryAtMs?: number | null;
		/* When it went, while it is not ready. */
		sinceMs?: number | null;
	};
	frameAtMs?: number | null;
	completeMs?: number | null;
	gone?: number;
	missing?: Missing[];
}

export interface Agent {
	id: string;
	npub?: string;
	name?: string;
	host?: string | null;
	command?: string[] | null;
	version?: string | null;
	mode?: "agent" | "proxy" | "run";
	control?: "none" | "approve" | "full";
	permissions?: "ask" | "allow" | "reject";
	online?: boolean;
	seenMs?: number | null;
	epoch?: string | null;
	startedMs?: number | null;
	completeMs?: number | null;
	missing?: number;
	gone?: number;
	foreign?: boolean;
	slots?: { slot: number; state: string; pid?: number | null }[];
	needsLogin?: null | {
		text?: string;
		methods?: { id: string; name?: string; description?: string | null }[];
	};
}

export interface Queued {
	requestId: string;
	text: string;
	state: "sent" | "relayed" | "queued" | "started" | "refused" | "expired";
	position?: number | null;
	detail?: string | null;
}

export interface Choice {
	current: string;
	available: { id: string; name: string }[];
}

export interface Lane {
	id: string;
	agent: string;
	channel: string;
	channelName?: string | null;
	slot?: number | null;
	session?: string | null;
	title?: string | null;
	state: LaneState;
	sinceMs?: number | null;
	lastMs?: number | null;
	verb?: string | null;
	object?: string | null;
	outcome?: string | null;
	aim?: string | null;
	turn?: null | {
		id: string;
		startedMs?: number | null;
		state: "running" | "completed" | "cancelled" | "failed";
		stopReason?: string | null;
		cancelledBy?: string | null;
		timeMs?: { model?: number; tool?: number; you?: number; idle?: number } | null;
	};
	stalled?: string | null;
	queue?: Queued[];
	held?: boolean;
	modes?: Choice | null;
	models?: Choice | null;
	usage?: {
		used?: number | null;
		size?: number | null;
		cost?: { amount: number; currency: string } | null;
		input?: number | null;
		output?: number | null;
	} | null;
	activity?: number[];
	/* When its newest began. */
	activityMs?: number | null;
	files?: { path: string; added: number; removed: number }[];
}

export interface Option {
	id: string;
	name: string;
	kind: "allow_once" | "allow_always" | "reject_once" | "reject_always";
}

export interface DiffPart {
	type: "diff";
	path?: string;
	added?: number;
	removed?: number;
	hunks?: { old: number; new: number; lines: string[] }[];
	more?: boolean;
}

export type Part =
	| DiffPart
	| { type: "output"; text: string; bytes?: number; more?: boolean }
	| { type: "text"; text: string }
	| { type: "terminal"; id: string }
	| { type: "image"; mime?: string; bytes?: number }
	| { type: "link"; uri: string; name?: string };

export type Outcome =
	| "applied"
	| "timed_out"
	| "cancelled"
	| "rejected"
	| "allowed"
	| "allow_failed_closed"
	| "uncertain"
	| "turn_ended"
	| "restarted";

export interface Card {
	id: string;
	agent: string;
	lane: string;
	row?: string | null;
	verb?: string;
	kind?: string | null;
	title?: string | null;
	text?: string | null;
	diffs?: DiffPart[];
	locations?: string[];
	askedMs: number;
	deadlineMs?: number | null;
	options: Option[];
	actionable: boolean;
	trimmed?: boolean;
	redacted?: boolean;
	bodyReady?: boolean;
	bytes?: number | null;
	state: "pending" | "sent" | "relayed" | "over";
	picked?: string | null;
	outcome?: Outcome | null;
}

export interface Control {
	requestId: string;
	agent: string;
	lane?: string | null;
	type: string;
	state: "sent" | "relayed" | "answered" | "expired";
	status?: string | null;
	detail?: string | null;
	atMs?: number | null;
}

interface RowBase {
	id: string;
	lane: string;
	turn?: string | null;
	pos: string;
	t: number;
	end?: number | null;
	time?: "model" | "tool" | "you" | "idle" | null;
	replay?: boolean;
	/* What its own members do not say in one sentence. */
	story?: {
		verb?: string;
		object?: string;
		text?: string;
		outcome?: string;
		like?: string;
		count?: number;
		added?: number;
		removed?: number;
	};
}

/* An event as it was sent. */
export interface RawLine {
	pos: string;
	t: number;
	kind: string;
	direction?: "read" | "write";
	name?: string;
	bytes: number;
	text: string;
	merged?: number;
	trimmed?: number;
	redacted?: boolean;
}

export type Row = RowBase &
	(
		| { type: "prompt"; text: string; source?: string; requestId?: string | null }
		| {
				type: "message" | "thought";
				text: string;
				bytes?: number | null;
				open?: boolean;
				role?: "agent" | "user";
		  }
		| {
				type: "plan";
				entries: { text: string; status: string; priority?: string | null }[];
		  }
		| {
				type: "tool";
				call?: string;
				title?: string | null;
				kind?: string | null;
				status?: string;
				verb?: string;
				object?: string | null;
				outcome?: string | null;
				locations?: string[];
				input?: string | null;
				parts?: Part[];
				partsAt?: string | null;
		  }
		| {
				type: "permission";
				nonce?: string;
				call?: string | null;
				verb?: string;
				title?: string | null;
				text?: string | null;
				options?: Option[];
				state:
					| "pending"
					| "allowed"
					| "denied"
					| "cancelled"
					| "timed_out"
					| "rejected"
					| "uncertain"
					| "over";
				picked?: string | null;
				by?: "you" | "policy" | "time" | "turn" | "restart" | "editor" | null;
				reason?: string | null;
				deadlineMs?: number | null;
				waitedMs?: number | null;
		  }
		| {
				type: "turn";
				state: "completed" | "cancelled" | "failed";
				stopReason?: string | null;
				cancelledBy?: string | null;
				durationMs?: number | null;
				usage?: Lane["usage"];
				text?: string | null;
		  }
		| {
				type: "output";
				stream?: string;
				text: string;
				partial?: boolean;
				suppressed?: number | null;
		  }
		| { type: "note"; text: string; level?: string | null; source?: string | null }
		| {
				type: "lifecycle";
				text: string;
				level?: "info" | "warn" | "error";
				stderr?: string | null;
		  }
		| { type: "error"; text: string; detail?: string | null }
		| {
				type: "gap";
				frames?: [number, number][] | null;
				state?: "missing" | "asked" | "coming" | "gone";
				cause?: string | null;
				events?: number | null;
				text?: string | null;
		  }
		| { type: "raw"; kind?: string; json: string; bytes?: number | null }
	);

export type RowOf<T extends Row["type"]> = Extract<Row, { type: T }>;

export interface Message {
	cursor?: string;
	snapshot?: boolean;
	now?: number;
	health?: Health;
	owner?: { npub?: string; words?: string | null };
	agents?: Agent[];
	lanes?: Lane[];
	cards?: Card[];
	controls?: Control[];
	rows?: Row[];
	removedRows?: { lane: string; id: string }[];
	removedCards?: string[];
	removedLanes?: string[];
	removedAgents?: string[];
}
