/* perch.conf: any bytes give settings inside the text, in order of their lines. */
#include "tests/fuzz/fuzz.h"

#include <assert.h>

#include "wire/host/conf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct slice text = {(const char *)data, size};
	struct conf_setting setting;
	struct conf conf;
	struct err err;
	unsigned line = 0;

	conf_init(&conf, "perch.conf", text);
	while (conf_next(&conf, &setting, &err)) {
		assert(setting.line > line);
		line = setting.line;
		assert(conf_knows_option(setting.name));
		assert(setting.value.len <= size);
		assert(utf8_valid(setting.value));
	}
	assert(err.code == ERR_NONE || err.code == ERR_MALFORMED);
	return 0;
}
