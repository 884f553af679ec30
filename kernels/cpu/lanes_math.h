/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include K_LANES

#include <stdint.h>
#include <string.h>

/* On top of either kind of lanes (K_LANES names the header; the build sets it). */

/* e^x with 2 units in the last place; below -87 and above 88 it stays at the ends.  Cody-Waite
 * reduction, then a Taylor polynomial of degree 6 on |r| <= ln 2 / 2 (Hart et al., "Computer
 * Approximations", 1968). */
static inline lanes lanes_exp(lanes x)
{
    lanes n;
    lanes r;
    lanes p = lanes_all(1.0F / 720);

    x = lanes_min(lanes_all(88), lanes_max(lanes_all(-87), x));
    n = lanes_round(lanes_mul(x, lanes_all(1.44269504F)));
    r = lanes_fma(n, lanes_all(-0.693359375F), x);
    r = lanes_fma(n, lanes_all(2.12194440e-4F), r);
    p = lanes_fma(p, r, lanes_all(1.0F / 120));
    p = lanes_fma(p, r, lanes_all(1.0F / 24));
    p = lanes_fma(p, r, lanes_all(1.0F / 6));
    p = lanes_fma(p, r, lanes_all(0.5F));
    p = lanes_fma(p, r, lanes_all(1));
    p = lanes_fma(p, r, lanes_all(1));
    return lanes_mul(p, lanes_exp2_whole(n));
}

/* The hyperbolic tangent with 3 units in the last place: e / (e + 2) with e = e^2x - 1, which is
 * 2^n (e^r - 1) + (2^n - 1) after the reduction of lanes_exp(), so that nothing cancels near 0. */
static inline lanes lanes_tanh(lanes x)
{
    lanes n;
    lanes r;
    lanes two_n;
    lanes p = lanes_all(1.0F / 5040);
    lanes e;

    x = lanes_min(lanes_all(18), lanes_max(lanes_all(-18), lanes_add(x, x))); /* beyond it is 1 */
    n = lanes_round(lanes_mul(x, lanes_all(1.44269504F)));
    r = lanes_fma(n, lanes_all(-0.693359375F), x);
    r = lanes_fma(n, lanes_all(2.12194440e-4F), r);
    p = lanes_fma(p, r, lanes_all(1.0F / 720));
    p = lanes_fma(p, r, lanes_all(1.0F / 120));
    p = lanes_fma(p, r, lanes_all(1.0F / 24));
    p = lanes_fma(p, r, lanes_all(1.0F / 6));
    p = lanes_fma(p, r, lanes_all(0.5F));
    p = lanes_fma(lanes_mul(p, r), r, r);
    two_n = lanes_exp2_whole(n);
    e = lanes_fma(p, two_n, lanes_sub(two_n, lanes_all(1)));
    return lanes_div(e, lanes_add(e, lanes_all(2)));
}

/* n < LANES values, zeros beyond. */
static inline lanes lanes_load_some(const float *p, uint32_t n)
{
    float buffer[LANES] = {0};

    memcpy(buffer, p, n * sizeof(*p));
    return lanes_load(buffer);
}

/* x in the first n lanes, zeros beyond. */
static inline lanes lanes_first(float x, uint32_t n)
{
    float buffer[LANES] = {0};

    for (uint32_t i = 0; i < n && i < LANES; i++)
        buffer[i] = x;
    return lanes_load(buffer);
}

static inline lanes lanes_load_up_to(const float *p, uint32_t n)
{
    return n >= LANES ? lanes_load(p) : lanes_load_some(p, n);
}

static inline void lanes_store_up_to(float *p, lanes v, uint32_t n)
{
    float buffer[LANES];

    if (n >= LANES) {
        lanes_store(p, v);
        return;
    }
    lanes_store(buffer, v);
    memcpy(p, buffer, n * sizeof(*p));
}
