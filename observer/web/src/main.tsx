/* The page that perch observer serves. It renders what the broker says and knows no protocol
 * below that. */

import { effect } from "@preact/signals";
import { render } from "preact";
import { openClock } from "./clock";
import { Fleet } from "./fleet";
import { Frame } from "./frame";
import { Help, Keys } from "./keys";
import { Later, loadNext, openAlerts } from "./later";
import { offline } from "./offline";
import { openPhases } from "./phases";
import { plain } from "./plain";
import { openSession, route, token } from "./session";
import { agentOf, agents, channelOf, known, lanes, nameOf, waiting } from "./store";
import { openStream } from "./stream";
import { Tray } from "./tray";
import { openUi } from "./ui";
import { openViewport } from "./viewport";
import { FirstRun, NoToken } from "./welcome";

function Screen() {
	const at = route.value;
	if (!token.value)
		return (
			<>
				<Frame screen="none" />
				<NoToken />
			</>
		);
	if (at.screen === "agent")
		return (
			<>
				<Frame screen="agent" />
				<Tray />
				<Later key={at.lane} screen="agent" query="" />
				<Keys where="agent" />
				<Help />
			</>
		);
	if (at.screen === "timeline" || at.screen === "report" || at.screen === "search" || at.screen === "self")
		return (
			<>
				<Frame screen={at.screen} />
				<Tray />
				<Later key={at.screen} screen={at.screen} query={at.query} />
				<Keys where={at.screen} />
				<Help />
			</>
		);
	if (known.value && !agents.ids.value.length && !lanes.ids.value.length)
		return (
			<>
				<Frame screen="fleet" />
				<FirstRun />
				<Keys where="first-run" />
				<Help />
			</>
		);
	return (
		<>
			<Frame screen="fleet" />
			<Tray />
			{known.value ? (
				<Fleet />
			) : (
				<main class="absent">
					<h1 class="hidden">Fleet</h1>
				</main>
			)}
			<Keys where="fleet" />
			<Help />
		</>
	);
}

openPhases();
openUi();
openViewport();
openClock();
openSession();
openStream();
render(<Screen />, document.body);
loadNext();
if (!offline.is) openAlerts();

effect(() => {
	const at = route.value;
	const lane = at.screen === "agent" ? lanes.still(at.lane) : undefined;
	const place = lane
		? plain(`${nameOf(agentOf(lane), lane.agent)} · ${channelOf(lane)}`)
		: {
				fleet: "Fleet",
				timeline: "Timeline",
				report: "Report",
				search: "Search",
				self: "Self",
				agent: "Fleet",
			}[at.screen];
	document.title = `${waiting.value ? `(${waiting.value}) ` : ""}${place} · perch`;
});
