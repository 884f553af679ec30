/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/kernels/shapes.h"

const struct matmul_shape matmul_shapes[] = {
        {256, 1, 1},   {256, 16, 2},  {256, 17, 3},   {512, 33, 5},   {768, 48, 7},
        {1536, 31, 8}, {2048, 20, 9}, {256, 640, 17}, {16384, 16, 4}, {512, 4099, 1},
};
const size_t n_matmul_shapes = sizeof(matmul_shapes) / sizeof(matmul_shapes[0]);

const struct matmul_shape float_shapes[] = {
        {1, 1, 1}, {7, 17, 3}, {100, 33, 5}, {33, 16, 9}, {4099, 40, 2},
};
const size_t n_float_shapes = sizeof(float_shapes) / sizeof(float_shapes[0]);

const struct attention_shape attention_shapes[] = {
        {9, 3, 64, 0, 1, 0},      {9, 3, 64, 0, 40, 0},  {4, 1, 256, 100, 17, 0},
        {4, 1, 256, 600, 3, 512}, {2, 2, 8, 31, 2, 0},   {2, 1, 80, 63, 33, 7},
        {1, 1, 72, 5, 64, 32},    {20, 2, 32, 10, 5, 1}, {1, 1, 512, 40, 2, 33},
        {3, 1, 128, 2047, 1, 0},
};
const size_t n_attention_shapes = sizeof(attention_shapes) / sizeof(attention_shapes[0]);

const uint32_t row_widths[] = {1, 7, 8, 31, 32, 33, 64, 100, 576, 640, 4096};
const size_t n_row_widths = sizeof(row_widths) / sizeof(row_widths[0]);

const struct norm_variant norm_variants[] = {
        {K_NORM_RMS, false, false}, {K_NORM_LAYER, false, true}, {K_NORM_RMS, true, false},
        {K_NORM_LAYER, true, true}, {K_NORM_LAYER, true, false}, {K_NORM_RMS, true, true},
};
const size_t n_norm_variants = sizeof(norm_variants) / sizeof(norm_variants[0]);
