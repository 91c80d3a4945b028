#include "observer/report.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "wire/base/mem.h"
#include "wire/nostr/json.h"

#define NO_NODE UINT32_MAX
enum node_kind { NODE_NAME, NODE_AGENT, NODE_CHANNEL };

/* One path: a name inside what it is part of. */
struct node {
	uint32_t parent;
	uint32_t name; /* agent, channel: index of a lane */
	uint32_t next; /* in its bucket */
	uint8_t kind;
	bool again;   /* a name above it is the same */
	uint32_t *ms; /* how long each call took */
	size_t samples, room;
	uint64_t count; /* of what is no sample; after gathering of both */
	int64_t inclusive, self, max;
};

/* The node of a name inside @parent; calls follow their like more often than not. */
struct found {
	uint32_t parent, node;
};

/* A span of the run at hand: its node, and the part of it that the query asks for. What
 * is before @reached its parts have taken. */
struct call {
	uint32_t node;
	int64_t reached, to;
};

struct report {
	const struct spans *spans;
	const struct report_query *query;
	struct report_range range; /* the one that is gathered */
	struct node *nodes;
	size_t count, room;
	uint32_t *buckets; /* heads of lists of nodes */
	size_t bucket_count;
	size_t samples;      /* of all nodes */
	struct found *found; /* by name: where it was found last */
	struct call *calls;  /* by span of the run at hand */
	size_t call_room;
	uint64_t sums[SPAN_SUMS];
	int64_t idle;
};

static void report_init(struct report *report, const struct spans *spans,
			const struct report_query *query)
{
	*report = (struct report){
		.spans = spans, .query = query, .room = 1024, .bucket_count = 4096};
	report->nodes = mem_array(report->room, sizeof(*report->nodes));
	report->buckets = mem_array(report->bucket_count, sizeof(*report->buckets));
	memset(report->buckets, 0xFF, report->bucket_count * sizeof(*report->buckets));
	report->found = mem_array(spans->name_count, sizeof(*report->found));
	memset(report->found, 0xFF, spans->name_count * sizeof(*report->found));
}

static void report_finish(struct report *report)
{
	for (size_t i = 0; i < report->count; i++)
		free(report->nodes[i].ms);
	free(report->nodes);
	free(report->buckets);
	free(report->found);
	free(report->calls);
}

/* ---- nodes ---- */

static size_t bucket_of(const struct report *report, uint32_t parent, unsigned kind,
			uint32_t name)
{
	/* Of numbers that we gave; multiplied by the golden ratio's bits. */
	const uint64_t key = ((uint64_t)parent << 32 | name) * 4 + kind;

	return (size_t)((key * UINT64_C(0x9E3779B97F4A7C15)) >> 40) &
	       (report->bucket_count - 1);
}

static void rehash(struct report *report)
{
	free(report->buckets);
	report->bucket_count *= 2;
	report->buckets = mem_array(report->bucket_count, sizeof(*report->buckets));
	memset(report->buckets, 0xFF, report->bucket_count * sizeof(*report->buckets));
	for (uint32_t i = 0; i < report->count; i++) {
		struct node *node = &report->nodes[i];
		const size_t at = bucket_of(report, node->parent, node->kind, node->name);

		node->next = report->buckets[at];
		report->buckets[at] = i;
	}
}

static bool is_again(const struct report *report, uint32_t parent, uint32_t name)
{
	while (parent != NO_NODE) {
		const struct node *node = &report->nodes[parent];

		if (node->kind == NODE_NAME && node->name == name)
			return true;
		parent = node->parent;
	}
	return false;
}

/* The node of @name inside @parent; @parent itself when there are too many. */
static uint32_t node_of(struct report *report, uint32_t parent, enum node_kind kind,
			uint32_t name)
{
	const size_t at = bucket_of(report, parent, kind, name);
	struct node *node;

	for (uint32_t i = report->buckets[at]; i != NO_NODE; i = report->nodes[i].next) {
		node = &report->nodes[i];
		if (node->parent == parent && node->name == name && node->kind == kind)
			return i;
	}
	if (report->count >= REPORT_NODES_MAX && parent != NO_NODE)
		return parent;
	if (report->count == report->room) {
		report->room *= 2;
		report->nodes =
			mem_grow(report->nodes, report->room, sizeof(*report->nodes));
	}
	node = &report->nodes[report->count];
	*node = (struct node){.parent = parent, .name = name, .kind = (uint8_t)kind};
	node->again = kind == NODE_NAME && is_again(report, parent, name);
	node->next = report->buckets[at];
	report->buckets[at] = (uint32_t)report->count++;
	if (report->count > report->bucket_count)
		rehash(report);
	return (uint32_t)(report->count - 1);
}

