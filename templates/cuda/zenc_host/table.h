// Rank programs as tables of words, played as they are. Only what this zenc has just made of a plan is
// loaded, in the process that made it (zenc/codegen/call_program.py): words are not checked.
//
//   table     = TableHeader  SegmentSpec*  SlotCut*  piece*  statement*
//   statement = operation argument*                                       # a list begins with its length
#pragma once

#include <tuple>
#include <type_traits>

#include "zenc_host/replays.h"
#include "zenc_host/sequence.h"

namespace zenc {

// Reads words, one after another.
class Words {
public:
    explicit Words(const i64* first) : next_(first) {}

    const i64* at() const { return next_; }

    template <class Argument>
    Argument next() {
        if constexpr (std::is_same_v<Argument, Numbers>) {
            const i64 n = *next_++;
            return {several<i64>(n), static_cast<u64>(n)};
        } else {
            return static_cast<Argument>(*next_++);
        }
    }

    // Reads `n` things that are made of words.
    template <class Thing>
    const Thing* several(i64 n) {
        const i64* const first = next_;
        next_ += n * static_cast<i64>(sizeof(Thing) / sizeof(i64));
        return reinterpret_cast<const Thing*>(first);
    }

private:
    const i64* next_;
};

// Calls a method with arguments that are read in order.
template <class... Arguments>
inline void read_and_call(Words& words, Sequence& rank, void (Sequence::*method)(Arguments...)) {
    const std::tuple<Arguments...> arguments{words.next<Arguments>()...};
    std::apply([&](auto... each) { (rank.*method)(each...); }, arguments);
}

#define ZENC_PLAY(operation, method) \
    case Operation::operation:       \
        return read_and_call(words, rank, &Sequence::method);

inline void play_statement(Words& words, Sequence& rank) {
    switch (words.next<Operation>()) { ZENC_OPERATIONS(ZENC_PLAY) }
}

#undef ZENC_PLAY

inline void play_table(const Program& program, Sequence& rank) {
    const i64* const end = program.statements + program.number_of_words;
    for (Words words(program.statements); words.at() != end;) play_statement(words, rank);
}

// Returns Sequence::residual_before().
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
    call.announced = nullptr;
    call.message[0] = 0;
}

// Gives up a failed call: nothing of it may go on behind the caller's back. Peers wait for it in vain.
inline void give_up(Call& call, Communicator& group) {
    abort(group);
    if (call.report != nullptr) return;  // what is captured has not begun
    drain(static_cast<CUstream>(call.stream), call.deadline);
}

// Makes a call exactly after capacity mode had no room. Its input is as it was; so becomes the residual.
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

// Runs the program of the calling rank, which may be null.
inline i64 run(Call& call, const Program* program) {
    Communicator& group = *static_cast<Communicator*>(call.communicator);
    clear_results(call);
    if (program == nullptr || program->of.rank != group.rank || program->of.size != group.size)
        fail(call, UNUSABLE_GROUP, -1, "this sequence is not for rank %lld of %lld", group.rank, group.size);
    else if (group.broken)
        fail(call, UNUSABLE_GROUP, -1, "an earlier call of this group failed");
    else if (static_cast<u64>(call.units) >> RANK_BITS != 0)
        fail(call, OUT_OF_MEMORY, -1, "%lld units are too many: fewer than 2^%llu are counted", call.units,
             RANK_BITS);
    if (!ok(call)) return call.outcome;
    const BesideCaptures beside;
    if (check(call, api.cuCtxSetCurrent(group.context), "cuCtxSetCurrent")) {
        if (call.report == nullptr && is_captured_instead(call)) return call.outcome;
        group.in_graphs |= call.report != nullptr;
        group.staging.reset();
        group.awaited.clear();
        const float* const residual_before = play(*program, call, group);
        if (call.report != nullptr) group.staging.keep();
        const bool again = ok(call) && call.made_again != 0 && call.agreed == nullptr;
        if (again) play_exactly(*program, call, group, residual_before);
    }
    if (!ok(call)) give_up(call, group);
    return call.outcome;
}

// A program, and the words that it points to.
struct LoadedProgram {
    LoadedProgram(const i64* first, i64 n) : words_(first, first + n) {
        Words words(words_.data());
        program.of = *words.several<TableHeader>(1);
        program.segments = words.several<SegmentSpec>(program.of.segments);
        program.cuts = words.several<SlotCut>(program.of.cuts);
        program.pieces = words.several<i64>(program.of.pieces);
        program.statements = words.at();
        program.number_of_words = words_.data() + words_.size() - words.at();
        program.play = play_table;
    }

    Program program;

private:
    const std::vector<i64> words_;
};

// Plays the table that the call has; without one, the program of the rank that calls among `n` compiled ones.
inline i64 run_loaded_or(Call& call, const Program* programs, u64 n) {
    if (call.program != nullptr) return run(call, &static_cast<const LoadedProgram*>(call.program)->program);
    const i64 rank = static_cast<const Communicator*>(call.communicator)->rank;
    const auto is_mine = [=](const Program& each) { return each.of.rank == rank; };
    const Program* const mine = std::find_if(programs, programs + n, is_mine);
    return run(call, mine == programs + n ? nullptr : mine);
}

extern "C" {

// Loads a table of `n` words, which is copied. Returns what a Call takes as `program`.
ZENC_EXPORT void* zenc_load_program(const i64* words, i64 n) {
    return new LoadedProgram(words, n);
}

// Unloads a program. No call may be under way.
ZENC_EXPORT void zenc_unload_program(void* program) {
    delete static_cast<LoadedProgram*>(program);
}
}

}  // namespace zenc

#define ZENC_FUNCTIONS(X)                                                                                    \
    X(table_words), X(build_tables), X(unique_id), X(open_communicator), X(capture), X(replay),              \
        X(release_replay), X(abort_communicator), X(close_communicator), X(load_program), X(unload_program), \
        X(release_agreed)
#define ZENC_FUNCTION(name) zenc::entry(#name, zenc::zenc_##name)

const zenc::EntryPoint zenc_entry_points[] = {
    ZENC_ENTRIES_OF_KERNELS, zenc::entry("all_reduce", zenc_all_reduce), ZENC_FUNCTIONS(ZENC_FUNCTION), {}};
