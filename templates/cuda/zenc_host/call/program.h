// A rank program: what one rank does in every call, known before any. zenc/rank_ir has its meaning.
#pragma once

#include "zenc/formats.h"
#include "zenc_host/call_args.h"

namespace zenc {

constexpr i64 NOT_SENT = FORMAT_DENSE;  // values without an index

// Numbers of segments, or of ranks, in memory of whoever names them.
struct Numbers {
    const i64* first;
    u64 n;

    const i64* begin() const { return first; }
    const i64* end() const { return first + n; }
    u64 size() const { return n; }
};

template <u64 n>
struct NumberList {
    i64 items[n];

    operator Numbers() const { return {items, n}; }
};

// Numbers for the statement that they are written in.
template <class... T>
constexpr NumberList<sizeof...(T)> list(T... numbers) {
    return {{static_cast<i64>(numbers)...}};
}

inline Numbers list() {
    return {nullptr, 0};
}

class Sequence;

// `play` plays its statements: those of a table, or itself in C++.
struct Program {
    i64 size;
    i64 rank;
    i64 parts;
    const SegmentSpec* segments;
    i64 number_of_segments;
    const SlotCut* cuts;  // by holders; else none
    i64 number_of_cuts;
    const i64* pieces;
    i64 number_of_pieces;
    void (*play)(const Program& program, Sequence& rank);
    const i64* statements = nullptr;  // of a table
    i64 number_of_words = 0;
};

}  // namespace zenc
