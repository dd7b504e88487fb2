// A group of ranks: NCCL's communicator, and what the calls of one rank share.
#pragma once

#include "zenc_host/driver/bind.h"
#include "zenc_host/driver/staging.h"
#include "zenc_host/nccl/watchdog.h"

namespace zenc {

struct Communicator {
    i64 rank = 0;
    i64 size = 1;
    Watchdog* watchdog = nullptr;  // null for one rank alone, and once the group is broken
    bool broken = false;
    bool in_graphs = false;  // calls of it were captured
    CUcontext context = nullptr;
    CUevent ready = nullptr;  // on the call's stream: what is to cross to the host is there
    CUevent there = nullptr;  // on the side stream: it has crossed
    Staging staging;
};

inline void end(Communicator& group, Watchdog::Ending how) {
    constexpr i64 LONGEST = 10000000;  // microseconds
    if (group.watchdog != nullptr) group.watchdog->finish(how, group.in_graphs ? 0 : LONGEST);
    group.watchdog = nullptr;
}

// Ends all that is under way, on this rank. The group can't be used again.
inline void abort(Communicator& group) {
    end(group, api.ncclCommAbort);
    group.broken = group.size > 1;
}

// Waits for all that is on a stream, up to `deadline` microseconds: CUDA_ERROR_NOT_READY if that did not
// suffice.
inline CUresult drain(CUstream stream, CUevent event, i64 deadline) {
    Backoff patience(deadline);
    CUresult result = api.cuEventRecord(event, stream);
    if (result != CUDA_SUCCESS) return result;
    while ((result = api.cuEventQuery(event)) == CUDA_ERROR_NOT_READY && patience.wait()) continue;
    return result;
}

// Events, and pinned memory.
inline bool prepare(Communicator& group, ErrorText error) {
    api.cuCtxGetCurrent(&group.context);
    if (group.context == nullptr) return refuse(error, "no CUDA context is current in this thread");
    for (CUevent* event : {&group.ready, &group.there})
        if (const CUresult result = api.cuEventCreate(event, CU_EVENT_DISABLE_TIMING))
            return refuse(error, "cuEventCreate failed: %s", name_of(result));
    if (const CUresult result = group.staging.prepare())
        return refuse(error, "cuMemHostAlloc failed: %s", name_of(result));
    return true;
}

// Waits for all ranks, up to `deadline` microseconds.
inline bool join(Communicator& group, const ncclUniqueId& id, i64 deadline, ErrorText error) {
    if (api.ncclSend == nullptr)
        return refuse(error, "NCCL is not bound: it is needed for %lld ranks", group.size);
    group.watchdog = Watchdog::start(group.context, id, group.size, group.rank);
    if (group.watchdog == nullptr) return refuse(error, "there can be no thread for NCCL");
    const ncclResult_t result = group.watchdog->wait_until_made(deadline);
    if (result == ncclInProgress)
        return refuse(error, "not all %lld ranks came together within %g s", group.size, deadline / 1e6);
    return result == ncclSuccess ||
           refuse(error, "ncclCommInitRankConfig failed: %s", api.ncclGetErrorString(result));
}

inline void close(Communicator* group) {
    api.cuCtxSetCurrent(group->context);
    end(*group, api.ncclCommDestroy);
    for (const CUevent event : {group->ready, group->there})
        if (event != nullptr) api.cuEventDestroy_v2(event);
    delete group;
}

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

extern "C" {

// A new name for a group, which one rank makes and all others are told: 128 bytes. Returns 1, or 0 with the
// reason in `error`.
ZENC_EXPORT zenc::i64 zenc_unique_id(zenc::u8* id, char* error, zenc::u64 size) {
    zenc::ncclUniqueId made;
    const zenc::ErrorText text = {error, size};
    if (zenc::api.ncclGetUniqueId == nullptr) return zenc::refuse(text, "NCCL is not bound");
    if (const zenc::ncclResult_t result = zenc::api.ncclGetUniqueId(&made))
        return zenc::refuse(text, "ncclGetUniqueId failed: %s", zenc::api.ncclGetErrorString(result));
    std::memcpy(id, made.internal, sizeof made.internal);
    return 1;
}

// Joins a group of `ranks`, with the device of the current context; all of them do so, and wait for each
// other up to `deadline` microseconds. One rank alone needs neither NCCL nor an id. Returns what a Call takes
// as `communicator`, or null with the reason in `error`.
ZENC_EXPORT void* zenc_open_communicator(const zenc::u8* id, zenc::i64 ranks, zenc::i64 rank,
                                         zenc::i64 deadline, char* error, zenc::u64 size) {
    const zenc::BesideCaptures beside;
    auto* const group = new zenc::Communicator;
    group->rank = rank;
    group->size = ranks;
    zenc::ncclUniqueId name = {};
    if (ranks > 1) std::memcpy(name.internal, id, sizeof name.internal);
    if (zenc::prepare(*group, {error, size}) &&
        (ranks == 1 || zenc::join(*group, name, deadline, {error, size})))
        return group;
    zenc::abort(*group);
    zenc::close(group);
    return nullptr;
}

// Ends what is under way, also what a graph replays. The group can't be used again.
ZENC_EXPORT void zenc_abort_communicator(void* communicator) {
    zenc::abort(*static_cast<zenc::Communicator*>(communicator));
}

// Waits for all that is on a stream, up to `deadline` microseconds. Returns an Outcome: DONE,
// DEADLINE_PASSED, or CUDA_FAILED with the reason in `error`.
ZENC_EXPORT zenc::i64 zenc_drain(void* communicator, void* stream, zenc::i64 deadline, char* error,
                                 zenc::u64 size) {
    const zenc::BesideCaptures beside;
    zenc::CUevent event = nullptr;
    zenc::CUresult result =
        zenc::api.cuCtxSetCurrent(static_cast<zenc::Communicator*>(communicator)->context);
    if (result == zenc::CUDA_SUCCESS) result = zenc::api.cuEventCreate(&event, zenc::CU_EVENT_DISABLE_TIMING);
    if (result == zenc::CUDA_SUCCESS)
        result = zenc::drain(static_cast<zenc::CUstream>(stream), event, deadline);
    if (event != nullptr) zenc::api.cuEventDestroy_v2(event);
    if (result == zenc::CUDA_SUCCESS) return zenc::DONE;
    if (result == zenc::CUDA_ERROR_NOT_READY) return zenc::DEADLINE_PASSED;
    zenc::refuse({error, size}, "%s", zenc::name_of(result));
    return zenc::CUDA_FAILED;
}

// No call may be under way, on the host or on its stream.
ZENC_EXPORT void zenc_close_communicator(void* communicator) {
    const zenc::BesideCaptures beside;
    zenc::close(static_cast<zenc::Communicator*>(communicator));
}
}
