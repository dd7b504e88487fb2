// Waiting for the device, and with it for other ranks.
#pragma once

#include "zenc_host/nccl/nccl_group.h"

namespace zenc {

constexpr i64 END = 0;  // instead of the number of a step

// What a call waits for, for those who wait in vain: "step 3 of call 7, which receives from ranks 1, 2".
struct Awaited {
    i64 step;
    const Parcels& receives;

    void describe(u64 call, char* text, u64 size) const {
        u64 at = 0;
        const auto add = [&](const char* format, auto... words) {
            if (at < size) at += static_cast<u64>(std::snprintf(text + at, size - at, format, words...));
        };
        if (step == END)
            add("the end of call %llu", call);
        else
            add("step %lld of call %llu", step, call);
        if (!receives.empty()) add(", which receives from rank%s", receives.size() == 1 ? "" : "s");
        for (u64 i = 0; i < receives.size(); ++i) add("%s %lld", i == 0 ? "" : ",", receives[i].peer);
    }

    i64 peer() const { return receives.size() == 1 ? receives[0].peer : -1; }
};

// Waits until the device has passed `event`, or fails. What NCCL has given up is passed as well: so its error
// is asked for after the event.
inline void await(Queue& queue, Communicator& group, CUevent event, const Awaited& what) {
    Backoff patience(queue.call.deadline);
    char text[256];
    while (queue.ok()) {
        const CUresult result = api.cuEventQuery(event);
        ncclResult_t error = ncclSuccess;
        if (group.watchdog != nullptr) api.ncclCommGetAsyncError(group.watchdog->communicator(), &error);
        const bool lost = error != ncclSuccess;
        if (!lost && result == CUDA_SUCCESS) return;
        if (!lost && result == CUDA_ERROR_NOT_READY && patience.wait()) continue;
        what.describe(queue.call.number, text, sizeof text);
        if (lost)
            fail(queue.call, NCCL_FAILED, what.peer(), "%s, failed: %s", text, api.ncclGetErrorString(error));
        else if (result != CUDA_ERROR_NOT_READY)
            check(queue.call, result, "the stream", text);
        else
            fail(queue.call, DEADLINE_PASSED, what.peer(), "%s, did not end within the deadline of %g s",
                 text, queue.call.deadline / 1e6);
    }
}

}  // namespace zenc
