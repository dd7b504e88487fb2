// The way into a generated unit: it chooses the steps of the rank that calls.
#pragma once

#include "zenc_host/sequence.h"

namespace zenc {

// What one rank does in every call.
struct Program {
    i64 rank;
    i64 parts;
    const Slot* segments;
    i64 number_of_segments;
    void (*steps)(Sequence& rank);

    void play(Call& call, Communicator& group) const {
        Sequence sequence(call, group, parts, segments, number_of_segments);
        steps(sequence);
    }
};

inline void clear_results(Call& call) {
    call.ids_out = nullptr;
    call.values_out = nullptr;
    call.count_out = 0;
    call.arena_wanted = 0;
    for (PhaseCount& phase : call.phases) phase = {};
    call.outcome = DONE;
    call.peer = -1;
    call.detail = 0;
    call.message[0] = 0;
}

// Nothing of a failed call may go on behind the caller's back; peers wait for it in vain.
inline void give_up(Call& call, Communicator& group) {
    abort(group);
    Patience patience(call.deadline);
    const CUstream streams[] = {static_cast<CUstream>(call.stream), static_cast<CUstream>(call.side)};
    for (const CUstream stream : streams) {
        if (api.cuEventRecord(group.ready, stream) != CUDA_SUCCESS) continue;
        while (api.cuEventQuery(group.ready) == CUDA_ERROR_NOT_READY && patience.wait()) continue;
    }
}

// `programs` say what they do in `play`, of one rank each.
template <class Program>
inline i64 run(Call& call, i64 size, const Program* programs, u64 n) {
    Communicator& group = *static_cast<Communicator*>(call.communicator);
    clear_results(call);
    const Program* mine = nullptr;
    for (u64 i = 0; i < n; ++i)
        if (programs[i].rank == group.rank && size == group.size) mine = programs + i;
    if (mine == nullptr)
        fail(call, UNUSABLE_GROUP, -1, "this sequence is not for rank %lld of %lld", group.rank, group.size);
    else if (group.broken)
        fail(call, UNUSABLE_GROUP, -1, "an earlier call of this group failed");
    if (!ok(call)) return call.outcome;
    if (check(call, api.cuCtxSetCurrent(group.context), "cuCtxSetCurrent")) {
        group.staging.reset();
        mine->play(call, group);
    }
    if (!ok(call)) give_up(call, group);
    return call.outcome;
}

}  // namespace zenc
