// Entry of a call: it plays the program of the rank that calls.
#pragma once

#include "zenc_host/sequence.h"

namespace zenc {

// Returns what Sequence::residual_before does.
inline const float* play(const Program& program, Call& call, Communicator& group) {
    Sequence sequence(call, group, program);
    program.play(program, sequence);
    return sequence.residual_before();
}

inline void clear_results(Call& call) {
    call.ids_out = nullptr;
    call.values_out = nullptr;
    call.count_out = 0;
    call.arena_wanted = 0;
    for (PhaseCount& phase : call.phases) phase = {};
    call.outcome = DONE;
    call.peer = -1;
    call.detail = 0;
    call.made_again = 0;
    call.message[0] = 0;
}

// Nothing of a failed call may go on behind the caller's back; peers wait for it in vain.
inline void give_up(Call& call, Communicator& group) {
    abort(group);
    if (call.report != nullptr) return;  // what is captured has not begun
    for (void* const stream : {call.stream, call.side})
        drain(static_cast<CUstream>(stream), group.ready, call.deadline);
}

// A call for which capacity mode had no room. Its input is as it was, and so becomes the residual.
inline void play_exactly(const Program& program, Call& call, Communicator& group,
                         const float* residual_before) {
    if (residual_before != nullptr)
        check(call,
              api.cuMemcpyDtoDAsync_v2(reinterpret_cast<CUdeviceptr>(call.residual),
                                       reinterpret_cast<CUdeviceptr>(residual_before), residual_bytes(call),
                                       static_cast<CUstream>(call.stream)),
              "cuMemcpyDtoDAsync");
    const double own_share = call.own_share;
    const u64 wanted = call.arena_wanted;
    call.own_share = 0;
    call.arena_wanted = 0;
    call.count_out = 0;
    group.staging.reset();
    play(program, call, group);
    call.own_share = own_share;
    if (wanted > call.arena_wanted) call.arena_wanted = wanted;
}

// `program` is what the rank that calls does, or null.
inline i64 run(Call& call, const Program* program) {
    Communicator& group = *static_cast<Communicator*>(call.communicator);
    clear_results(call);
    if (program == nullptr || program->rank != group.rank || program->size != group.size)
        fail(call, UNUSABLE_GROUP, -1, "this sequence is not for rank %lld of %lld", group.rank, group.size);
    else if (group.broken)
        fail(call, UNUSABLE_GROUP, -1, "an earlier call of this group failed");
    else if (static_cast<u64>(call.units) >> RANK_BITS != 0)
        fail(call, OUT_OF_MEMORY, -1, "%lld units are too many: fewer than 2^%llu are counted", call.units,
             RANK_BITS);
    if (!ok(call)) return call.outcome;
    const BesideCaptures beside;
    if (check(call, api.cuCtxSetCurrent(group.context), "cuCtxSetCurrent")) {
        if (call.report == nullptr && is_captured(static_cast<CUstream>(call.stream))) {
            fail(call, NOT_CAPTURABLE, -1,
                 "the stream is captured for a graph, and this call waits for the device");
            return call.outcome;
        }
        group.in_graphs |= call.report != nullptr;
        group.staging.reset();
        const float* const residual_before = play(*program, call, group);
        if (call.report != nullptr) group.staging.keep();
        if (ok(call) && call.made_again != 0) play_exactly(*program, call, group, residual_before);
    }
    if (!ok(call)) give_up(call, group);
    return call.outcome;
}

// The same for a unit of compiled `programs`, of one rank each.
inline i64 run_compiled(Call& call, const Program* programs, u64 n) {
    const Communicator& group = *static_cast<const Communicator*>(call.communicator);
    const Program* mine = nullptr;
    for (u64 i = 0; i < n; ++i)
        if (programs[i].rank == group.rank) mine = programs + i;
    return run(call, mine);
}

}  // namespace zenc
