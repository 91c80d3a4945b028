/* The rows of the lanes that were looked at last. Bodies live in the broker: a lane that is
 * forgotten costs one request when it is opened again. */

import { signal } from "@preact/signals";
import { getJson } from "./api";
import { learnNames, type Names } from "./names";
import type { Row } from "./types";

const LANES_MAX = 6;
const ROWS_MAX = 5000;
const PAGE = 200;
const RESYNC_PAGE = 1000;
/* A row further back than that many pages of those is shown without all that came since. */
const NEAR_PAGES = 3;
/* Events behind such a row that are asked for with it. */
const BEHIND = 200;

export class LaneRows {
	readonly lane: string;
	/* By (pos, id): the order of the transcript. */
	list: Row[] = [];
	more = false;
	/* The newest rows are not here: what is lies further back. */
	apart = false;
	/* Counts changes, for those who draw the list. */
	readonly version = signal(0);
	readonly state = signal<"loading" | "ready" | "failed">("loading");
	reason = "";
	/* Set by the reader: rows before this index may go when there are too many. */
	spare = () => Number.POSITIVE_INFINITY;
	#byId = new Map<string, Row>();
	/* What the stream said while a page was under way: newer than the page. */
	#since: Set<string> | null = null;
	/* And what it said of rows before ours: the page may end behind them, and be older. */
	#early = new Map<string, Row>();
	#task: Promise<void> | null = null;

