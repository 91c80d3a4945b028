// Figures as Prometheus reads them.
import assert from "node:assert/strict";

/** Prometheus' text format: every sample has a type before it, histograms add up. */
export function checkExposition(text) {
	const types = new Map(), samples = new Map();
	assert.ok(text.endsWith("\n"));
	for (const line of text.trimEnd().split("\n")) {
		const type = /^# TYPE (\w+) (counter|gauge|histogram)$/.exec(line);
		if (type) {
			assert.ok(!types.has(type[1]), line);
			types.set(type[1], type[2]);
			continue;
		}
		const sample = /^(\w+)(\{\w+="[^"]+"(?:,\w+="[^"]+")*\})? (\d+(?:\.\d+)?)$/.exec(line);
		assert.ok(sample, line);
		const family = types.has(sample[1]) ? sample[1] : sample[1].replace(/_(bucket|sum|count)$/, "");
		assert.ok(types.has(family), `${line} has no type`);
		assert.ok(!samples.has(sample[1] + (sample[2] ?? "")), `${line} comes twice`);
		samples.set(sample[1] + (sample[2] ?? ""), Number(sample[3]));
	}
	for (const [name] of [...types].filter(([, type]) => type === "histogram")) {
		const buckets = [...samples].filter(([key]) => key.startsWith(`${name}_bucket{`)).map(([, value]) => value);
		assert.ok(buckets.length > 5 && buckets.every((value, i) => i === 0 || value >= buckets[i - 1]), name);
		assert.equal(buckets.at(-1), samples.get(`${name}_count`));
	}
	return samples;
}
