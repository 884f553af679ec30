/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>

/* The knobs of fake_nvml.c, shared with the test that opened the same file. */
struct fake_nvml {
    atomic_int gpus, lost;       /* how many; bit per GPU that has no handle */
    atomic_int init_code;        /* what nvmlInit gives */
    atomic_int no_power, no_ecc; /* the GPUs do not have these */
    atomic_int hangs;            /* nvmlDeviceGetUtilizationRates does not return while set */
    atomic_int busy;             /* GPU 0's utilisation, percent; GPU 1 has half */
    atomic_int xid, xid_gpu;     /* not 0: the next wait returns it, once */
    atomic_int open;             /* inits minus shutdowns */
    atomic_ullong throttle;      /* bits */
};

struct fake_nvml *fake_nvml(void);
