#include <string.h>

#include <cjson/cJSON.h>

#include "tests/unit/support/support.h"
#include "wire/nostr/nip19.h"

#define COUNT(table) (int)(sizeof(table) / sizeof((table)[0]))

static struct buf file, scratch, out;
static cJSON *examples;

static void setup(void)
{
	buf_init(&file, 64 * 1024);
	buf_init(&scratch, NIP19_MAX_CHARS);
	buf_init(&out, NIP19_MAX_CHARS);
	test_data("nip19-examples.json", &file);
	examples = cJSON_ParseWithLength(file.ptr, file.len);
	ck_assert_ptr_nonnull(examples);
}

static void teardown(void)
{
	cJSON_Delete(examples);
	buf_finish(&file);
	buf_finish(&scratch);
	buf_finish(&out);
}

static struct slice member(const cJSON *object, const char *name)
{
	return slice_of(
		cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name)));
}

static const struct {
	const char *name;
	enum nip19_kind kind;
} bare[] = {{"npub", NIP19_NPUB}, {"nsec", NIP19_NSEC}};

START_TEST(printed_keys_are_read_and_written)
{
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(examples, bare[_i].name),
		    *example;
	int count = 0;

	cJSON_ArrayForEach(example, list)
	{
		const struct slice text = member(example, "bech32");
		uint8_t key[32];
		struct nip19 got;

		ck_assert(hex_decode(member(example, "hex"), key, 32));
		ck_assert(nip19_decode(text, &scratch, &got, NULL));
		ck_assert_int_eq(got.kind, bare[_i].kind);
		ck_assert_mem_eq(got.key, key, 32);
		buf_clear(&out);
		ck_assert(nip19_encode(bare[_i].kind, key, &out));
		ck_assert(slice_eq(buf_slice(&out), text));
		count++;
	}
	ck_assert_int_gt(count, 0);
}
END_TEST

START_TEST(a_printed_profile_names_its_key_and_first_relay)
{
	const cJSON *example = cJSON_GetArrayItem(
		cJSON_GetObjectItemCaseSensitive(examples, "nprofile"), 0);
	uint8_t key[32];
	struct nip19 got;

	ck_assert(hex_decode(member(example, "pubkey"), key, 32));
	ck_assert(nip19_decode(member(example, "bech32"), &scratch, &got, NULL));
	ck_assert_int_eq(got.kind, NIP19_NPROFILE);
	ck_assert_mem_eq(got.key, key, 32);
	assert_slice_eq(got.relay, "wss://r.x.com");
	ck_assert(!got.has_author);
	ck_assert(!got.has_kind);
}
END_TEST

#define NPUB "npub180cvv07tjdrrgpa0j7j7tmnyl2yr6yr7l8j4s3evf6u64th6gkwsyjh6w6"
#define HEX "3bf0c63fcb93463407af97a5e5ee64fa883d107ef9e558472c4eb9aaaefa459d"

static const char *const refused[] = {
	"",
	"npub1",
	"npub",
	"1",
	HEX,
	/* One character changed, in the data and in the checksum. */
	"npub180cvv07tjdrrgpa0j7j7tmnyl2yr6yr7l8j4s3evf6u64th6gkwsyjh6w7",
	"npub180cvv07tjdrrgpa0j7j7tmnyl2yr6yr7l8j4s3evf6u64th6gkwsyjh6q6",
	"npub190cvv07tjdrrgpa0j7j7tmnyl2yr6yr7l8j4s3evf6u64th6gkwsyjh6w6",
	/* The checksum covers the prefix. */
	"note180cvv07tjdrrgpa0j7j7tmnyl2yr6yr7l8j4s3evf6u64th6gkwsyjh6w6",
	"Npub180cvv07tjdrrgpa0j7j7tmnyl2yr6yr7l8j4s3evf6u64th6gkwsyjh6w6",
	"npub180cvv07tjdrrgpa0j7j7tmnyl2yr6yr7l8j4s3evf6u64th6gkwsyjh6W6",
	"npub180cvv07tjdrrgpa0j7j7tmnyl2yr6yr7l8j4s3evf6u64th6gkwsyjh6w",
	"npub180cvv07tjdrrgpa0j7j7tmnyl2yr6yr7l8j4s3evf6u64th6gkwsyjh6wb6",
	(" " NPUB),
	(NPUB " "),
	/* BIP-173's own: right, but of no kind that we know. */
	"a12uel5l",
	"abcdef1qpzry9x8gf2tvdw0s3jn54khce6mua7lmqqqxw",
};

