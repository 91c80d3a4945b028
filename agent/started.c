#include "agent/started.h"

#include <unistd.h>

#include "agent/lookup.h"
#include "agent/report.h"
#include "wire/nostr/json.h"

static void write_command(struct buf *payload, char *const *command)
{
	(void)json_write_key(payload, SLICE("command"));
	(void)buf_lit(payload, "[");
	for (size_t i = 0; command[i]; i++) {
		const struct slice argument = slice_of(command[i]);
		struct buf clean;

		buf_init(&clean, 3 * argument.len);
		(void)text_clean(argument, &clean);
		(void)buf_append(payload, i ? SLICE(",") : SLICE(""));
		(void)json_write_string(payload, buf_slice(&clean));
		buf_finish(&clean);
	}
	(void)buf_lit(payload, "]");
}

static void write_channels(struct buf *payload, const struct harness_channel *channels,
			   size_t count)
{
	(void)json_write_key(payload, SLICE("channels"));
	(void)buf_lit(payload, "[");
	for (size_t i = 0; i < count; i++) {
		(void)buf_append(payload, i ? SLICE(",{") : SLICE("{"));
		(void)json_write_member_string(payload, SLICE("id"),
					       uuid_slice(&channels[i].uuid));
		report_member(payload, SLICE("name"), slice_of(channels[i].name));
		(void)buf_lit(payload, "}");
	}
	(void)buf_lit(payload, "]");
}

void started_report(struct sender *sender, const struct started *started)
{
	const struct feed_context context = {.slot = -1};
	char host[256] = "";
	struct buf payload;

	(void)gethostname(host, sizeof(host) - 1);
	report_begin(&payload);
	report_member(&payload, SLICE("name"), slice_of(started->name));
	report_member(&payload, SLICE("host"), slice_of(host));
	(void)json_write_member_string(&payload, SLICE("version"), SLICE(PERCH_VERSION));
	write_command(&payload, started->command);
	(void)json_write_member_string(&payload, SLICE("mode"), slice_of(started->mode));
	report_member(&payload, SLICE("cwd"), slice_of(started->cwd));
	(void)json_write_member_int(&payload, SLICE("slots"), started->slots);
	(void)json_write_member_string(&payload, SLICE("control"),
				       slice_of(started->control));
	(void)json_write_member_string(&payload, SLICE("permissions"),
				       slice_of(started->permissions));
	if (started->rules && started->rules[0])
		report_member(&payload, SLICE("permissionRules"),
			      slice_of(started->rules));
	write_channels(&payload, started->channels, started->channel_count);
	(void)json_write_member_int(&payload, SLICE("startedAtMs"),
				    sender_started_ms(sender));
	report_end(sender, &context, "harness_started", &payload);
}
