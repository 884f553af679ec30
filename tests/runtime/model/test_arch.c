/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support.h"

#include <math.h>

#include "runtime/model/arch.h"
#include "tests/runtime/model/tiny_model.h"

static void layers_in_groups(void **state)
{
    struct tiny t;
    struct arch a;
    struct err err;

    (void)state;
    tiny_init(&t, "gemma3");
    assert_ok(arch_from_gguf(t.gguf, &a, &err), &err);
    assert_int_equal(a.n_groups, 2);
    assert_int_equal(a.groups[0].n_layers, 1);
    assert_int_equal(a.groups[1].n_layers, 6);
    assert_int_equal(a.groups[0].window, 0);
    assert_int_equal(a.groups[1].window, 40);
    assert_int_equal(arch_group_of(&a, 5), 0);
    assert_int_equal(arch_index_in_group(&a, 5), 0);
    assert_int_equal(arch_group_of(&a, 6), 1);
    assert_int_equal(arch_index_in_group(&a, 4), 4);
    assert_int_equal(arch_index_in_group(&a, 6), 5);
    assert_true(a.embed_scale == 8 && a.qk_norm && a.post_norm);
    assert_int_equal(a.rope, K_ROPE_HALVES);
    tiny_release(&t);
    tiny_init(&t, "llama");
    assert_ok(arch_from_gguf(t.gguf, &a, &err), &err);
    assert_int_equal(a.n_groups, 1);
    assert_int_equal(a.groups[0].n_layers, 3);
    assert_int_equal(a.head_dim, 16);
    assert_int_equal(arch_index_in_group(&a, 2), 2);
    assert_true(a.attn_scale == 0.25F && a.embed_scale == 1 && !a.qk_norm);
    assert_int_equal(a.rope, K_ROPE_PAIRS);
    tiny_release(&t);
}

/* Keys that a sound file does not have, or has with another value. */
static void add_u32(struct gguf_builder *b, const void *arg)
{
    gguf_builder_u32(b, arg, 2);
}

static void add_zero(struct gguf_builder *b, const void *arg)
{
    gguf_builder_u32(b, arg, 0);
}

static void add_f32(struct gguf_builder *b, const void *arg)
{
    gguf_builder_f32(b, arg, 30);
}

static void add_odd(struct gguf_builder *b, const void *arg)
{
    gguf_builder_u32(b, arg, 17);
}

static void add_yarn(struct gguf_builder *b, const void *arg)
{
    gguf_builder_string(b, arg, "yarn");
}

static void add_nan(struct gguf_builder *b, const void *arg)
{
    gguf_builder_f32(b, arg, NAN);
}

static void unsupported_keys_are_refused(void **state)
{
    static const struct {
        void (*add)(struct gguf_builder *b, const void *arg);
        const char *key;
        const char *says;
    } table[] = {
            {add_u32, "llama.expert_count", "'llama.expert_count' is not supported"},
            {add_f32, "llama.attn_logit_softcapping", "is not supported"},
            {add_f32, "llama.final_logit_softcapping", "is not supported"},
            {add_yarn, "llama.rope.scaling.type", "'yarn', which is not supported"},
            {add_odd, "llama.attention.key_length", "do not go together"},
            {add_u32, "llama.attention.value_length", "do not go together"},
            {add_odd, "llama.rope.dimension_count", "do not go together"},
            {add_nan, "llama.rope.freq_base", "want 1..1e+12"},
            {add_zero, "llama.rope.dimension_count", "is 0"},
            {add_yarn, "llama.rope.dimension_count", "is not an integer"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        CLEANUP(gguf_builder_release) struct gguf_builder b;
        CLEANUP(gguf_freep) struct gguf *g = NULL;
        struct arch a;
        struct err err;

        gguf_builder_init(&b);
        tiny_keys(&b, "llama");
        table[i].add(&b, table[i].key);
        gguf_builder_end(&b);
        assert_ok(gguf_parse(b.file.data, b.file.len, &g, &err), &err);
        assert_int_equal(arch_from_gguf(g, &a, &err), -ERR_INVALID);
        if (!strstr(err.msg, table[i].says))
            fail_msg("want '%s' in '%s'", table[i].says, err.msg);
    }
}

static void unknown_families_are_refused(void **state)
{
    CLEANUP(gguf_builder_release) struct gguf_builder b;
    CLEANUP(gguf_freep) struct gguf *g = NULL;
    struct arch a;
    struct err err;

    (void)state;
    gguf_builder_init(&b);
    gguf_builder_string(&b, "general.architecture", "mamba");
    gguf_builder_end(&b);
    assert_ok(gguf_parse(b.file.data, b.file.len, &g, &err), &err);
    assert_int_equal(arch_from_gguf(g, &a, &err), -ERR_INVALID);
    assert_non_null(strstr(err.msg, "'mamba' is not supported"));
}

static void missing_keys_are_named(void **state)
{
    CLEANUP(gguf_builder_release) struct gguf_builder b;
    CLEANUP(gguf_freep) struct gguf *g = NULL;
    struct arch a;
    struct err err;

    (void)state;
    gguf_builder_init(&b);
    gguf_builder_string(&b, "general.architecture", "llama");
    gguf_builder_end(&b);
    assert_ok(gguf_parse(b.file.data, b.file.len, &g, &err), &err);
    assert_int_equal(arch_from_gguf(g, &a, &err), -ERR_NOT_FOUND);
    assert_non_null(strstr(err.msg, "llama.embedding_length"));
}

static void linear_scaling_divides(void **state)
{
    CLEANUP(gguf_builder_release) struct gguf_builder b;
    CLEANUP(gguf_freep) struct gguf *g = NULL;
    struct arch a;
    struct err err;

    (void)state;
    gguf_builder_init(&b);
    tiny_keys(&b, "gemma3");
    gguf_builder_string(&b, "gemma3.rope.scaling.type", "linear");
    gguf_builder_f32(&b, "gemma3.rope.scaling.factor", 8);
    gguf_builder_f32(&b, "gemma3.rope.freq_base", 1e6F);
    gguf_builder_end(&b);
    assert_ok(gguf_parse(b.file.data, b.file.len, &g, &err), &err);
    assert_ok(arch_from_gguf(g, &a, &err), &err);
    assert_true(a.groups[0].rope_factor == 8 && a.groups[0].rope_theta == 1e6);
    assert_true(a.groups[1].rope_factor == 1 && a.groups[1].rope_theta == 1e4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(layers_in_groups),
            cmocka_unit_test(unsupported_keys_are_refused),
            cmocka_unit_test(unknown_families_are_refused),
            cmocka_unit_test(missing_keys_are_named),
            cmocka_unit_test(linear_scaling_divides),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
