// Checking programs before they are played: what a call uses is in bounds, in order, and there.
#pragma once

#include <vector>

#include "zenc_host/call/table_words.h"

namespace zenc {

// Looks at a program as a Sequence would play it. The first problem is kept.
class Checker {
public:
    explicit Checker(const Program& program) : of_(program) {}

    // Why the program can't be played, or null.
    const char* problem() {
        if (of_.size < 1 || of_.size > MOST_RANKS || !below(of_.rank, of_.size) || of_.parts < 1)
            return "its numbers of ranks and parts are none";
        states_.assign(static_cast<u64>(of_.number_of_segments), UNMADE);
        for (i64 i = 0; i < of_.number_of_cuts; ++i) demand(is_cut(i), "a cut is none");
        for (i64 i = 0; i < of_.number_of_segments; ++i)
            demand(is_segment(of_.segments[i]), "a segment is none");
        if (problem_ != nullptr) return problem_;
        Words words(of_.statements, of_.number_of_words);
        if (!each_statement(words, *this) || !finished_) demand(false, "its statements are not whole");
        return problem_;
    }

    void pack(Numbers results, Numbers own, Numbers unused) {
        demand(!packed_ && !finished_, "it packs twice");
        packed_ = true;
        const bool whole = results.n == 1 && exists(results.first[0]) && spec(results.first[0]).part == WHOLE;
        demand(by_holders() ? whole : covers(results), "what it packs is not the gradient");
        demand(covers(own), "its own segments are not those of all parts");
        own_ = own;
        make(results);
        for (const i64 segment : unused) demand(is_made(segment), "it does not make what it never uses");
    }

    void begin(Kind kind, Carries carries, i64 format) {
        demand(packed_ && is_one_of(kind, ANNOUNCE) && is_format(format), "a phase is none");
        const Carries right = kind == ANNOUNCE ? SETS : by_holders() ? ROWS : SEGMENTS;
        demand(carries == right && (kind == ANNOUNCE) <= by_holders(), "a phase carries what it can't");
        demand(carries != ROWS || split_, "rows move before the ranks agree");
        begun_ = true;
        carries_ = carries;
        counted_ = carries != ROWS && format != FORMAT_DENSE;
    }

    void send(i64 peer, Numbers segments, Announced announced) {
        message(peer, segments, announced);
        for (const i64 segment : segments) {
            demand(is_made(segment), "it sends what it does not have");
            sent_.push_back(segment);
        }
    }

    void receive(i64 peer, Numbers segments, Announced announced) {
        message(peer, segments, announced);
        received_.insert(received_.end(), segments.begin(), segments.end());
    }

    void exchange(i64 step, Numbers spent) {
        demand(begun_ && step > 0, "an exchange is none");
        make({received_.data(), received_.size()});
        spend(spent, {sent_.data(), sent_.size()});
        sent_.clear();
        received_.clear();
    }

    void merge(i64 result, Numbers segments, Numbers spent) {
        demand(begun_ && carries_ != SETS && segments.n != 0, "a merge is none");
        for (const i64 segment : segments) derive(result, segment);
        if (carries_ == ROWS && problem_ == nullptr) {
            demand(is_marked(result), "it merges rows whose slots nobody finds");
            for (const i64 segment : segments)
                demand(is_marked(segment), "it merges rows whose slots nobody finds");
        }
        make({&result, 1});
        spend(spent, segments);
    }

    void fill(i64 result, i64 segment, i64 format, Numbers spent) {
        demand(format == FORMAT_DENSE || (format >= FORMAT_BLOCK && format <= LAST_FORMAT),
               "a format fills nothing");
        sparsify(result, segment, spent);
    }

    void sparsify(i64 result, i64 segment, Numbers spent) {
        demand(begun_ && !by_holders(), "it changes rows");
        derive(result, segment);
        make({&result, 1});
        spend(spent, {&segment, 1});
    }

    void agree(Numbers sets, Numbers peers) {
        demand(begun_ && carries_ == SETS && !agreed_ && is_idle(), "the ranks agree at another time");
        demand(sets.n == static_cast<u64>(of_.size), "index sets are not those of all ranks");
        for (const i64 set : sets) demand(is_made(set) && spec(set).part == WHOLE, "an index set is none");
        for (const i64 peer : peers) demand(is_peer(peer), "a peer is none");
        agreed_ = true;
    }

    void split(Numbers results, i64 segment) {
        demand(agreed_ && !split_, "it cuts its gradient at another time");
        demand(covers(results) && is_made(segment), "it cuts something else than its gradient");
        if (problem_ != nullptr) return;
        for (const i64 row : results) demand(cut(row).rank == of_.rank, "its rows are not its own");
        make(results);
        split_ = true;
    }

    void finish(Numbers complete) {
        demand(begun_ && is_idle() && !finished_ && (split_ || !by_holders()), "it ends at another time");
        demand(covers(complete), "its result is not of all parts");
        for (const i64 segment : complete) demand(is_made(segment), "its result is not there");
        for (const i64 segment : own_) demand(state(segment) != UNMADE, "its own segments are not there");
        if (problem_ != nullptr) return;
        u64 marked = 0;
        for (i64 i = 0; i < of_.number_of_segments; ++i) marked += of_.segments[i].in_result != NOT_IN_RESULT;
        for (const i64 segment : complete) {
            demand(spec(segment).in_result != NOT_IN_RESULT, "its result is another one");
            demand(!by_holders() || cut(segment).rank == spec(segment).part,
                   "its result is not that of the owners");
        }
        demand(marked == complete.n, "its result is another one");
        finished_ = true;
    }

private:
    enum State : u8 { UNMADE, MADE, SPENT };
    static constexpr i64 MOST_RANKS = 1 << 20;

