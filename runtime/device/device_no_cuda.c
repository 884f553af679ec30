/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/device/device_kind.h"

int device_cuda_new(const struct device_options *o, struct device **ret, struct err *err)
{
    (void)o;
    (void)ret;
    return err_set(err, ERR_UNAVAILABLE,
                   "this build has no CUDA; use an image whose tag ends in "
                   "-cuda");
}