/* The node of the name of a call inside @parent, which is a node. */
static uint32_t name_node(struct report *report, uint32_t parent, uint32_t name)
{
	struct found *found = &report->found[name];

	if (found->parent != parent)
		*found = (struct found){parent, node_of(report, parent, NODE_NAME, name)};
	return found->node;
}

static void add(struct report *report, uint32_t at, int64_t inclusive, int64_t self)
{
	struct node *node = &report->nodes[at];

	if (node->samples == node->room) {
		node->room = node->room ? node->room * 2 : 16;
		node->ms = mem_grow(node->ms, node->room, sizeof(*node->ms));
	}
	node->ms[node->samples++] =
		inclusive > UINT32_MAX ? UINT32_MAX : (uint32_t)inclusive;
	node->inclusive += inclusive;
	node->self += self;
	if (inclusive > node->max)
		node->max = inclusive;
}

/* ---- gathering ---- */

/* The part of [from, to) that is in @range; false when there is none. What has no length
 * counts where it begins. */
static bool cut(const struct report_range *range, int64_t from, int64_t to,
		struct report_range *out)
{
	out->from = from > range->from ? from : range->from;
	out->to = to < range->to ? to : range->to;
	return out->to > out->from ||
	       (from == to && from >= range->from && from < range->to);
}

static size_t range_count(const struct report_query *query)
{
	return query->range_count ? query->range_count : 1;
}

static struct report_range range_at(const struct report_query *query, size_t at)
{
	return query->range_count ? query->ranges[at]
				  : (struct report_range){query->from, query->to};
}

/* What no call or wait covers of a turn, from what they reached to @to, is the model's.
 */
static void add_model(struct report *report, uint32_t model, int64_t from, int64_t to)
{
	struct report_range range;

	if (to > from && cut(&report->range, from, to, &range))
		add(report, model, range.to - range.from, range.to - range.from);
}

/* A part's time is not its call's own; parts come by start. */
static void take_part(struct report *report, struct call *call,
		      const struct report_range *part)
{
	const int64_t from = part->from > call->reached ? part->from : call->reached;
	const int64_t to = part->to < call->to ? part->to : call->to;

	if (to <= from)
		return;
	report->nodes[call->node].self -= to - from;
	call->reached = to;
}

/* One pass over what a run has in the range. @end: of the run; @model: NO_NODE if it is
 * no turn. */
static void gather_spans(struct report *report, const struct span_lane *lane,
			 const struct run *run, int64_t end, uint32_t turn,
			 uint32_t model)
{
	const int64_t now = span_lane_now(lane, report->query->now);
	const struct report_range *wanted = &report->range;
	const size_t first = run_find(run, wanted->from);
	int64_t reached = first ? run->spans[first - 1].until : run->t;

	if (run->count > report->call_room) {
		report->call_room = run->count;
		report->calls = mem_grow(report->calls, report->call_room,
					 sizeof(*report->calls));
	}
	for (size_t i = first; i < run->count && run->spans[i].t < wanted->to; i++) {
		const struct span *span = &run->spans[i];
		const int64_t until = span_end(span->end, now);
		const bool inside = span->parent >= (int32_t)first;
		struct call *call = &report->calls[i];
		struct report_range range;

		call->node = name_node(report,
				       inside ? report->calls[span->parent].node : turn,
				       span->kind == SPAN_WAIT ? NAME_YOU : span->name);
		if (until > span->t && until > reached) {
			if (model != NO_NODE)
				add_model(report, model, reached,
					  span->t < end ? span->t : end);
			reached = until;
		}
		call->to = INT64_MIN; /* of what is outside nothing is taken */
		if (!cut(wanted, span->t, until, &range))
			continue;
		call->reached = range.from;
		call->to = range.to;
		add(report, call->node, range.to - range.from, range.to - range.from);
		if (inside)
			take_part(report, &report->calls[span->parent], &range);
	}
	if (model != NO_NODE)
		add_model(report, model, reached, end);
}

