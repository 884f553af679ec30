/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/formats/gguf.h"

/* Block sizes, from the format document and research of the block layouts: see kernels/kernels.h
 * for what the bytes mean. */
static const struct type_info {
    enum gguf_type type;
    uint32_t block_len;
    uint32_t block_bytes;
    const char *name;
} types[] = {
        {GGUF_F32, 1, 4, "F32"},       {GGUF_F16, 1, 2, "F16"},       {GGUF_BF16, 1, 2, "BF16"},
        {GGUF_Q4_0, 32, 18, "Q4_0"},   {GGUF_Q4_1, 32, 20, "Q4_1"},   {GGUF_Q5_0, 32, 22, "Q5_0"},
        {GGUF_Q5_1, 32, 24, "Q5_1"},   {GGUF_Q8_0, 32, 34, "Q8_0"},   {GGUF_Q4_K, 256, 144, "Q4_K"},
        {GGUF_Q5_K, 256, 176, "Q5_K"}, {GGUF_Q6_K, 256, 210, "Q6_K"},
};

static const struct type_info *type_find(enum gguf_type type)
{
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (types[i].type == type)
            return &types[i];
    return NULL;
}

uint32_t gguf_block_len(enum gguf_type type)
{
    const struct type_info *t = type_find(type);

    return t ? t->block_len : 0;
}

uint32_t gguf_block_bytes(enum gguf_type type)
{
    const struct type_info *t = type_find(type);

    return t ? t->block_bytes : 0;
}

const char *gguf_type_name(enum gguf_type type)
{
    const struct type_info *t = type_find(type);

    return t ? t->name : "unknown";
}
