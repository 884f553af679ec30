/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the operator watches: the numbers of the store's kinds. */
enum watched_kind {
    WATCHED_INFERENCE_SERVICE,
    WATCHED_DEPLOYMENT,
    WATCHED_SERVICE,
    WATCHED_SCALER,
    WATCHED_REVISION,
    WATCHED_POD,
    WATCHED_COUNT,
};