static void gather_run(struct report *report, const struct span_lane *lane, size_t at,
		       uint32_t channel)
{
	const struct run *run = lane->runs[at].run;
	const int64_t end = span_lane_end(lane, at, report->query->now);
	uint32_t turn = channel, model = NO_NODE;
	struct report_range range;

	if (run->is_turn && cut(&report->range, run->t, end, &range)) {
		turn = node_of(report, channel, NODE_NAME, NAME_TURN);
		model = node_of(report, turn, NODE_NAME, NAME_MODEL);
		add(report, turn, range.to - range.from, 0);
	}
	gather_spans(report, lane, run, end, turn, model);
}

/* What was between the runs. */
static void gather_idle(struct report *report, uint32_t channel, int64_t idle,
			uint64_t gaps)
{
	const uint32_t at = node_of(report, channel, NODE_NAME, NAME_IDLE);
	struct node *node = &report->nodes[at];

	if (idle <= 0 || node->kind != NODE_NAME || node->name != NAME_IDLE)
		return;
	node->count += gaps ? gaps : 1;
	node->inclusive += idle;
	node->self += idle;
}

static void lane_times(const struct report *report, const struct span_lane *lane,
		       const struct report_range *range, uint64_t sums[SPAN_SUMS],
		       int64_t *idle)
{
	const int64_t now = report->query->now;
	uint64_t before[SPAN_SUMS];

	span_lane_sums(lane, range->to, now, sums);
	span_lane_sums(lane, range->from, now, before);
	*idle = span_lane_present(lane, range->from, range->to, now);
	for (size_t i = 0; i < SPAN_SUMS; i++) {
		sums[i] -= before[i];
		*idle -= (int64_t)sums[i];
	}
	*idle = *idle < 0 ? 0 : *idle;
}

static bool wanted(const struct report *report, const struct span_lane *lane)
{
	return !report->query->wants || report->query->wants(report->query->ctx, lane);
}

/* Was there nothing, inside the range, between run @at and what came before it? @first is
 * the first run that may reach into the range. */
static bool is_idle_before(const struct report_range *range, const struct span_lane *lane,
			   size_t at, size_t first)
{
	if (at > first)
		return lane->runs[at].t > lane->runs[at - 1].until;
	return at && lane->runs[at].t > range->from;
}

/* The same between run @at, the last one of the range, and the end of the range. */
static bool is_idle_behind(const struct report_range *range, const struct span_lane *lane,
			   size_t at, int64_t now)
{
	const int64_t end = span_end(lane->runs[at].until, span_lane_now(lane, now));

	return span_lane_present(lane, end, range->to, now) > 0;
}

/* What the lane has in the range at hand; false when that is nothing. */
static bool gather_range(struct report *report, size_t index)
{
	const struct span_lane *lane = report->spans->lanes[index];
	const struct report_range *range = &report->range;
	const size_t first = span_lane_find(lane, range->from);
	uint64_t sums[SPAN_SUMS], gaps = 0;
	size_t last = lane->count;
	uint32_t agent, channel;
	int64_t idle;

	lane_times(report, lane, range, sums, &idle);
	if (idle <= 0 && (first == lane->count || lane->runs[first].t >= range->to))
		return false;
	agent = node_of(report, NO_NODE, NODE_AGENT, lane->first);
	channel = node_of(report, agent, NODE_CHANNEL, (uint32_t)index);
	for (size_t i = first; i < lane->count && lane->runs[i].t < range->to; i++) {
		if (is_idle_before(range, lane, i, first))
			gaps++;
		span_lane_ahead(lane, i);
		gather_run(report, lane, i, channel);
		last = i;
	}
	if (last < lane->count && is_idle_behind(range, lane, last, report->query->now))
		gaps++;
	gather_idle(report, channel, idle, gaps);
	for (size_t i = 0; i < SPAN_SUMS; i++) {
		report->sums[i] += sums[i];
		report->nodes[channel].inclusive += (int64_t)sums[i];
		report->nodes[agent].inclusive += (int64_t)sums[i];
	}
	report->idle += idle;
	report->nodes[channel].inclusive += idle;
	report->nodes[agent].inclusive += idle;
	return true;
}

