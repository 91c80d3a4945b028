/* X-Forwarded-For from anywhere, behind proxies that are believed. */
#include "tests/fuzz/fuzz.h"

#include <assert.h>
#include <string.h>

#include "relay/address.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct slice forwarded = {(const char *)data, size};
	struct proxies proxies = {0};
	struct address peer, client, again;
	char text[ADDRESS_TEXT_MAX];
	struct err err;

	assert(proxies_add(&proxies, "10.0.0.0/8", &err));
	assert(proxies_add(&proxies, "2001:db8::/33", &err));
	assert(address_parse(SLICE("203.0.113.9"), &peer));
	proxies_client(&proxies, &peer, forwarded, &client);
	assert(address_eq(&client, &peer)); /* nobody believes it */
	assert(address_parse(SLICE("10.1.2.3"), &peer));
	proxies_client(&proxies, &peer, forwarded, &client);
	assert(client.known);
	/* What it says can be read again. */
	assert(address_parse(slice_of(address_text(&client, text)), &again));
	assert(address_eq(&client, &again));
	assert(address_key(&client).len <= sizeof(client.bytes));
	return 0;
}
