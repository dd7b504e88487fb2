// Failure of a call: the first one is kept in the Call, and all that comes after it does nothing.
#pragma once

#include <cstdio>

#include "zenc_host/call/call_args.h"
#include "zenc_host/driver/api.h"

namespace zenc {

inline bool ok(const Call& call) {
    return call.outcome == DONE;
}

// Keeps the first failure. `words` fill in `format` as printf does.
template <class... Words>
inline void fail(Call& call, Outcome outcome, i64 peer, const char* format, Words... words) {
    if (!ok(call)) return;
    call.outcome = outcome;
    call.peer = peer;
    std::snprintf(call.message, sizeof call.message, format, words...);
}

// Whether a call of the driver went well; `what` names it, and `detail` what it was for.
inline bool check(Call& call, CUresult result, const char* what, const char* detail = "") {
    if (result == CUDA_SUCCESS) return true;
    const char* text = nullptr;
    api.cuGetErrorString(result, &text);
    fail(call, CUDA_FAILED, -1, "%s%s%s failed: %s, %s", what, *detail ? " of " : "", detail, name_of(result),
         text ? text : "");
    return false;
}

}  // namespace zenc