static void gather_lane(struct report *report, size_t index)
{
	const struct span_lane *lane = report->spans->lanes[index];
	bool is_there = false;
	uint32_t agent, channel;

	for (size_t i = 0; i < range_count(report->query); i++) {
		report->range = range_at(report->query, i);
		is_there = gather_range(report, index) || is_there;
	}
	if (!is_there)
		return;
	agent = node_of(report, NO_NODE, NODE_AGENT, lane->first);
	channel = node_of(report, agent, NODE_CHANNEL, (uint32_t)index);
	report->nodes[channel].count++;
	report->nodes[agent].count++;
}

/* ---- quantiles ---- */

/* The @rank-th smallest of @values, which are moved about. Hoare's selection. */
static uint32_t select_rank(uint32_t *values, size_t count, size_t rank)
{
	size_t low = 0, high = count - 1;

	while (low < high) {
		const uint32_t pivot = values[low + (high - low) / 2];
		size_t i = low, k = high;

		for (;; i++, k--) {
			uint32_t kept;

			while (values[i] < pivot)
				i++;
			while (values[k] > pivot)
				k--;
			if (i >= k)
				break;
			kept = values[i];
			values[i] = values[k];
			values[k] = kept;
		}
		if (rank <= k)
			high = k;
		else
			low = k + 1;
	}
	return values[rank];
}

struct quantiles {
	uint32_t p50, p95;
};

/* @group_of: which group a node is of; an array of quantiles by group comes back. */
static struct quantiles *find_quantiles(const struct report *report,
					const uint32_t *group_of, size_t groups)
{
	struct quantiles *out = mem_array(groups + 1, sizeof(*out));
	size_t *ends = mem_array(groups + 1, sizeof(*ends));
	uint32_t *values = mem_array(report->samples + 1, sizeof(*values));
	size_t begin = 0;

	for (size_t i = 0; i < report->count; i++)
		ends[group_of[i] + 1] += report->nodes[i].samples;
	for (size_t i = 0; i < groups; i++)
		ends[i + 1] += ends[i];
	/* Each group fills from its start; then its start is its end. */
	for (size_t i = 0; i < report->count; i++) {
		const struct node *node = &report->nodes[i];
		size_t *end = &ends[group_of[i]];

		if (node->samples)
			memcpy(values + *end, node->ms, node->samples * sizeof(*values));
		*end += node->samples;
	}
	for (size_t i = 0; i < groups; i++) {
		const size_t count = ends[i] - begin;

		if (count) {
			const size_t high = (count * 95 + 99) / 100 - 1;

			/* What is at and below it stands before it then. */
			out[i].p95 = select_rank(values + begin, count, high);
			out[i].p50 =
				select_rank(values + begin, high + 1, (count - 1) / 2);
		}
		begin = ends[i];
	}
	free(ends);
	free(values);
	return out;
}

/* ---- writing ---- */

static const char *const time_names[] = {"", "model", "tool", "you", "idle"};

static void write_name(const struct report *report, const struct node *node,
		       struct buf *out)
{
	const struct span_name *name;

	if (node->kind == NODE_NAME) {
		name = &report->spans->names[node->name];
		json_write_member_string(out, SLICE("name"), slice_of(name->text));
		if (name->time)
			json_write_member_string(out, SLICE("time"),
						 slice_of(time_names[name->time]));
		if (name->is_command)
			json_write_member_raw(out, SLICE("command"), SLICE("true"));
		return;
	}
	json_write_member_string(
		out, node->kind == NODE_AGENT ? SLICE("agent") : SLICE("lane"),
		slice_sub(slice_of(report->spans->lanes[node->name]->id), 0,
			  node->kind == NODE_AGENT ? 2 * KEY_BYTES : SIZE_MAX));
}

