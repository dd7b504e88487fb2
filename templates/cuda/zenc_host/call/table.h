// Rank programs as tables of words, whose bounds are checked when they are loaded, and which are then played
// as they are.
//
//   table     = TableHeader  SegmentSpec*  SlotCut*  piece*  statement*
//   statement = operation argument*                                       # a list begins with its length
#pragma once

#include <tuple>
#include <type_traits>

#include "zenc_host/call/entry.h"

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

// Calls `rank`, a Sequence or Bounds, with one statement. Returns false if there is no such operation.
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

// Bounds of all numbers of a program: what a Sequence looks up by them is there. Their meaning is the
// business of who makes tables, of a proved plan, in this process.
class Bounds {
public:
    explicit Bounds(const Program& program) : of_(program) {}

    // Why the program can't be played, or null.
    const char* problem() {
        const bool fits = of_.size >= 1 && below(of_.rank, of_.size) && of_.parts >= 1;
        for (i64 i = 0; i < of_.number_of_cuts && fits; ++i) demand(is_cut(i));
        i64 complete = 0;
        for (i64 i = 0; i < of_.number_of_segments && fits; ++i) {
            demand(is_segment(of_.segments[i]));
            complete += of_.segments[i].in_result != NOT_IN_RESULT;
        }
        demand(complete == of_.parts);
        if (!fits || !right_) return "a number of it is out of bounds";
        Words words(of_.statements, of_.number_of_words);
        if (!each_statement(words, *this) || !finished_) return "its statements are not whole";
        return right_ ? nullptr : "a number of it is out of bounds";
    }

    void pack(Numbers results, Numbers own, Numbers unused) {
        segments(results, of_.number_of_cuts != 0 ? 1 : of_.parts);
        segments(own, of_.parts);
        segments(unused);
    }

    void begin(Kind kind, Carries carries, i64 format) {
        demand(below(kind, ANNOUNCE + 1) && below(carries, ROWS + 1) && below(format, FORMAT_AUTO + 1));
    }

    void send(i64 peer, Numbers numbers, Announced announced) {
        demand(below(peer, of_.size) && peer != of_.rank && below(announced, ANNOUNCED + 1) &&
               numbers.n != 0);
        segments(numbers);
    }

    void receive(i64 peer, Numbers numbers, Announced announced) { send(peer, numbers, announced); }
    void exchange(i64, Numbers spent) { segments(spent); }

    void merge(i64 result, Numbers from, Numbers spent) {
        segments({&result, 1});
        segments(from);
        segments(spent);
    }

    void fill(i64 result, i64 segment, i64 format, Numbers spent) {
        demand(below(format, LAST_FORMAT + 1));
        merge(result, {&segment, 1}, spent);
    }

    void sparsify(i64 result, i64 segment, Numbers spent) { merge(result, {&segment, 1}, spent); }

    void agree(Numbers sets, Numbers peers) {
        segments(sets, of_.size);
        for (const i64 peer : peers) demand(below(peer, of_.size) && peer != of_.rank);
    }

    void split(Numbers results, i64 segment) { merge(segment, results, list()); }

    void finish(Numbers complete) {
        segments(complete, of_.parts);
        demand(!finished_);
        finished_ = true;
    }

private:
    static bool below(i64 number, i64 end) { return 0 <= number && number < end; }
    void demand(bool right) { right_ &= right && !finished_; }

    void segments(Numbers numbers) {
        for (const i64 number : numbers) demand(below(number, of_.number_of_segments));
    }

    void segments(Numbers numbers, i64 n) {
        demand(numbers.n == static_cast<u64>(n));
        segments(numbers);
    }

    // Cuts of several ranks follow those that they are made of.
    bool is_cut(i64 number) const {
        const SlotCut& cut = of_.cuts[number];
        if (!below(cut.part, of_.parts) || of_.parts != of_.size || !below(cut.rank + 1, of_.size + 1))
            return false;
        if (cut.first < 0 || cut.number < 0 || cut.number > of_.number_of_pieces - cut.first) return false;
        for (i64 i = 0; i < cut.number; ++i)
            if (!below(of_.pieces[cut.first + i], number)) return false;
        return true;
    }

    bool is_segment(const SegmentSpec& spec) const {
        const bool has_part = spec.part == WHOLE ? of_.number_of_cuts != 0 : below(spec.part, of_.parts);
        return has_part && below(spec.asked, FORMAT_AUTO + 1) && below(spec.ranks - 1, of_.size) &&
               below(spec.spread - 1, FULL) && below(spec.in_result, SUM_FOR_RESULT + 1) &&
               below(spec.cut + 1, of_.number_of_cuts + 1);
    }

    const Program& of_;
    bool right_ = true, finished_ = false;
};

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
    if (why == nullptr) why = Bounds(to.program).problem();
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
