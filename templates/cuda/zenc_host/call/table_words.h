// The statements of a table, read one after another.
#pragma once

#include "zenc_host/call/program.h"

namespace zenc {

// Words, one after another, and none beyond the end.
class Words {
public:
    Words(const i64* first, i64 n) : next_(first), end_(first + n) {}

    bool at_end() const { return next_ == end_; }

    // Whether everything that was asked for was there.
    bool whole() const { return whole_; }

    i64 number() {
        if (next_ != end_) return *next_++;
        whole_ = false;
        return 0;
    }

    Numbers list() {
        const i64 n = number();
        whole_ = whole_ && n >= 0 && n <= end_ - next_;
        if (!whole_) return {next_ = end_, 0};
        next_ += n;
        return {next_ - n, static_cast<u64>(n)};
    }

private:
    const i64* next_;
    const i64* const end_;
    bool whole_ = true;
};

// Calls `rank`, a Sequence or a Checker, with one statement. Returns false if there is no such operation.
template <class Rank>
inline bool statement(Words& words, Rank& rank) {
    switch (static_cast<Operation>(words.number())) {
        case Operation::PACK: {
            const Numbers results = words.list(), own = words.list();
            rank.pack(results, own, words.list());
            return true;
        }
        case Operation::BEGIN: {
            const i64 kind = words.number(), carries = words.number();
            rank.begin(static_cast<Kind>(kind), static_cast<Carries>(carries), words.number());
            return true;
        }
        case Operation::SEND: {
            const i64 peer = words.number();
            const Numbers segments = words.list();
            rank.send(peer, segments, static_cast<Announced>(words.number()));
            return true;
        }
        case Operation::RECEIVE: {
            const i64 peer = words.number();
            const Numbers segments = words.list();
            rank.receive(peer, segments, static_cast<Announced>(words.number()));
            return true;
        }
        case Operation::EXCHANGE: {
            const i64 step = words.number();
            rank.exchange(step, words.list());
            return true;
        }
        case Operation::MERGE: {
            const i64 result = words.number();
            const Numbers segments = words.list();
            rank.merge(result, segments, words.list());
            return true;
        }
        case Operation::FILL: {
            const i64 result = words.number(), segment = words.number(), format = words.number();
            rank.fill(result, segment, format, words.list());
            return true;
        }
        case Operation::SPARSIFY: {
            const i64 result = words.number(), segment = words.number();
            rank.sparsify(result, segment, words.list());
            return true;
        }
        case Operation::AGREE: {
            const Numbers sets = words.list();
            rank.agree(sets, words.list());
            return true;
        }
        case Operation::SPLIT: {
            const Numbers results = words.list();
            rank.split(results, words.number());
            return true;
        }
        case Operation::FINISH:
            rank.finish(words.list());
            return true;
    }
    return false;
}

template <class Rank>
inline bool each_statement(Words& words, Rank& rank) {
    while (!words.at_end())
        if (!statement(words, rank)) return false;
    return words.whole();
}

}  // namespace zenc
