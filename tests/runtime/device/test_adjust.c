/* SPDX-License-Identifier: Apache-2.0
 *
 * The op adjust on every device there is: listed between what makes logits and what draws.
 */
#include "tests/support.h"

#include "runtime/device/device.h"

enum { N_VOCAB = 40 };

/* What the device is told, and what it says. */
struct input {
    float logits[2][N_VOCAB];
    struct k_adjustment rows[2];
    struct k_seen seen;
    struct k_bias bias;
    uint32_t mask[2];
    struct k_sampling params[2];
};

static void fill(struct input *in)
{
    for (uint32_t i = 0; i < N_VOCAB; i++)
        in->logits[0][i] = in->logits[1][i] = (float)i;
    /* the best is 39: a penalty and a bias make 7 of it, then the mask leaves 5 and 36 */
    in->rows[0] = (struct k_adjustment){
            .repetition = 2, .presence = 1, .n_seen = 1, .n_biases = 1, .masked = true};
    in->rows[1] = (struct k_adjustment){.n_biases = 1};
    in->seen = (struct k_seen){.id = 39, .n_output = 1};
    in->bias = (struct k_bias){.id = 7, .value = 100};
    in->mask[0] = 1U << 5;
    in->mask[1] = 1U << 4;
    in->params[0] = in->params[1] = (struct k_sampling){.top_p = 1};
}

static void draws_what_is_left(struct device *d, int32_t ret[2])
{
    struct device_mirror in;
    struct device_mirror out;
    struct input *on_device;
    void *scratch = NULL;
    struct err err;

    assert_ok(device_mirror_new(d, sizeof(struct input), &in, &err), &err);
    assert_ok(device_mirror_new(d, 2 * sizeof(*ret), &out, &err), &err);
    assert_ok(device_alloc(d, (size_t)2 * N_VOCAB, sizeof(struct k_candidate), &scratch, &err),
              &err);
    on_device = in.device;
    fill(in.host);
    device_mirror_put(d, &in, sizeof(struct input));
    device_adjust(d, &(struct k_adjust){.logits = on_device->logits[0],
                                        .rows = on_device->rows,
                                        .seen = &on_device->seen,
                                        .biases = &on_device->bias,
                                        .masks = on_device->mask,
                                        .n_vocab = N_VOCAB,
                                        .n_rows = 2});
    device_sample(d, &(struct k_sample){.logits = on_device->logits[0],
                                        .params = on_device->params,
                                        .scratch = scratch,
                                        .n_vocab = N_VOCAB,
                                        .n_rows = 2,
                                        .out = out.device});
    device_mirror_get(d, &out, 2 * sizeof(*ret));
    assert_ok(device_submit(d, &err), &err);
    assert_ok(device_mirror_wait(d, &out, &err), &err);
    memcpy(ret, out.host, 2 * sizeof(*ret));
}

static void adjusts(void **state)
{
    static const char *const names[] = {"ref", "cpu", "cuda"};
    unsigned n_opened = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct device_options o = {
                .name = names[i],
                .n_threads = 2,
                .memory_fraction = 0.5,
                .timeout_ms = 60000,
                .shape = {.rows_max = 16,
                          .n_heads = 1,
                          .n_kv_heads = 1,
                          .head_dim = 8,
                          .n_vocab = N_VOCAB},
        };
        CLEANUP(device_freep) struct device *d = NULL;
        struct err err;
        int32_t drawn[2];

        if (device_new(&o, &d, &err) < 0) {
            assert_string_equal(names[i], "cuda");
            continue;
        }
        n_opened++;
        draws_what_is_left(d, drawn);
        assert_int_equal(drawn[0], 36);
        assert_int_equal(drawn[1], 7);
    }
    assert_true(n_opened >= 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(adjusts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
