/* Screens that are fetched when they are first asked for. */

import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";

type Screen = ComponentType<{ query: string }>;

const SCREENS = {
	timeline: {
		title: "Timeline",
		load: async (): Promise<Screen> => (await import("./timeline")).Timeline,
	},
	report: {
		title: "Report",
		load: async (): Promise<Screen> => (await import("./report")).ReportScreen,
	},
};

export function Later({ screen, query }: { screen: keyof typeof SCREENS; query: string }) {
	const [Loaded, setLoaded] = useState<Screen | null>(null);
	const [failed, setFailed] = useState(0);
	const { title, load } = SCREENS[screen];
	useEffect(() => {
		load().then(
			(it) => setLoaded(() => it),
			() => setFailed((times) => times + 1),
		);
	}, []);
	if (Loaded) return <Loaded query={query} />;
	return (
		<main class="absent">
			<h1 class={failed ? "" : "hidden"}>{title}</h1>
			{failed ? (
				<>
					<p>
						This screen did not come: the broker is gone, or newer than this
						page.
					</p>
					<button
						class="button"
						type="button"
						onClick={() => location.reload()}
					>
						Load the page again
					</button>
				</>
			) : null}
		</main>
	);
}
