// Rank programs as tables of words, played as they are. Only what this zenc has just made of a plan is
// loaded, in the process that made it (zenc/codegen/call_program.py): words are not checked.
//
//   table     = TableHeader  SegmentSpec*  SlotCut*  piece*  statement*
//   statement = operation argument*                                       # a list begins with its length
#pragma once

#include <tuple>
#include <type_traits>

#include "zenc_host/entry.h"

namespace zenc {

// A program, and the words that it points to.
struct LoadedProgram {
    std::vector<i64> words;
    Program program;
};

// Words, one after another.
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

    // `n` things, of words alone.
    template <class Thing>
    const Thing* several(i64 n) {
        const i64* const first = next_;
        next_ += n * static_cast<i64>(sizeof(Thing) / sizeof(i64));
        return reinterpret_cast<const Thing*>(first);
    }

private:
    const i64* next_;
};

// Calls a method with arguments that are read in their order.
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

// Plays the table that the call has; without one, the program of the rank that calls among `n` compiled ones.
inline i64 run_loaded_or(Call& call, const Program* programs, u64 n) {
    const auto* const loaded = static_cast<const LoadedProgram*>(call.program);
    return loaded == nullptr ? run_compiled(call, programs, n) : run(call, &loaded->program);
}

// Points `to.program` into its words.
inline void lay_out(LoadedProgram& to) {
    Words words(to.words.data());
    const TableHeader& header = *words.several<TableHeader>(1);
    Program& made = to.program;
    made.size = header.size;
    made.rank = header.rank;
    made.parts = header.parts;
    made.number_of_segments = header.segments;
    made.number_of_cuts = header.cuts;
    made.number_of_pieces = header.pieces;
    made.segments = words.several<SegmentSpec>(header.segments);
    made.cuts = words.several<SlotCut>(header.cuts);
    made.pieces = words.several<i64>(header.pieces);
    made.statements = words.at();
    made.number_of_words = to.words.data() + to.words.size() - words.at();
    made.play = play_table;
}

extern "C" {

// A table of `n` words, which is copied. Returns what a Call takes as `program`.
ZENC_EXPORT void* zenc_load_program(const i64* words, i64 n) {
    auto* const loaded = new LoadedProgram{{words, words + n}, {}};
    lay_out(*loaded);
    return loaded;
}

// No call may be under way.
ZENC_EXPORT void zenc_unload_program(void* program) {
    delete static_cast<LoadedProgram*>(program);
}
}

}  // namespace zenc
