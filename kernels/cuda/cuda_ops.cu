/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_ops.cu - which kernels an op takes, and what all of them need: no kernel here.
 */
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/matmul.cuh"

extern "C" int k_cuda_init(void)
{
    int r = gemm_init();

    r = r ? r : decode_init();
    return r ? r : prefill_init();
}

extern "C" size_t k_cuda_scratch_bytes(const struct k_cuda_shape *s)
{
    size_t products = gemm_scratch_bytes(s);
    size_t attention = decode_scratch_bytes(s);

    return products > attention ? products : attention;
}

/* The matrices of matrix 'first's type, from there on. */
static struct matmul_args of_one_type(const struct k_matmul *a, uint32_t first)
{
    struct matmul_args args = {};

    args.x = a->in.f32;
    args.n_in = a->in.n;
    args.n_rows = a->n_rows;
    args.add = a->add;
    for (uint32_t m = first; m < a->n_mats; m++)
        if (a->w[m]->type == a->w[first]->type) {
            struct matmul_matrix *w = &args.w[args.n_mats++];

            w->data = (const unsigned char *)a->w[m]->data;
            w->out = a->out[m];
            w->n_out = a->w[m]->n_out;
        }
    return args;
}

static bool type_was_there(const struct k_matmul *a, uint32_t m)
{
    for (uint32_t i = 0; i < m; i++)
        if (a->w[i]->type == a->w[m]->type)
            return true;
    return false;
}

/* One launch a type: matrices of the same rows usually are of one. */
extern "C" int k_cuda_matmul(const struct k_cuda *c, const struct k_matmul *a)
{
    int r = 0;

    for (uint32_t m = 0; m < a->n_mats && r == 0; m++) {
        struct matmul_args args = of_one_type(a, m);

        if (type_was_there(a, m) || a->n_rows == 0)
            continue;
        r = a->n_rows <= K_CUDA_STREAM_ROWS ? gemv_launch(c, a->w[m]->type, args)
                                            : gemm_launch(c, a->w[m]->type, args);
    }
    return r;
}

extern "C" int k_cuda_attend(const struct k_cuda *c, const struct k_attend *a)
{
    const struct k_kv *kv = &a->kv;
    int r;

    if (kv->head_dim % 8 != 0 || kv->head_dim > K_CUDA_HEAD_MAX || kv->f32 ||
        a->n_heads / kv->n_kv_heads > K_CUDA_GROUP_MAX)
        return (int)cudaErrorInvalidValue;
    r = decode_launch(c, a);
    return r != 0 || a->decode ? r : prefill_launch(c, a);
}
