/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support.h"

#include <math.h>

#include "kernels/half.h"
#include "tests/kernels/kernel_data.h"

static void halves_round_trip(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        float f = k_half_to_float((uint16_t)h);

        if (isnan(f))
            assert_true((h & 0x7c00) == 0x7c00 && (h & 0x3ff) != 0);
        else
            assert_int_equal(k_float_to_half(f), h);
    }
}

static void halves_round_to_even(void **state)
{
    static const struct {
        float f;
        uint16_t h;
    } table[] = {
            {1.0F, 0x3c00},         {-2.0F, 0xc000},        {65504, 0x7bff},
            {65519, 0x7bff},        {65520, 0x7c00},        {1e9F, 0x7c00},
            {0x1p-24F, 0x0001},     {0x1p-25F, 0x0000},     {0x1.8p-25F, 0x0001},
            {0x1.8p-24F, 0x0002},   {0x1p-14F, 0x0400},     {0x1.ff8p-15F, 0x03ff},
            {0x1.ffcp-15F, 0x0400}, {1 + 0x1p-11F, 0x3c00}, {1 + 0x3p-11F, 0x3c02},
            {-0.0F, 0x8000},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        assert_int_equal(k_float_to_half(table[i].f), table[i].h);
    assert_true(isnan(k_half_to_float(k_float_to_half(NAN))));
    assert_true(k_half_to_float(0x7c00) == INFINITY);
    assert_true(k_bf16_to_float(0xbf80) == -1.0F);
}

/* Blocks written by hand, and the values that the format documents give for them. */
static void small_blocks(void **state)
{
    uint8_t b[34] = {0};
    float x[32];

    (void)state;
    b[0] = 0x00, b[1] = 0x40; /* d = 2 */
    b[2] = 0x9f;
    k_dequantise(K_Q4_0, b, 32, x);
    assert_true(x[0] == 14 && x[16] == 2 && x[1] == -16);
    b[2] = 0x00, b[3] = 0xbc; /* m = -1 */
    b[4] = 0x3f;
    k_dequantise(K_Q4_1, b, 32, x);
    assert_true(x[0] == 29 && x[16] == 5 && x[1] == -1);
    memset(b + 2, 0, 32);
    b[2] = 0x01, b[4] = 0x02; /* fifth bits of values 0 and 17 */
    b[6] = 0x21, b[7] = 0x10;
    k_dequantise(K_Q5_0, b, 32, x);
    assert_true(x[0] == 2 && x[16] == -28 && x[17] == 2 && x[1] == -32);
    memset(b + 2, 0, 32);
    b[3] = 0xbc, b[4] = 0x01, b[8] = 0x0f;
    k_dequantise(K_Q5_1, b, 32, x);
    assert_true(x[0] == 61 && x[1] == -1);
    memset(b + 2, 0, 32);
    b[2] = 0x81, b[33] = 0x7f;
    k_dequantise(K_Q8_0, b, 32, x);
    assert_true(x[0] == -254 && x[31] == 254);
}

static void super_blocks(void **state)
{
    uint8_t b[210] = {0};
    float x[256];

    (void)state;
    b[1] = 0x3c, b[3] = 0x38; /* d = 1, dmin = 0.5 */
    b[4] = 0xc3, b[8] = 0x81; /* group 0: scale 3, min 1; high bits of 4: 3, 2 */
    b[12] = 0x75;             /* group 4: scale 5 | 3 << 4, min 7 | 2 << 4 */
    b[16] = 0x24;             /* x[0] 4, x[32] 2 */
    b[16 + 64] = 0x01;        /* x[128] 1 */
    k_dequantise(K_Q4_K, b, 256, x);
    assert_true(x[0] == 3 * 4 - 0.5F && x[1] == -0.5F && x[32] == 0);
    assert_true(x[128] == 53 - 0.5F * 39);
    memset(b + 16, 0, 32);
    b[48] = 0x24, b[16] = 0x01; /* fifth bit of x[0] */
    k_dequantise(K_Q5_K, b, 256, x);
    assert_true(x[0] == 3 * 20 - 0.5F);
    memset(b, 0, sizeof(b));
    b[209] = 0x3c;
    b[192] = 2, b[194] = 0xff, b[200] = 3;
    b[0] = 0x5a;   /* low nibbles of x[0] and x[64] */
    b[128] = 0x01; /* high pairs of x[0], x[32], x[64], x[96] */
    k_dequantise(K_Q6_K, b, 256, x);
    assert_true(x[0] == 2 * (10 + 16 - 32) && x[32] == 32 && x[128] == -96);
}

static void every_type_has_a_block(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_all_types; i++) {
        struct random r = {i};
        void *b = random_matrix(&r, all_types[i], k_block_len(all_types[i]), 1);
        float x[256];

        k_dequantise(all_types[i], b, k_block_len(all_types[i]), x);
        for (uint32_t j = 0; j < k_block_len(all_types[i]); j++)
            assert_true(isfinite(x[j]));
        mem_free(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(halves_round_trip),      cmocka_unit_test(halves_round_to_even),
            cmocka_unit_test(small_blocks),           cmocka_unit_test(super_blocks),
            cmocka_unit_test(every_type_has_a_block),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
