/* FOLLOW and READING: whether the newest row pulls the view, or nothing moves under a reader. */

export interface Follow {
	readonly following: boolean;
	/* READING: the newest row when it began; what comes after is new. */
	readonly seen: string | null;
}

export type FollowEvent =
	| {
			type: "away";
			newest: string | null;
	  } /* wheel up, key, touch, drag, focus in a row */
	| { type: "scrolled"; toBottom: boolean; newest: string | null } /* by the reader */
	| { type: "newest" }; /* the button, or the reader's own prompt */

export const FOLLOWING: Follow = { following: true, seen: null };

export function step(state: Follow, event: FollowEvent): Follow {
	switch (event.type) {
		case "newest":
			return FOLLOWING;
		case "scrolled":
			if (event.toBottom) return FOLLOWING;
			return state.following ? { following: false, seen: event.newest } : state;
		case "away":
			return state.following ? { following: false, seen: event.newest } : state;
	}
}
