#include "wire/frame/gone.h"

static const char *const names[GONE_WHYS] = {
	[GONE_UNKNOWN] = "",
	[GONE_RETENTION] = "retention",
	[GONE_DISK] = "disk",
	[GONE_KILLED] = "killed",
	[GONE_NO_JOURNAL] = "no_journal",
	[GONE_SHED] = "shed",
	[GONE_REFUSED] = "refused",
};

const char *gone_why_name(enum gone_why why)
{
	return names[why];
}

enum gone_why gone_why_parse(struct slice name)
{
	for (int why = GONE_UNKNOWN + 1; why < GONE_WHYS; why++)
		if (slice_eq(name, slice_of(names[why])))
			return why;
	return GONE_UNKNOWN;
}