	constructor(lane: string) {
		this.lane = lane;
	}
	get(id: string): Row | undefined {
		return this.#byId.get(id);
	}
	indexOf(row: Row): number {
		let low = 0;
		let high = this.list.length;
		while (low < high) {
			const middle = (low + high) >> 1;
			if (before(this.list[middle]!, row)) low = middle + 1;
			else high = middle;
		}
		return low;
	}
	/* The events that a row stands for: from its own up to those of the next. Of rows with one
	 * place the first has them. live changes when there may be more of them. */
	span(at: number): { from: string; to: string | null; live: number } {
		const { pos } = this.list[at]!;
		let next = at + 1;
		while (this.list[next]?.pos === pos) next++;
		const to = this.list[next]?.pos ?? null;
		const shared = at > 0 && this.list[at - 1]!.pos === pos;
		return {
			from: shared ? (to ?? "~") : at || this.more ? pos : "",
			to,
			live: to || shared ? 0 : this.version.value,
		};
	}
	#put(row: Row): boolean {
		const old = this.#byId.get(row.id);
		if (old) {
			/* A finished row said again keeps its object, and with it its DOM. */
			if (JSON.stringify(old) === JSON.stringify(row)) return false;
			const at = this.indexOf(old);
			if (old.pos === row.pos) {
				this.list[at] = row;
				this.#byId.set(row.id, row);
				return true;
			}
			this.list.splice(at, 1);
		}
		this.#byId.set(row.id, row);
		this.list.splice(this.indexOf(row), 0, row);
		return true;
	}
	#drop(id: string): boolean {
		const old = this.#byId.get(id);
		if (!old) return false;
		this.list.splice(this.indexOf(old), 1);
		this.#byId.delete(id);
		return true;
	}
	#trim() {
		const excess = Math.min(this.list.length - ROWS_MAX, this.spare());
		if (excess <= 0) return;
		for (const row of this.list.splice(0, excess)) this.#byId.delete(row.id);
		this.more = true;
	}
	upsert(row: Row) {
		this.#since?.add(row.id);
		/* Older than all we hold while there is more, or before anything is here: it comes with
		 * its page. Were it put first, what is between would never be asked for. One of the same
		 * place is of the page that is here. */
		const first = this.list[0];
		const early = first ? this.more && row.pos < first.pos : !!this.#since;
		if (early && !this.#byId.has(row.id)) {
			if (this.#since) this.#early.set(row.id, row);
			return;
		}
		if (this.apart && before(this.list.at(-1)!, row)) return;
		if (this.#put(row)) this.#changed();
	}
	remove(id: string) {
		this.#since?.add(id);
		this.#early.delete(id);
		if (this.#drop(id)) this.#changed();
	}
	#changed() {
		this.#trim();
		this.version.value++;
	}
	/* One request at a time. */
	#run(work: () => Promise<void>): Promise<void> {
		this.#task ??= (async () => {
			this.#since = new Set();
			try {
				await work();
				this.state.value = "ready";
			} catch (error) {
				this.reason = (error as Error).message;
				this.state.value = "failed";
			} finally {
				this.#since = null;
				this.#task = null;
				for (const row of this.#early.values()) this.upsert(row);
				this.#early.clear();
				this.#changed();
			}
		})();
		return this.#task;
	}
	async #page(limit: number, pos?: string): Promise<{ rows: Row[]; more: boolean }> {
		const query = new URLSearchParams({ lane: this.lane, limit: String(limit) });
		if (pos) query.set("before", pos);
		const answer = await getJson<{ rows: Row[]; more: boolean } & Names>(
			`/api/rows?${query}`,
		);
		const { rows, more } = answer;
		learnNames(this.lane, answer);
		for (const row of rows) if (!this.#since!.has(row.id)) this.#put(row);
		return { rows, more };
	}
	/* Brings all that is held up to what the broker has: after a snapshot, and at first. */
	sync(): Promise<void> {
		if (this.#task) return this.#task.then(() => this.sync());
		if (this.apart) return Promise.resolve();
		return this.#run(async () => {
			const unconfirmed = new Set(this.#byId.keys());
			const oldest = this.list[0]?.pos;
			let pos: string | undefined;
			for (let count = 0; count < ROWS_MAX;) {
				const { rows, more } = await this.#page(oldest ? RESYNC_PAGE : PAGE, pos);
				for (const { id } of rows) unconfirmed.delete(id);
				count += rows.length;
				pos = rows[0]?.pos;
				this.more = more;
				if (!more || !pos || !oldest || pos <= oldest) break;
			}
			/* What no page had is gone, or is older than what we went back for. */
			for (const id of unconfirmed) if (!this.#since!.has(id)) this.#drop(id);
		});
	}
	/* Brings the rows around @pos, and all between them and the newest if that is not far. */
	reach(pos: string): Promise<void> {
		if (this.#task) return this.#task.then(() => this.reach(pos));
		const [first, last] = [this.list[0], this.list.at(-1)];
		if (first && (first.pos <= pos || !this.more) && (!this.apart || pos <= last!.pos))
			return Promise.resolve();
		return this.#run(async () => {
			for (let i = 0; i < NEAR_PAGES && !this.apart && this.list.length; i++) {
				const { more } = await this.#page(RESYNC_PAGE, this.list[0]!.pos);
				this.more = more;
				if (!more || this.list[0]!.pos <= pos) return;
			}
			this.list = [];
			this.#byId.clear();
			const [epoch, seq] = pos.split("/") as [string, string];
			const end = String(Number(seq) + BEHIND).padStart(16, "0");
			this.more = (await this.#page(3 * BEHIND, `${epoch}/${end}`)).more;
			this.apart = this.list.length > 0;
		});
	}
	/* Back to the newest. */
	rejoin() {
		if (!this.apart) return;
		this.list = [];
		this.#byId.clear();
		this.apart = false;
		void this.sync();
	}
	older(again = false): Promise<void> {
		const first = this.list[0];
		if (
			!this.more ||
			!first ||
			this.#task ||
			(this.state.peek() === "failed" && !again) ||
			this.list.length >= 2 * ROWS_MAX
		)
			return Promise.resolve();
		return this.#run(async () => {
			const { rows, more } = await this.#page(PAGE, first.pos);
			this.more = more && rows.length > 0;
		});
	}
}

function before(a: Row, b: Row): boolean {
	return a.pos < b.pos || (a.pos === b.pos && a.id < b.id);
}

const held = new Map<string, LaneRows>();

/* The rows of a lane, asked for if they are not here. The one asked for last stays longest. */
export function rowsOf(lane: string): LaneRows {
	let rows = held.get(lane);
	if (rows) {
		held.delete(lane);
	} else {
		rows = new LaneRows(lane);
		void rows.sync();
	}
	held.set(lane, rows);
	if (held.size > LANES_MAX) held.delete(held.keys().next().value!);
	return rows;
}

export function applyRows(
	upserts: readonly Row[],
	removed: readonly { lane: string; id: string }[],
) {
	for (const row of upserts) held.get(row.lane)?.upsert(row);
	for (const { lane, id } of removed) held.get(lane)?.remove(id);
}

/* After a snapshot only what is on the screen is worth asking for again. */
let shown: string | null = null;
export function showRows(lane: string | null) {
	shown = lane;
}
export function forgetRows() {
	for (const lane of [...held.keys()]) if (lane !== shown) held.delete(lane);
	if (shown) void held.get(shown)?.sync();
}
