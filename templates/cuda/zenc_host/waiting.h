// Waits of the host, each with a deadline.
#pragma once

#include <sched.h>
#include <time.h>

#include "zenc_host/driver.h"

namespace zenc {

inline i64 nanoseconds_now() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

// Asks again and again: at once for some time, since most waits are short, then with pauses.
class Backoff {
public:
    explicit Backoff(i64 microseconds) : start_(nanoseconds_now()), end_(start_ + microseconds * 1000) {}

    // Gives way to others. False when the deadline has passed.
    bool wait() {
        const i64 now = nanoseconds_now();
        if (now >= end_) return false;
        if (now - start_ < BUSY) {
            sched_yield();
        } else {
            const timespec pause = {0, PAUSE};
            nanosleep(&pause, nullptr);
        }
        return true;
    }

private:
    static constexpr i64 BUSY = 2000000;  // nanoseconds
    static constexpr i64 PAUSE = 50000;

    const i64 start_;
    const i64 end_;
};

// Waits for all that is on a stream, up to `deadline` microseconds: CUDA_ERROR_NOT_READY if that did not
// suffice.
inline CUresult drain(CUstream stream, CUevent event, i64 deadline) {
    Backoff patience(deadline);
    CUresult result = api.cuEventRecord(event, stream);
    if (result != CUDA_SUCCESS) return result;
    while ((result = api.cuEventQuery(event)) == CUDA_ERROR_NOT_READY && patience.wait()) continue;
    return result;
}

}  // namespace zenc
