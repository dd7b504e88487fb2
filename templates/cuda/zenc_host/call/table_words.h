// The statements of a table, read one after another.
#pragma once

#include <tuple>
#include <type_traits>

#include "zenc_host/call/program.h"

namespace zenc {

// Words, one after another, and none beyond the end.
class Words {
public:
    Words(const i64* first, i64 n) : next_(first), end_(first + n) {}

    bool at_end() const { return next_ == end_; }

    // Whether everything that was asked for was there.
    bool whole() const { return whole_; }

    template <class Argument>
    Argument next() {
        if constexpr (std::is_same_v<Argument, Numbers>)
            return list();
        else
            return static_cast<Argument>(number());
    }

private:
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

    const i64* next_;
    const i64* const end_;
    bool whole_ = true;
};

// Calls a method with arguments that are read in their order.
template <class Rank, class... Arguments>
inline bool read_and_call(Words& words, Rank& rank, void (Rank::*method)(Arguments...)) {
    const std::tuple<Arguments...> arguments{words.next<Arguments>()...};
    std::apply([&](auto... each) { (rank.*method)(each...); }, arguments);
    return true;
}

// Calls `rank`, a Sequence or a Checker, with one statement. Returns false if there is no such operation.
template <class Rank>
inline bool statement(Words& words, Rank& rank) {
    switch (words.next<Operation>()) {
        case Operation::PACK:
            return read_and_call(words, rank, &Rank::pack);
        case Operation::BEGIN:
            return read_and_call(words, rank, &Rank::begin);
        case Operation::SEND:
            return read_and_call(words, rank, &Rank::send);
        case Operation::RECEIVE:
            return read_and_call(words, rank, &Rank::receive);
        case Operation::EXCHANGE:
            return read_and_call(words, rank, &Rank::exchange);
        case Operation::MERGE:
            return read_and_call(words, rank, &Rank::merge);
        case Operation::FILL:
            return read_and_call(words, rank, &Rank::fill);
        case Operation::SPARSIFY:
            return read_and_call(words, rank, &Rank::sparsify);
        case Operation::AGREE:
            return read_and_call(words, rank, &Rank::agree);
        case Operation::SPLIT:
            return read_and_call(words, rank, &Rank::split);
        case Operation::FINISH:
            return read_and_call(words, rank, &Rank::finish);
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
