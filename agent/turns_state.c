#include "agent/report.h"
#include "agent/turns_part.h"
#include "wire/nostr/json.h"

/* Of all offers in one feed_state, which must fit a frame. */
#define STATE_OFFERS_MAX (24u << 10)

static void write_channel(const struct channel *channel, struct buf *out)
{
	(void)json_write_member_string(out, SLICE("id"), uuid_slice(&channel->uuid));
	report_member(out, SLICE("name"), slice_of(channel->name));
	(void)json_write_member_int(out, SLICE("queued"), (int64_t)channel->prompt_count);
	(void)json_write_member_bool(out, SLICE("held"), channel->held);
	(void)json_write_member_int(out, SLICE("slot"), channel->slot);
}

static void write_session(const struct channel *channel, size_t end, struct buf *out)
{
	(void)json_write_member_string(out, SLICE("sessionId"),
				       buf_slice(&channel->session));
	(void)json_write_member_string(out, SLICE("channelId"),
				       uuid_slice(&channel->uuid));
	(void)json_write_member_int(out, SLICE("slot"), channel->slot);
	if (channel->title.len)
		(void)buf_printf(out, ",\"title\":\"%.*s\"",
				 SLICE_ARG(buf_slice(&channel->title)));
	channel_write_offers(channel, out, end);
}

void turns_write_state(const struct turns *turns, struct buf *out)
{
	size_t end = out->len + STATE_OFFERS_MAX;
	const struct channel *channels = turns->channels;
	bool first = true;

	(void)json_write_key(out, SLICE("channels"));
	(void)buf_lit(out, "[");
	for (size_t i = 0; i < turns->channel_count; i++) {
		(void)buf_append(out, i ? SLICE(",{") : SLICE("{"));
		write_channel(&channels[i], out);
		(void)buf_lit(out, "}");
	}
	(void)buf_lit(out, "]");
	(void)json_write_key(out, SLICE("sessions"));
	(void)buf_lit(out, "[");
	for (size_t i = 0; i < turns->channel_count; i++) {
		if (channels[i].state != SESSION_OPEN)
			continue;
		(void)buf_append(out, first ? SLICE("{") : SLICE(",{"));
		write_session(&channels[i], end, out);
		(void)buf_lit(out, "}");
		first = false;
	}
	(void)buf_lit(out, "]");
	(void)json_write_key(out, SLICE("turns"));
	(void)buf_lit(out, "[");
	first = true;
	for (size_t i = 0; i < turns->channel_count; i++) {
		const struct turn *turn = channels[i].turn;

		if (!turn)
			continue;
		(void)buf_append(out, first ? SLICE("{") : SLICE(",{"));
		(void)json_write_member_string(out, SLICE("turnId"), slice_of(turn->id));
		(void)json_write_member_string(out, SLICE("channelId"),
					       uuid_slice(&channels[i].uuid));
		(void)json_write_member_int(out, SLICE("sinceMs"), turn->started_unix_ms);
		(void)buf_lit(out, "}");
		first = false;
	}
	(void)buf_lit(out, "]");
	(void)json_write_key(out, SLICE("pending"));
	(void)buf_lit(out, "[");
	first = true;
	for (size_t i = 0; i < turns->peer_count; i++)
		asks_write_state(turns->peers[i].asks, out, loop_unix_ms(), &first);
	(void)buf_lit(out, "]");
}
