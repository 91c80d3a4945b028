#include "relay/nip11.h"

#include "wire/base/slice.h"
#include "wire/frame/limits.h"
#include "wire/nostr/json.h"
#include "wire/nostr/message.h"

static void write_limitation(const struct nip11_access *access, struct buf *out)
{
	(void)json_write_key(out, SLICE("limitation"));
	(void)buf_lit(out, "{");
	(void)json_write_member_int(out, SLICE("max_message_length"), RELAY_MESSAGE_MAX);
	(void)json_write_member_int(out, SLICE("max_subscriptions"), RELAY_SUBS_MAX);
	(void)json_write_member_int(out, SLICE("max_subid_length"), MESSAGE_SUB_ID_MAX);
	(void)json_write_member_int(out, SLICE("max_event_tags"), EVENT_TAGS_MAX);
	(void)json_write_member_int(out, SLICE("max_limit"), RELAY_LIMIT_MAX);
	(void)json_write_member_int(out, SLICE("default_limit"), RELAY_LIMIT_DEFAULT);
	(void)json_write_member_int(out, SLICE("created_at_upper_limit"), RELAY_AHEAD_S);
	(void)json_write_member_int(out, SLICE("min_pow_difficulty"), 0);
	(void)json_write_member_bool(out, SLICE("auth_required"),
				     access->by_list && !access->open);
	(void)json_write_member_bool(out, SLICE("payment_required"), false);
	(void)json_write_member_bool(out, SLICE("restricted_writes"), !access->open);
	(void)buf_lit(out, "}");
}

/* What NIP-11 has no words for. created_at's range of frames is not that of stored kinds,
 * which is in the limitation. */
static void write_perch(const struct nip11_access *access, struct buf *out)
{
	int64_t frames =
		access->frames_per_s > 0 ? access->frames_per_s : RELAY_FRAMES_PER_S;

	(void)json_write_key(out, SLICE("perch"));
	(void)buf_lit(out, "{");
	(void)json_write_member_int(out, SLICE("backfill_per_second"), frames * 4 / 5);
	if (access->frames_per_s > 0)
		(void)json_write_member_int(out, SLICE("frames_per_second"), frames);
	(void)json_write_member_int(out, SLICE("frame_fresh_seconds"), FRAME_FRESH_S);
	(void)json_write_member_int(out, SLICE("window_seconds"), RELAY_WINDOW_S);
	(void)json_write_member_int(out, SLICE("max_filters"), MESSAGE_FILTERS_MAX);
	(void)json_write_member_bool(out, SLICE("stores_events"), true);
	(void)buf_lit(out, "}");
}

void nip11_write(const struct nip11_access *access, struct buf *out)
{
	(void)buf_lit(out, "{");
	(void)json_write_member_string(out, SLICE("name"), SLICE("Perch relay"));
	(void)json_write_member_string(
		out, SLICE("description"),
		SLICE("Routes sealed kind 24200 frames between agents and their owners, "
		      "and keeps stored kinds."));
	(void)json_write_member_string(out, SLICE("software"), SLICE("perch"));
	(void)json_write_member_string(out, SLICE("version"), slice_of(PERCH_VERSION));
	/* 1 messages, 9 deletion, 11 this, 40 expiration, 42 AUTH, 45 COUNT, 70 protected
	 * events. */
	(void)json_write_member_raw(out, SLICE("supported_nips"),
				    SLICE("[1,9,11,40,42,45,70]"));
	write_limitation(access, out);
	write_perch(access, out);
	(void)buf_lit(out, "}");
}
