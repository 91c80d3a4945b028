/* Where clients come from, and whom we believe about it. */
#include "relay/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/support/support.h"

static struct proxies proxies;

static void setup(void)
{
	memset(&proxies, 0, sizeof(proxies));
}

static struct address address(const char *text)
{
	struct address out;

	ck_assert_msg(address_parse(slice_of(text), &out), "%s", text);
	return out;
}

static void trust(const char *text)
{
	struct err err;

	ck_assert_msg(proxies_add(&proxies, text, &err), "%s", err.text);
}

/* Who is behind @peer that said @forwarded? */
static const char *client(const char *peer, const char *forwarded)
{
	static char text[ADDRESS_TEXT_MAX];
	struct address from = address(peer);
	struct address out;

	proxies_client(&proxies, &from, slice_of(forwarded), &out);
	return address_text(&out, text);
}

START_TEST(an_ipv4_address_is_the_same_however_it_is_written)
{
	struct sockaddr_in v4 = {.sin_family = AF_INET};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
	struct address a = address("192.0.2.1"), b = address("::ffff:192.0.2.1");
	struct address c, d;

	v4.sin_addr.s_addr = htonl(0xc0000201);
	ck_assert_int_eq(inet_pton(AF_INET6, "::ffff:192.0.2.1", &v6.sin6_addr), 1);
	ck_assert(address_from_socket((struct sockaddr *)&v4, &c));
	ck_assert(address_from_socket((struct sockaddr *)&v6, &d));
	ck_assert(address_eq(&a, &b) && address_eq(&b, &c) && address_eq(&c, &d));
	ck_assert_uint_eq(address_key(&a).len, 16);
}
END_TEST