static void write_figures(const struct node *node, const struct quantiles *quantiles,
			  struct buf *out)
{
	json_write_member_int(out, SLICE("count"), (int64_t)node->count);
	json_write_member_int(out, SLICE("inclusive"), node->inclusive);
	json_write_member_int(out, SLICE("self"), node->self);
	if (!quantiles || !node->max)
		return;
	json_write_member_int(out, SLICE("p50"), quantiles->p50);
	json_write_member_int(out, SLICE("p95"), quantiles->p95);
	json_write_member_int(out, SLICE("max"), node->max);
}

static int by_self(const void *left, const void *right)
{
	const struct node *const *a = left, *const *b = right;

	if ((*a)->self != (*b)->self)
		return (*a)->self < (*b)->self ? 1 : -1;
	return ((*a)->name > (*b)->name) - ((*a)->name < (*b)->name);
}

static int by_inclusive(const void *left, const void *right)
{
	const struct node *const *a = left, *const *b = right;

	if ((*a)->inclusive != (*b)->inclusive)
		return (*a)->inclusive < (*b)->inclusive ? 1 : -1;
	return ((*a)->name > (*b)->name) - ((*a)->name < (*b)->name);
}

/* What has no room of its own: @rest of @nodes added up. */
static void write_more(const struct node *const *nodes, size_t count, struct buf *out)
{
	struct node sum = {0};

	for (size_t i = 0; i < count; i++) {
		sum.count += nodes[i]->count;
		sum.inclusive += nodes[i]->inclusive;
		sum.self += nodes[i]->self;
	}
	(void)buf_printf(out, ",{\"more\":%zu", count);
	write_figures(&sum, NULL, out);
	(void)buf_lit(out, "}");
}

/* Every name once, whatever it is part of. @group_of: by node, its group. */
static size_t add_names(const struct report *report, struct node *groups,
			uint32_t *group_of)
{
	const size_t names = report->spans->name_count;
	uint32_t *found = mem_array(names, sizeof(*found));
	size_t count = 0;

	for (size_t i = 0; i < report->count; i++) {
		const struct node *node = &report->nodes[i];
		struct node *group;

		group_of[i] = 0;
		/* A turn is made of what is told on its own. */
		if (node->kind != NODE_NAME || node->name == NAME_TURN || !node->count)
			continue;
		if (!found[node->name]) {
			found[node->name] = (uint32_t)++count;
			groups[count] =
				(struct node){.name = node->name, .parent = NO_NODE};
		}
		group_of[i] = found[node->name];
		group = &groups[group_of[i]];
		group->count += node->count;
		group->self += node->self;
		group->inclusive += node->again ? 0 : node->inclusive;
		group->max = node->max > group->max ? node->max : group->max;
	}
	free(found);
	return count;
}

static void write_flat(const struct report *report, struct buf *out)
{
	/* Group 0 is of what is no row. */
	struct node *groups = mem_array(report->count + 1, sizeof(*groups));
	uint32_t *group_of = mem_array(report->count + 1, sizeof(*group_of));
	const size_t count = add_names(report, groups, group_of);
	struct quantiles *quantiles = find_quantiles(report, group_of, count + 1);
	const struct node **order = mem_array(count + 1, sizeof(struct node *));
	const size_t shown = count < REPORT_ROWS_MAX ? count : REPORT_ROWS_MAX;

	for (size_t i = 0; i < count; i++)
		order[i] = &groups[i + 1];
	if (count)
		qsort(order, count, sizeof(struct node *), by_self);
	for (size_t i = 0; i < shown; i++) {
		(void)buf_append(out, i ? SLICE(",{") : SLICE("{"));
		write_name(report, order[i], out);
		write_figures(order[i], &quantiles[order[i] - groups], out);
		(void)buf_lit(out, "}");
	}
	if (shown < count)
		write_more(order + shown, count - shown, out);
	free(order);
	free(quantiles);
	free(group_of);
	free(groups);
}

/* ---- trees ---- */

/* Children of every node as a list each; index count is of those without a parent. */
struct tree {
	const struct report *report;
	const struct node *nodes;
	uint32_t *children, *starts;
	bool *told; /* by node: it or something inside of it has a count */
	const struct quantiles *quantiles; /* by node; NULL: none */
	size_t written;
};

