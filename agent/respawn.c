#include "agent/respawn.h"

static void remember(struct respawn *respawn, int64_t now_ms)
{
	if (respawn->count > 0 && now_ms - respawn->crashes[0] > RESPAWN_WINDOW_MS)
		respawn->attempt = 0;
	for (unsigned i = RESPAWN_CRASHES - 1; i > 0; i--)
		respawn->crashes[i] = respawn->crashes[i - 1];
	respawn->crashes[0] = now_ms;
	if (respawn->count < RESPAWN_CRASHES)
		respawn->count++;
	respawn->attempt++;
}

int64_t respawn_crashed(struct respawn *respawn, int64_t now_ms, bool *opened_out)
{
	int64_t delay_ms = RESPAWN_FIRST_MS;

	remember(respawn, now_ms);
	*opened_out =
		respawn->tripped ||
		(respawn->count == RESPAWN_CRASHES &&
		 now_ms - respawn->crashes[RESPAWN_CRASHES - 1] <= RESPAWN_WINDOW_MS);
	if (*opened_out) {
		respawn->tripped = true;
		return RESPAWN_COOLDOWN_MS;
	}
	for (unsigned i = 1; i < respawn->attempt && delay_ms < RESPAWN_MAX_MS; i++)
		delay_ms *= 2;
	return delay_ms < RESPAWN_MAX_MS ? delay_ms : RESPAWN_MAX_MS;
}

int64_t respawn_failed(struct respawn *respawn, int64_t now_ms)
{
	remember(respawn, now_ms);
	respawn->tripped = true;
	return RESPAWN_COOLDOWN_MS;
}

bool respawn_recovered(struct respawn *respawn)
{
	bool tripped = respawn->tripped;

	respawn->tripped = false;
	return tripped;
}