START_TEST(what_is_no_address_is_refused)
{
	static const char *const texts[] = {
		"",
		"1.2.3",
		"1.2.3.4.5",
		"256.1.1.1",
		"localhost",
		"1.2.3.4 ",
		"[::1]",
		":::",
		"1.2.3.4/8",
		"fe80::1%lo",
		"0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:0000"};
	struct address out;
	size_t i;

	for (i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		ck_assert_msg(!address_parse(slice_of(texts[i]), &out), "%s", texts[i]);
	ck_assert(!address_parse((struct slice){"1.2.3.4\0x", 9}, &out));
}
END_TEST

START_TEST(loopback_is_127_and_1)
{
	struct address yes[] = {address("127.0.0.1"), address("127.255.0.9"),
				address("::1"), address("::ffff:127.0.0.1")};
	struct address no[] = {address("128.0.0.1"), address("::2"), address("::"), {0}};
	size_t i;

	for (i = 0; i < 4; i++) {
		ck_assert(address_is_loopback(&yes[i]));
		ck_assert(!address_is_loopback(&no[i]));
	}
}
END_TEST

START_TEST(an_ipv6_network_of_64_bits_counts_as_one)
{
	struct address a = address("2001:db8:1:2::1"),
		       b = address("2001:db8:1:2:ffff::9"),
		       c = address("2001:db8:1:3::1");

	ck_assert(slice_eq(address_key(&a), address_key(&b)));
	ck_assert(!slice_eq(address_key(&a), address_key(&c)));
}
END_TEST

START_TEST(nobody_is_believed_unless_named)
{
	ck_assert_str_eq(client("192.0.2.1", "198.51.100.1"), "192.0.2.1");
	trust("10.0.0.1");
	ck_assert_str_eq(client("192.0.2.1", "198.51.100.1"), "192.0.2.1");
	ck_assert_str_eq(client("10.0.0.1", "198.51.100.1"), "198.51.100.1");
	ck_assert_str_eq(client("10.0.0.1", ""), "10.0.0.1");
}
END_TEST

START_TEST(the_last_hop_that_is_no_proxy_is_the_client)
{
	trust("10.0.0.0/8");
	ck_assert_str_eq(client("10.0.0.1", "6.6.6.6, 198.51.100.1, 10.2.3.4"),
			 "198.51.100.1");
	ck_assert_str_eq(client("10.0.0.1", "6.6.6.6,10.9.9.9"), "6.6.6.6");
	ck_assert_str_eq(client("10.0.0.1", "10.7.7.7 , 10.9.9.9"), "10.7.7.7");
}
END_TEST

START_TEST(a_hop_that_is_no_address_ends_the_search_at_who_reported_it)
{
	trust("10.0.0.0/8");
	ck_assert_str_eq(client("10.0.0.1", "198.51.100.1, unknown"), "10.0.0.1");
	ck_assert_str_eq(client("10.0.0.1", "198.51.100.1,"), "10.0.0.1");
	ck_assert_str_eq(client("10.0.0.1", "x, 10.0.0.2"), "10.0.0.2");
	ck_assert_str_eq(client("10.0.0.1", ",,,,"), "10.0.0.1");
}
END_TEST

START_TEST(hops_may_carry_a_port)
{
	trust("10.0.0.1");
	ck_assert_str_eq(client("10.0.0.1", "192.0.2.1:4711"), "192.0.2.1");
	ck_assert_str_eq(client("10.0.0.1", "[2001:db8::1]:4711"), "2001:db8::1");
	ck_assert_str_eq(client("10.0.0.1", "2001:db8::2"), "2001:db8::2");
}
END_TEST

START_TEST(only_so_many_hops_are_looked_at)
{
	char list[64 * 12];
	size_t len = 0;
	int i;

	trust("10.0.0.0/8");
	len += (size_t)snprintf(list, sizeof(list), "6.6.6.6");
	for (i = 0; i < FORWARDED_HOPS_MAX; i++)
		len += (size_t)snprintf(list + len, sizeof(list) - len, ",10.0.1.%d", i);
	ck_assert_str_eq(client("10.0.0.1", list), "10.0.1.0");
}
END_TEST

START_TEST(a_range_is_what_its_bits_say)
{
	trust("192.0.2.128/25");
	trust("2001:db8::/33");
	ck_assert_str_eq(client("192.0.2.200", "1.1.1.1"), "1.1.1.1");
	ck_assert_str_eq(client("192.0.2.127", "1.1.1.1"), "192.0.2.127");
	ck_assert_str_eq(client("2001:db8:7fff::1", "1.1.1.1"), "1.1.1.1");
	ck_assert_str_eq(client("2001:db8:8000::1", "1.1.1.1"), "2001:db8:8000::1");
	trust("0.0.0.0/0");
	ck_assert_str_eq(client("203.0.113.9", "2001:db8:ffff::"), "2001:db8:ffff::");
}
END_TEST

START_TEST(a_proxy_that_is_no_address_is_refused_with_what_one_is)
{
	static const char *const texts[] = {"proxy.example", "10.0.0.0/33", "::1/129",
					    "10.0.0.0/",     "10.0.0.1:80", ""};
	struct err err;
	size_t i;

	for (i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		ck_assert_msg(!proxies_add(&proxies, texts[i], &err), "%s", texts[i]);
	ck_assert(!proxies_add(&proxies, "proxy.example", &err));
	ck_assert_str_eq(err.text,
			 "trusted proxy \"proxy.example\" is no numeric address "
			 "like 10.0.0.2 or 10.0.0.0/8");
	for (i = 0; i < PROXIES_MAX; i++)
		trust("10.0.0.1");
	ck_assert(!proxies_add(&proxies, "10.0.0.1", &err));
	ck_assert_int_eq(err.code, ERR_TOO_LARGE);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("relay/address");
	TCase *tcase = tcase_create("address");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, an_ipv4_address_is_the_same_however_it_is_written);
	tcase_add_test(tcase, what_is_no_address_is_refused);
	tcase_add_test(tcase, loopback_is_127_and_1);
	tcase_add_test(tcase, an_ipv6_network_of_64_bits_counts_as_one);
	tcase_add_test(tcase, nobody_is_believed_unless_named);
	tcase_add_test(tcase, the_last_hop_that_is_no_proxy_is_the_client);
	tcase_add_test(tcase,
		       a_hop_that_is_no_address_ends_the_search_at_who_reported_it);
	tcase_add_test(tcase, hops_may_carry_a_port);
	tcase_add_test(tcase, only_so_many_hops_are_looked_at);
	tcase_add_test(tcase, a_range_is_what_its_bits_say);
	tcase_add_test(tcase, a_proxy_that_is_no_address_is_refused_with_what_one_is);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