static void tree_init(struct tree *tree, const struct report *report,
		      const struct node *nodes, size_t count)
{
	size_t sum = 0;

	tree->report = report;
	tree->nodes = nodes;
	tree->children = mem_array(count + 1, sizeof(*tree->children));
	tree->starts = mem_array(count + 3, sizeof(*tree->starts));
	for (size_t i = 0; i < count; i++)
		tree->starts[(nodes[i].parent == NO_NODE ? count : nodes[i].parent) +
			     2]++;
	for (size_t i = 0; i < count + 3; i++) {
		sum += tree->starts[i];
		tree->starts[i] = (uint32_t)sum;
	}
	for (size_t i = 0; i < count; i++) {
		const size_t parent =
			nodes[i].parent == NO_NODE ? count : nodes[i].parent;

		tree->children[tree->starts[parent + 1]++] = (uint32_t)i;
	}
	tree->told = mem_array(count + 1, sizeof(*tree->told));
	/* Calls before the range are paths to what is in it at most. */
	for (size_t i = count; i-- > 0;) {
		tree->told[i] = tree->told[i] || nodes[i].count;
		if (tree->told[i] && nodes[i].parent != NO_NODE)
			tree->told[nodes[i].parent] = true;
	}
}

static void tree_finish(struct tree *tree)
{
	free(tree->children);
	free(tree->starts);
	free(tree->told);
}

static bool has_rows(const struct tree *tree, size_t at)
{
	size_t i = tree->starts[at];

	while (i < tree->starts[at + 1] && !tree->told[tree->children[i]])
		i++;
	return i < tree->starts[at + 1];
}

/* Nodes are made after their parents, and calls do not nest deeper than this. */
#define TREE_DEPTH_MAX 32

static void write_children(struct tree *tree, size_t parent, unsigned depth,
			   struct buf *out)
{
	const size_t from = tree->starts[parent], to = tree->starts[parent + 1];
	const struct node **order = mem_array(to - from + 1, sizeof(struct node *));
	size_t count = 0, shown = 0;

	for (size_t i = from; i < to; i++) {
		const size_t at = tree->children[i];

		if (tree->told[at])
			order[count++] = &tree->nodes[at];
	}
	if (count)
		qsort(order, count, sizeof(struct node *), by_inclusive);
	for (; shown < count && tree->written < REPORT_ROWS_MAX * 10; shown++) {
		const size_t at = (size_t)(order[shown] - tree->nodes);

		tree->written++;
		(void)buf_append(out, shown ? SLICE(",{") : SLICE("{"));
		write_name(tree->report, order[shown], out);
		write_figures(order[shown], tree->quantiles ? &tree->quantiles[at] : NULL,
			      out);
		if (has_rows(tree, at) && depth < TREE_DEPTH_MAX) {
			(void)buf_lit(out, ",\"rows\":[");
			write_children(tree, at, depth + 1, out);
			(void)buf_lit(out, "]");
		}
		(void)buf_lit(out, "}");
	}
	if (shown && shown < count)
		write_more(order + shown, count - shown, out);
	free(order);
}

static void write_top_down(const struct report *report, struct buf *out)
{
	uint32_t *group_of = mem_array(report->count + 1, sizeof(*group_of));
	struct quantiles *quantiles;
	struct tree tree = {0};

	for (size_t i = 0; i < report->count; i++)
		group_of[i] = (uint32_t)i;
	quantiles = find_quantiles(report, group_of, report->count);
	tree_init(&tree, report, report->nodes, report->count);
	tree.quantiles = quantiles;
	write_children(&tree, report->count, 0, out);
	tree_finish(&tree);
	free(quantiles);
	free(group_of);
}