    void demand(bool right, const char* problem) {
        if (!right && problem_ == nullptr) problem_ = problem;
    }

    static bool below(i64 number, i64 end) { return 0 <= number && number < end; }
    static bool is_one_of(i64 number, i64 last) { return below(number, last + 1); }
    static bool is_format(i64 format) { return is_one_of(format, FORMAT_AUTO); }

    bool by_holders() const { return of_.number_of_cuts != 0; }
    bool is_idle() const { return sent_.empty() && received_.empty(); }
    bool is_peer(i64 peer) const { return below(peer, of_.size) && peer != of_.rank; }
    bool exists(i64 segment) const { return below(segment, of_.number_of_segments); }
    bool is_made(i64 segment) const { return exists(segment) && state(segment) == MADE; }
    State state(i64 segment) const { return exists(segment) ? states_[static_cast<u64>(segment)] : UNMADE; }
    const SegmentSpec& spec(i64 segment) const { return of_.segments[segment]; }
    const SlotCut& cut(i64 segment) const { return of_.cuts[spec(segment).cut]; }
    bool is_marked(i64 segment) const { return cut(segment).marked != 0; }

    bool is_cut(i64 number) const {
        const SlotCut& cut = of_.cuts[number];
        const bool is_first = number == 0 || of_.cuts[number - 1].rank >= 0;
        if (cut.first < 0 || cut.first > of_.number_of_pieces) return false;
        if (of_.parts != of_.size || !below(cut.part, of_.parts) || !is_one_of(cut.marked, 1)) return false;
        if (cut.rank >= 0) return cut.rank < of_.size && is_first && cut.number == 0 && is_only(number);
        if (cut.rank != -1 || cut.marked == 0 || cut.number < 1) return false;
        if (cut.number > of_.number_of_pieces - cut.first) return false;
        for (i64 i = cut.first; i < cut.first + cut.number; ++i) {
            if (!below(of_.pieces[i], number)) return false;
            const SlotCut& piece = of_.cuts[of_.pieces[i]];
            if (piece.rank < 0 || piece.marked == 0 || piece.part != cut.part) return false;
        }
        return true;
    }

    // Whether no cut before it is of the same rank and part.
    bool is_only(i64 number) const {
        for (i64 i = 0; i < number; ++i)
            if (of_.cuts[i].rank == of_.cuts[number].rank && of_.cuts[i].part == of_.cuts[number].part)
                return false;
        return true;
    }

    bool is_segment(const SegmentSpec& spec) const {
        if (!is_format(spec.asked) || !is_one_of(spec.in_result, SUM_FOR_RESULT)) return false;
        if (spec.ranks < 1 || spec.ranks > of_.size || spec.spread < 1 || spec.spread > FULL) return false;
        if (spec.cut == NO_CUT) return by_holders() ? spec.part == WHOLE : below(spec.part, of_.parts);
        return below(spec.cut, of_.number_of_cuts) && of_.cuts[spec.cut].part == spec.part;
    }

    // Whether they are segments of all parts, in order.
    bool covers(Numbers segments) const {
        if (segments.n != static_cast<u64>(of_.parts)) return false;
        for (u64 part = 0; part < segments.n; ++part)
            if (!exists(segments.first[part]) || spec(segments.first[part]).part != static_cast<i64>(part))
                return false;
        return true;
    }

    void message(i64 peer, Numbers segments, Announced announced) {
        demand(begun_ && is_peer(peer) && segments.n != 0, "a message is none");
        demand(is_one_of(announced, ANNOUNCED), "a message is none");
        demand(carries_ == ROWS ? announced == UNANNOUNCED : announced == ANNOUNCED || !counted_,
               "nobody knows the counts of a message");
        for (const i64 segment : segments)
            demand(exists(segment) && (spec(segment).part == WHOLE) == (carries_ == SETS),
                   "a message has what it can't");
    }

    void make(Numbers segments) {
        for (const i64 segment : segments) {
            demand(exists(segment) && state(segment) == UNMADE, "it makes a segment twice");
            if (problem_ == nullptr) states_[static_cast<u64>(segment)] = MADE;
        }
    }

    void derive(i64 result, i64 segment) {
        demand(exists(result) && is_made(segment), "it uses what it does not have");
        if (problem_ == nullptr)
            demand(spec(result).part == spec(segment).part && spec(result).part != WHOLE, "it mixes parts");
    }

    void spend(Numbers segments, Numbers used) {
        for (const i64 segment : segments) {
            bool found = false;
            for (const i64 each : used) found |= each == segment;
            demand(found && is_made(segment), "it spends what it does not use");
            if (problem_ == nullptr) states_[static_cast<u64>(segment)] = SPENT;
        }
    }

    const Program& of_;
    std::vector<State> states_;
    std::vector<i64> sent_, received_;
    Numbers own_ = {};
    Carries carries_ = SEGMENTS;
    bool counted_ = false;
    bool packed_ = false, begun_ = false, agreed_ = false, split_ = false, finished_ = false;
    const char* problem_ = nullptr;
};

}  // namespace zenc
