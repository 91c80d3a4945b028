#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* What each NAME_fuzz.c defines: called once per input, it must return 0 and neither
 * crash, leak nor keep state from one input to the next. Source: libFuzzer, "Fuzz
 * target". */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