/* Every path from its end to its beginning, in a table of its own. */
static void write_bottom_up(const struct report *report, struct buf *out)
{
	struct report callers;
	struct tree tree = {0};

	report_init(&callers, report->spans, report->query);
	for (size_t i = 0; i < report->count; i++) {
		const struct node *node = &report->nodes[i];
		uint32_t at = NO_NODE;

		if (node->kind != NODE_NAME || node->name == NAME_TURN || !node->count)
			continue;
		for (const struct node *above = node;;
		     above = &report->nodes[above->parent]) {
			struct node *to;

			at = node_of(&callers, at, (enum node_kind)above->kind,
				     above->name);
			to = &callers.nodes[at];
			to->count += node->count;
			to->self += node->self;
			to->inclusive += node->again ? 0 : node->inclusive;
			if (above->parent == NO_NODE)
				break;
		}
	}
	tree_init(&tree, report, callers.nodes, callers.count);
	write_children(&tree, callers.count, 0, out);
	tree_finish(&tree);
	report_finish(&callers);
}

/* ---- live ---- */

struct live {
	uint64_t count;
	int64_t total, min, max;
	double mean, squares; /* Welford: sum of squared distances from the mean */
	uint32_t bins[REPORT_BINS];
};

static void live_add(struct live *live, int64_t ms)
{
	const double from_mean = (double)ms - live->mean;
	unsigned bin = 0;

	while (bin + 1 < REPORT_BINS && (ms >> (bin + 1)) > 0)
		bin++;
	live->bins[bin]++;
	live->min = !live->count || ms < live->min ? ms : live->min;
	live->max = ms > live->max ? ms : live->max;
	live->total += ms;
	live->count++;
	live->mean += from_mean / (double)live->count;
	live->squares += from_mean * ((double)ms - live->mean);
}

/* Ended, and in @range; had it begun before @behind, it was in the range before. */
static bool is_whole(int64_t t, int64_t end, const struct report_range *range,
		     int64_t behind)
{
	struct report_range part;

	return end != SPANS_OPEN && t >= behind && cut(range, t, end, &part);
}

static void gather_live_lane(const struct span_lane *lane,
			     const struct report_range *range, int64_t behind,
			     struct live *live)
{
	for (size_t r = span_lane_find(lane, range->from);
	     r < lane->count && lane->runs[r].t < range->to; r++) {
		const struct run *run = lane->runs[r].run;

		span_lane_ahead(lane, r);
		if (run->is_turn && is_whole(run->t, run->end, range, behind))
			live_add(&live[NAME_TURN], run->end - run->t);
		for (size_t i = run_find(run, range->from);
		     i < run->count && run->spans[i].t < range->to; i++) {
			const struct span *span = &run->spans[i];

			if (is_whole(span->t, span->end, range, behind))
				live_add(&live[span->kind == SPAN_WAIT ? NAME_YOU
								       : span->name],
					 span->end - span->t);
		}
	}
}

static void gather_live(const struct report *report, struct live *live)
{
	const struct report_query *query = report->query;

	for (size_t l = 0; l < report->spans->lane_count; l++) {
		const struct span_lane *lane = report->spans->lanes[l];
		int64_t behind = INT64_MIN;

		for (size_t i = 0; wanted(report, lane) && i < range_count(query); i++) {
			const struct report_range range = range_at(query, i);

			gather_live_lane(lane, &range, behind, live);
			behind = range.to;
		}
	}
}

struct live_row {
	const struct live *live;
	uint32_t name;
};

static int by_total(const void *left, const void *right)
{
	const struct live_row *a = left, *b = right;

	if (a->live->total != b->live->total)
		return a->live->total < b->live->total ? 1 : -1;
	return (a->name > b->name) - (a->name < b->name);
}

static void write_live_row(const struct report *report, const struct live_row *row,
			   struct buf *out)
{
	const struct live *live = row->live;
	const struct node name = {.kind = NODE_NAME, .name = row->name};
	unsigned last = REPORT_BINS;

	(void)buf_lit(out, "{");
	write_name(report, &name, out);
	json_write_member_int(out, SLICE("count"), (int64_t)live->count);
	json_write_member_int(out, SLICE("total"), live->total);
	json_write_member_int(out, SLICE("min"), live->min);
	json_write_member_int(out, SLICE("max"), live->max);
	(void)buf_printf(out, ",\"avg\":%.1f,\"deviation\":%.1f,\"bins\":[", live->mean,
			 sqrt(live->squares / (double)live->count));
	while (last > 1 && !live->bins[last - 1])
		last--;
	for (unsigned i = 0; i < last; i++)
		(void)buf_printf(out, "%s%" PRIu32, i ? "," : "", live->bins[i]);
	(void)buf_lit(out, "]}");
}

