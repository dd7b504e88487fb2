// Rank programs as tables of words, which are checked when they are loaded, and then played as they are.
//
//   table     = TableHeader  SegmentSpec*  SlotCut*  piece*  statement*
//   statement = operation argument*                                       # a list begins with its length
#pragma once

#include "zenc_host/call/entry.h"
#include "zenc_host/call/table_check.h"

namespace zenc {

// A program, and the words that it points to.
struct LoadedProgram {
    std::vector<i64> words;
    Program program;
};

inline void play_table(const Program& program, Sequence& rank) {
    Words words(program.statements, program.number_of_words);
    each_statement(words, rank);
}

// Points to `n` things, of words alone, at `next`, and goes on behind them. Returns whether `left` words
// suffice.
template <class Thing>
inline bool take(const Thing*& to, i64 n, const i64*& next, i64& left) {
    constexpr i64 EACH = sizeof(Thing) / sizeof(i64);
    if (n < 0 || n > left / EACH) return false;
    to = reinterpret_cast<const Thing*>(next);
    next += n * EACH;
    left -= n * EACH;
    return true;
}

// Points `to.program` into its words. Returns why it can't, or null.
inline const char* lay_out(LoadedProgram& to) {
    const i64* next = to.words.data();
    i64 left = static_cast<i64>(to.words.size());
    const TableHeader* header = nullptr;
    if (!take(header, 1, next, left) || header->magic != TABLE_MAGIC) return "it is no table of a call";
    if (header->version != TABLE_VERSION) return "it is of another version";
    if (header->words != static_cast<i64>(to.words.size())) return "it is cut short";
    Program& made = to.program;
    if (!take(made.segments, header->segments, next, left) || !take(made.cuts, header->cuts, next, left) ||
        !take(made.pieces, header->pieces, next, left))
        return "it has fewer words than it says";
    made.size = header->size;
    made.rank = header->rank;
    made.parts = header->parts;
    made.number_of_segments = header->segments;
    made.number_of_cuts = header->cuts;
    made.number_of_pieces = header->pieces;
    made.statements = next;
    made.number_of_words = left;
    made.play = play_table;
    return nullptr;
}

inline bool load_table(LoadedProgram& to, ErrorText error) {
    const char* why = lay_out(to);
    if (why == nullptr) why = Checker(to.program).problem();
    return why == nullptr || refuse(error, "%s", why);
}

}  // namespace zenc

extern "C" {

// A table of `n` words, which is copied. Returns what a Call takes as `program`, or null with the reason in
// `error`.
ZENC_EXPORT void* zenc_load_program(const zenc::i64* words, zenc::i64 n, char* error, zenc::u64 size) {
    auto* const loaded = new zenc::LoadedProgram{{words, words + n}, {}};
    if (zenc::load_table(*loaded, {error, size})) return loaded;
    delete loaded;
    return nullptr;
}

// No call may be under way.
ZENC_EXPORT void zenc_unload_program(void* program) {
    delete static_cast<zenc::LoadedProgram*>(program);
}

ZENC_EXPORT zenc::i64 zenc_all_reduce(zenc::Call* call) {
    const auto* const loaded = static_cast<const zenc::LoadedProgram*>(call->program);
    return zenc::run(*call, loaded == nullptr ? nullptr : &loaded->program);
}
}
