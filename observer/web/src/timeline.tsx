export function Timeline() {
	return (
		<main class="absent">
			<h1>Timeline</h1>
			<p>
				Not in this build yet. The report has the same times:{" "}
				<a class="link" href="#/report">
					where the time went
				</a>
				.
			</p>
		</main>
	);
}