START_TEST(texts_that_name_nothing_are_refused)
{
	struct nip19 got;
	struct err err;

	ck_assert_msg(!nip19_decode(slice_of(refused[_i]), &scratch, &got, &err), "%s",
		      refused[_i]);
	ck_assert_int_eq(err.code, ERR_MALFORMED);
}
END_TEST

START_TEST(a_text_in_capitals_is_the_same)
{
	char capitals[sizeof(NPUB)];
	struct nip19 got;

	for (size_t i = 0; i < sizeof(NPUB); i++)
		capitals[i] =
			(char)(NPUB[i] >= 'a' && NPUB[i] <= 'z' ? NPUB[i] - 32 : NPUB[i]);
	ck_assert(nip19_decode(slice_of(capitals), &scratch, &got, NULL));
	ck_assert_int_eq(got.kind, NIP19_NPUB);
	ck_assert_uint_eq(got.key[0], 0x3b);
}
END_TEST

START_TEST(a_text_over_5000_characters_is_too_large)
{
	struct buf text;
	struct nip19 got;
	struct err err;

	buf_init(&text, 8192);
	(void)buf_lit(&text, "nprofile1");
	while (text.len <= NIP19_MAX_CHARS)
		(void)buf_append_byte(&text, 'q');
	ck_assert(!nip19_decode(buf_slice(&text), &scratch, &got, &err));
	ck_assert_int_eq(err.code, ERR_TOO_LARGE);
	buf_truncate(&text, NIP19_MAX_CHARS);
	ck_assert(!nip19_decode(buf_slice(&text), &scratch, &got, &err));
	ck_assert_int_eq(err.code, ERR_MALFORMED); /* the checksum, not the length */
	buf_finish(&text);
}
END_TEST

/* Bech32 of any bytes, written independently of the module from BIP-173's reference.
 * @fill goes into the bits behind the last byte, @extra more values follow. */
static void bech32_filled(const char *prefix, const uint8_t *bytes, size_t len,
			  uint8_t fill, size_t extra)
{
	static const char digits[] = "qpzry9x8gf2tvdw0s3jn54khce6mua7l";
	static const uint32_t g[] = {0x3b6a57b2, 0x26508e6d, 0x1ea119fa, 0x3d4233dd,
				     0x2a1462b3};
	uint8_t values[2048] = {0};
	size_t count = 0, first;
	uint32_t check = 1;

	for (size_t i = 0; prefix[i]; i++)
		values[count++] = (uint8_t)prefix[i] >> 5;
	values[count++] = 0;
	for (size_t i = 0; prefix[i]; i++)
		values[count++] = (uint8_t)prefix[i] & 31;
	first = count;
	for (size_t bit = 0; bit < 8 * len; bit += 5) {
		for (size_t b = bit; b < bit + 5; b++)
			values[count] = (uint8_t)(values[count] << 1 |
						  (b < 8 * len &&
						   bytes[b / 8] >> (7 - b % 8) & 1));
		count++;
	}
	values[count - 1] |= fill;
	count += extra + 6;
	for (size_t i = 0; i < count; i++) {
		const uint32_t top = check >> 25;

		check = (check & 0x1ffffff) << 5 ^ values[i];
		for (int j = 0; j < 5; j++)
			check ^= top >> j & 1 ? g[j] : 0;
	}
	check ^= 1;
	for (size_t i = 0; i < 6; i++)
		values[count - 6 + i] = check >> (5 * (5 - i)) & 31;
	buf_clear(&out);
	(void)buf_append(&out, slice_of(prefix));
	(void)buf_append_byte(&out, '1');
	for (size_t i = first; i < count; i++)
		(void)buf_append_byte(&out, digits[values[i]]);
}

static void bech32(const char *prefix, const uint8_t *bytes, size_t len)
{
	bech32_filled(prefix, bytes, len, 0, 0);
}

/* BIP-173: "padding MUST be 4 bits or less, MUST be all zeroes". */
START_TEST(padding_is_short_and_zero)
{
	const uint8_t key[32] = {1};
	struct nip19 got;
	struct err err;

	bech32("npub", key, 32);
	ck_assert(nip19_decode(buf_slice(&out), &scratch, &got, NULL));
	bech32_filled("npub", key, 32, 1, 0);
	ck_assert(!nip19_decode(buf_slice(&out), &scratch, &got, &err));
	ck_assert_str_eq(err.text, "bech32 padding is wrong");
	bech32_filled("npub", key, 32, 0, 1);
	ck_assert(!nip19_decode(buf_slice(&out), &scratch, &got, &err));
	ck_assert_int_eq(err.code, ERR_MALFORMED);
	bech32_filled("nprofile", (const uint8_t[]){9, 1, 7}, 3, 0, 1);
	ck_assert(!nip19_decode(buf_slice(&out), &scratch, &got, &err));
	ck_assert_str_eq(err.text, "bech32 padding is wrong");
}
END_TEST