static void write_live(const struct report *report, struct buf *out)
{
	const size_t names = report->spans->name_count;
	struct live *live = mem_array(names, sizeof(*live));
	struct live_row *rows = mem_array(names, sizeof(*rows));
	size_t count = 0;

	gather_live(report, live);
	for (size_t i = 0; i < names; i++)
		if (live[i].count)
			rows[count++] = (struct live_row){&live[i], (uint32_t)i};
	if (count)
		qsort(rows, count, sizeof(*rows), by_total);
	for (size_t i = 0; i < count && i < REPORT_ROWS_MAX; i++) {
		(void)buf_append(out, i ? SLICE(",") : SLICE(""));
		write_live_row(report, &rows[i], out);
	}
	free(rows);
	free(live);
}

/* ---- the answer ---- */

static void write_times(const uint64_t sums[SPAN_SUMS], int64_t idle, struct buf *out)
{
	json_write_member_int(out, SLICE("model"), (int64_t)sums[0]);
	json_write_member_int(out, SLICE("tool"), (int64_t)sums[1]);
	json_write_member_int(out, SLICE("you"), (int64_t)sums[2]);
	json_write_member_int(out, SLICE("idle"), idle);
}

static void write_lanes(const struct report *report, struct buf *out)
{
	bool first = true;

	(void)buf_lit(out, ",\"lanes\":[");
	for (size_t l = 0; l < report->spans->lane_count; l++) {
		const struct span_lane *lane = report->spans->lanes[l];
		uint64_t all[SPAN_SUMS] = {0}, sums[SPAN_SUMS];
		int64_t idle = 0, part;

		if (!wanted(report, lane))
			continue;
		for (size_t r = 0; r < range_count(report->query); r++) {
			const struct report_range range = range_at(report->query, r);

			lane_times(report, lane, &range, sums, &part);
			for (size_t i = 0; i < SPAN_SUMS; i++)
				all[i] += sums[i];
			idle += part;
		}
		if (!(all[0] + all[1] + all[2]) && idle <= 0)
			continue;
		(void)buf_append(out, first ? SLICE("{") : SLICE(",{"));
		first = false;
		json_write_member_string(out, SLICE("lane"), slice_of(lane->id));
		write_times(all, idle, out);
		(void)buf_lit(out, "}");
	}
	(void)buf_lit(out, "]");
}

static void write_rows(const struct report *report, struct buf *out)
{
	(void)buf_lit(out, ",\"rows\":[");
	switch (report->query->view) {
	case REPORT_FLAT:
		write_flat(report, out);
		break;
	case REPORT_TOP_DOWN:
		write_top_down(report, out);
		break;
	case REPORT_BOTTOM_UP:
		write_bottom_up(report, out);
		break;
	case REPORT_LIVE:
		write_live(report, out);
		break;
	}
	(void)buf_lit(out, "]");
}

void report_write(struct spans *spans, const struct report_query *query, struct buf *out)
{
	struct report report;

	spans_join(spans);
	report_init(&report, spans, query);
	for (size_t i = 0; i < spans->lane_count; i++)
		if (wanted(&report, spans->lanes[i]))
			gather_lane(&report, i);
	for (size_t i = 0; i < report.count; i++) {
		report.nodes[i].count += report.nodes[i].samples;
		report.samples += report.nodes[i].samples;
	}
	(void)buf_lit(out, "{");
	json_write_member_int(out, SLICE("from"), query->from);
	json_write_member_int(out, SLICE("to"), query->to);
	json_write_member_int(out, SLICE("now"), query->now);
	if (spans->from_ms > query->from)
		json_write_member_int(out, SLICE("completeFrom"), spans->from_ms);
	(void)buf_lit(out, ",\"total\":{");
	write_times(report.sums, report.idle, out);
	(void)buf_lit(out, "}");
	write_lanes(&report, out);
	write_rows(&report, out);
	(void)buf_lit(out, "}");
	report_finish(&report);
}
