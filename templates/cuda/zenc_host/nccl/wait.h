// Waiting for the device, and with it for other ranks.
#pragma once

#include "zenc_host/nccl/communicator.h"

namespace zenc {

// Waits until the device has passed `event`, or fails. What NCCL has given up is passed as well: so its error
// is asked for after the event. `describe` writes what is waited for, of `peer` or of several.
template <class Describe>
inline void await(Call& call, Communicator& group, CUevent event, i64 peer, const Describe& describe) {
    Backoff patience(call.deadline);
    while (ok(call)) {
        const CUresult result = api.cuEventQuery(event);
        ncclResult_t error = ncclSuccess;
        if (group.watchdog != nullptr) api.ncclCommGetAsyncError(group.watchdog->communicator(), &error);
        const bool lost = error != ncclSuccess;
        if (!lost && result == CUDA_SUCCESS) return;
        if (!lost && result == CUDA_ERROR_NOT_READY && patience.wait()) continue;
        char text[256];
        describe(text, sizeof text);
        if (lost)
            fail(call, NCCL_FAILED, peer, "%s, failed: %s", text, api.ncclGetErrorString(error));
        else if (result != CUDA_ERROR_NOT_READY)
            check(call, result, "the stream", text);
        else
            fail(call, DEADLINE_PASSED, peer, "%s, did not end within the deadline of %g s", text,
                 call.deadline / 1e6);
    }
}

}  // namespace zenc