START_TEST(an_address_names_its_d_value_author_and_kind)
{
	uint8_t tlv[128] = {0, 3, 'a', ':', 'b', 9, 1, 0, 1, 3, 'w', 's', ':', 2, 32};
	static const uint8_t kind[] = {3, 4, 0, 0, 0x75, 0x30};
	size_t len = 15;
	struct nip19 got;

	memset(tlv + len, 7, 32);
	len += 32;
	memcpy(tlv + len, kind, sizeof(kind));
	len += sizeof(kind);
	bech32("naddr", tlv, len);
	ck_assert(nip19_decode(buf_slice(&out), &scratch, &got, NULL));
	ck_assert_int_eq(got.kind, NIP19_NADDR);
	assert_slice_eq(got.name, "a:b");
	assert_slice_eq(got.relay, "ws:");
	ck_assert(got.has_author);
	ck_assert_uint_eq(got.author[31], 7);
	ck_assert(got.has_kind);
	ck_assert_uint_eq(got.event_kind, 30000);
}
END_TEST

static const struct {
	const char *prefix;
	uint8_t tlv[48];
	size_t len;
} bad_tlvs[] = {
	{"nprofile", {0}, 0},                 /* names nothing */
	{"nprofile", {0}, 1},                 /* a type without a length */
	{"nprofile", {0, 32, 1}, 3},          /* cut short */
	{"nprofile", {0, 31}, 33},            /* a key of 31 bytes */
	{"nevent", {0, 32, [34] = 3, 3}, 39}, /* a kind of 3 bytes */
	{"nevent", {0, 32, [34] = 2, 1, 0}, 37},
	{"naddr", {0, 1, 'd'}, 3},                    /* no author, no kind */
	{"nprofile", {0, 32, [34] = 1, 1, 0xff}, 37}, /* a relay that is no text */
	{"npub", {1}, 31},
	{"npub", {1}, 33},
};

START_TEST(entities_with_broken_parts_are_refused)
{
	struct nip19 got;
	struct err err;

	bech32(bad_tlvs[_i].prefix, bad_tlvs[_i].tlv, bad_tlvs[_i].len);
	ck_assert(!nip19_decode(buf_slice(&out), &scratch, &got, &err));
	ck_assert_int_eq(err.code, ERR_MALFORMED);
}
END_TEST

START_TEST(a_public_key_is_taken_as_npub_or_hex)
{
	uint8_t from_hex[32], from_npub[32];

	ck_assert(nip19_parse_pubkey(SLICE(HEX), from_hex, NULL));
	ck_assert(nip19_parse_pubkey(SLICE(NPUB), from_npub, NULL));
	ck_assert_mem_eq(from_hex, from_npub, 32);
}
END_TEST

START_TEST(a_secret_key_is_no_public_key)
{
	uint8_t key[32];
	struct err err;

	ck_assert(!nip19_parse_pubkey(
		SLICE("nsec1vl029mgpspedva04g90vltkh6fvh240zqtv9k0t9af8935ke9laqsnlfe5"),
		key, &err));
	ck_assert_str_eq(err.text, "nsec is not a public key, want npub or hex");
	ck_assert(!nip19_parse_pubkey(SLICE("abc"), key, &err));
	ck_assert_int_eq(err.code, ERR_MALFORMED);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("nip19");
	TCase *tcase = tcase_create("nip19");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_loop_test(tcase, printed_keys_are_read_and_written, 0, COUNT(bare));
	tcase_add_test(tcase, a_printed_profile_names_its_key_and_first_relay);
	tcase_add_loop_test(tcase, texts_that_name_nothing_are_refused, 0,
			    COUNT(refused));
	tcase_add_test(tcase, a_text_in_capitals_is_the_same);
	tcase_add_test(tcase, a_text_over_5000_characters_is_too_large);
	tcase_add_test(tcase, padding_is_short_and_zero);
	tcase_add_test(tcase, an_address_names_its_d_value_author_and_kind);
	tcase_add_loop_test(tcase, entities_with_broken_parts_are_refused, 0,
			    COUNT(bad_tlvs));
	tcase_add_test(tcase, a_public_key_is_taken_as_npub_or_hex);
	tcase_add_test(tcase, a_secret_key_is_no_public_key);
	suite_add_tcase(suite, tcase);
	return test_run(suite);
}
