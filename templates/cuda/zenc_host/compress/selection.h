// Selections on a GPU: what a rank contributes of a tensor, or an owner of a sum.
//
// Selection chosen({kernels, stream, dtype, error, size}, units, width, parts, work, nullptr);
// chosen.add(...);                       what there is, to be in `left`
// chosen.accumulate(parts, n);           which it is from here on; or chosen.look_at(values)
// chosen.take_top(parts, n, true, nullptr, gradient);
#pragma once

#include <cmath>
#include <list>
#include <vector>

#include "zenc/compress/search.h"
#include "zenc_host/compress/launches.h"

namespace zenc {

static const Kernel ACCUMULATE("zenc_accumulate", Typed::YES);
static const Kernel ROW_MAGNITUDES("zenc_row_magnitudes", Typed::YES);
static const Kernel FIND_DIGIT("zenc_find_digit");
static const Kernel RAISE_GREATEST("zenc_raise_greatest", Typed::YES);
static const Kernel GUESS_LEAST("zenc_guess_least", Typed::YES);
static const Kernel DRAW_SAMPLE("zenc_draw_sample", Typed::YES);
static const Kernel USE_THRESHOLD("zenc_use_threshold");
static const Kernel HALVE_RANGE("zenc_halve_range");
static const Kernel TAKE("zenc_take", Typed::YES);
static const Kernel TAKE_OF_BLOCKS("zenc_take_of_blocks", Typed::YES);
static const Kernel FORGET_MARKED("zenc_forget_marked");
static const Kernel TAKE_MARKED("zenc_take_marked", Typed::YES);

// Device memory of a selection, laid out: what is fetched, what is cleared, and the list.
struct SelectionWork {
    u64* greatest;     // magnitude of what was accumulated
    u64* most;         // the greatest that an earlier selection has left
    u64* known;        // magnitude of a threshold that later calls use again
    u64* number;       // of values that are taken and not 0
    double* gradient;  // [blocks] squares of it
    double* sums;      // [blocks] squares of what is accumulated
    double* left;      // [blocks] squares of what is left
    Search* searches;  // [parts]
    SearchCounters* counters;
    u64* counts;
    u64* list;

    static constexpr u64 BLOCKS = 512;  // and one a part

    static u64 blocks(u64 parts) { return BLOCKS + parts; }

    static u64 cleared(u64 parts) {
        return 4 * sizeof(u64) + 3 * blocks(parts) * sizeof(double) +
               parts * (sizeof(Search) + sizeof(SearchCounters) + BINS * sizeof(u64));
    }

    // The bytes of it all. The list of a part begins where the shares of all units before it end.
    static u64 bytes(u64 units, u64 parts) {
        return cleared(parts) + (units / LISTED_SHARE + 1) * sizeof(u64);
    }

    SelectionWork(void* work, u64 parts) {
        greatest = static_cast<u64*>(work);
        most = greatest + 1;
        known = most + 1;
        number = known + 1;
        gradient = reinterpret_cast<double*>(number + 1);
        sums = gradient + blocks(parts);
        left = sums + blocks(parts);
        searches = reinterpret_cast<Search*>(left + blocks(parts));
        counters = reinterpret_cast<SearchCounters*>(searches + parts);
        counts = reinterpret_cast<u64*>(counters + parts);
        list = counts + parts * BINS;
    }
};

// The findings of a selection.
struct Selected {
    double squares;  // of the gradient
    double left;     // the squares of what is left
    u64 greatest;    // magnitude of what there was to contribute
    u64 known;       // magnitude of a threshold that later calls use again
    u64 number;      // of values that are taken and not 0
};

// A search that takes whatever reaches a magnitude, and lists it on the way.
inline Search threshold_at(u64 magnitude, u64 units) {
    return {0, units, 0, 0, magnitude, EVERY_UNIT, 0, 0, magnitude == 0 ? NONE_LISTED : magnitude, 0};
}

// A search for the k greatest of some units. Of a sample, enough are to be listed that these are seldom fewer
// than k: four standard deviations more, if there is room.
inline Search search_for(u64 first, u64 units, u64 k) {
    const double expected = static_cast<double>(k) * SAMPLED / static_cast<double>(units);
    const auto of_sample = static_cast<u64>(expected + 4 * std::sqrt(expected) + 4);
    const bool guesses = units >= SAMPLED && units <= 0xffffffff && of_sample * LISTED_SHARE < SAMPLED;
    return {first, units, k, 0, 0, 0, 1, 0, NONE_LISTED, guesses ? of_sample : 0};
}

// Searches in `parts`: n times first, units and k.
inline std::vector<Search> searches_of(const i64* parts, i64 n) {
    std::vector<Search> searches;
    for (i64 i = 0; i < n; ++i, parts += 3)
        searches.push_back(
            search_for(static_cast<u64>(parts[0]), static_cast<u64>(parts[1]), static_cast<u64>(parts[2])));
    return searches;
}

// Selections of one tensor, one after another. Where there are several they have `marks` [units], which they
// mark units in, and take_marked moves these; their gradients are null.
class Selection {
public:
    Selection(const Launches& launches, u64 units, u64 width, u64 parts, void* work, u8* marks)
        : launches_(launches),
          units_(units),
          width_(width),
          parts_(parts),
          work_(work, parts),
          marks_(marks) {
        launches_.clear(work, SelectionWork::cleared(parts));
        launches_.clear(marks, marks == nullptr ? 0 : units);
    }

    // Says what is to be accumulated: left = residual + gradient [units, width]; with momentum m, residual +
    // velocity_out. Taken units of one value set their `bits` [units], unless that is null; then the gradient
    // is undefined where no bit is set.
    void add(const void* gradient, const float* residual, float* left, const float* velocity, float m,
             float* velocity_out, u64* bits) {
        left_ = left;
        velocity_ = velocity_out;
        keys_ = left;
        bits_ = bits;
        launches_.clear(bits, bits == nullptr ? 0 : 8 * ceil_divide(units_, 64));
        adding_ = {gradient, residual, left, velocity, velocity_out, bits_of(m), nullptr, clears_};
    }

    // Accumulates it. Where there are `parts`, of units of one value that need no order, the units that
    // searches for the greatest of them may take are listed on the way.
    void accumulate(const i64* parts, i64 n) { accumulate_for(searches_of(parts, n)); }

    // Accumulates; what reaches a magnitude is listed, or taken at once into `gradient`, the one that is
    // added.
    void accumulate_from(u64 magnitude, void* gradient) {
        adding_.taken = gradient;
        accumulate_for({threshold_at(magnitude, units_)});
    }

    // accumulate_from with the exact threshold of a sample, which as large a share of the sample reaches as
    // `k` is of all units.
    void accumulate_sampled(u64 k, u64 drawn, u64 key, float* sample, void* gradient) {
        draw(launches_.dtype, adding_, k, drawn, key, sample);
        adding_.taken = gradient;
        list(launches_.dtype, adding_, {threshold_at(0, units_)}, work_.greatest);
    }

    // Has selections go by the magnitudes of these values [units, width], which are written to `magnitudes`:
    // for rows that were accumulated, or for values that need no float32 of their own.
    void look_at(const void* values, i64 dtype, float* magnitudes) {
        magnitudes_ = magnitudes;
        launches_.launch_of(dtype, ROW_MAGNITUDES, launches_.blocks_for(32 * units_), 1, values,
                            static_cast<i64>(units_), static_cast<i64>(width_), magnitudes);
        keys_ = magnitudes;
    }

    // Takes the greatest of each part. `begun`: accumulate has listed what may be taken. `order`: the units
    // of all parts, one part after another; null for 0, 1, 2 ...
    void take_top(const i64* parts, i64 n, bool begun, const i64* order, void* gradient) {
        const std::vector<Search> searches = searches_of(parts, n);
        forget_marked();
        order_ = order;
        if (!begun) begin(searches);
        if (!begun) list(DTYPE_F32, keys(), searches, nullptr);
        u64 digits = 0;
        for (const Search& search : searches)
            digits = search_digits(search.units) > digits ? search_digits(search.units) : digits;
        find_digits(selecting(), digits);
        take_known(gradient);
        order_ = nullptr;
    }

    // Takes everything, but for what rounding loses; velocities go on.
    void take_all(void* gradient) {
        clears_ = false;
        take_from(0, gradient);
    }

    // Takes all units that reach a magnitude.
    void take_from(u64 magnitude, void* gradient) {
        forget_marked();
        begin({threshold_at(magnitude, units_)});
        take_known(gradient);
    }

    // Takes the units that reach the exact threshold of a sample, at the same share.
    void take_sampled(u64 k, u64 drawn, u64 key, float* sample, void* gradient) {
        forget_marked();
        draw(DTYPE_F32, keys(), k, drawn, key, sample);
        take_known(gradient);
    }

    // Takes the units that reach a threshold, found by halving a range from the exact one up, that at least k
    // units reach; after accumulate.
    void take_bisected(u64 k, i64 steps, void* gradient) {
        forget_marked();
        begin({search_for(0, units_, k)});
        list(DTYPE_F32, keys(), {search_for(0, units_, k)}, nullptr);
        find_digits(selecting(), MAGNITUDE_DIGITS);
        u64* const greatest = marks_ == nullptr ? work_.greatest : work_.most;
        if (marks_ != nullptr) {
            launches_.clear(greatest, sizeof(u64));
            launches_.launch_of(DTYPE_F32, RAISE_GREATEST, blocks(units_, 1), 1, keys_,
                                static_cast<i64>(units_), greatest);
        }
        launches_.launch(HALVE_RANGE, 1, 1, work_.searches, greatest, steps);
        take_known(gradient);
    }

    // Takes each unit with a probability of chance / 2^31.
    void take_random(u64 key, u64 chance, void* gradient) {
        forget_marked();
        begin({threshold_at(MAGNITUDE + 1ULL, units_)});
        take_known(gradient, {key, MAGNITUDE + 1ULL - chance});
    }

    void take_of_blocks(u64 block, u64 k, void* gradient) {
        forget_marked();
        launches_.launch(TAKE_OF_BLOCKS, blocks(32 * ceil_divide(units_, block), 1), 1, selecting(), moving(),
                         static_cast<i64>(units_), static_cast<i64>(block), static_cast<i64>(k), gradient);
    }

    // Takes what finished searches take, among them one that accumulate has begun with.
    void take_known(void* gradient, const Drawing& drawn = {0, MAGNITUDE + 1ULL}) {
        const u64 rows = rows_of_parts();
        launches_.launch(TAKE, blocks(units_ * width_, rows), rows, selecting(), moving(), drawn, gradient);
    }

    void take_listed(void* gradient) { take_known(gradient); }

    // Lets the velocities of taken units go on.
    void keep_velocities() { clears_ = false; }

    // Reports the threshold of the last search.
    void keep_threshold() { launches_.copy(work_.known, &work_.searches->magnitude, sizeof(u64)); }

    void take_marked(void* gradient) {
        launches_.launch(TAKE_MARKED, blocks(units_ * width_, 1), 1, marks_, moving(),
                         static_cast<i64>(units_), gradient);
    }

    // Waits for the whole selection, up to `deadline` microseconds. Returns whether nothing has failed.
    bool fetch(i64 deadline, Selected& selected) {
        const u64 blocks = SelectionWork::blocks(parts_);
        found_.resize(4 + 3 * blocks);
        launches_.fetch(found_.data(), work_.greatest, found_.size() * sizeof(u64), deadline);
        selected = {0, 0, found_[0], found_[2], found_[3]};
        const auto* const sums = reinterpret_cast<const double*>(found_.data() + 4);
        for (u64 block = 0; block < blocks; ++block) {
            selected.squares += sums[block];
            if (bits_ != nullptr || adding_.taken != nullptr) selected.left += sums[blocks + block];
            selected.left += sums[2 * blocks + block];
        }
        return launches_.ok();
    }

private:
    void accumulate_for(const std::vector<Search>& searches) {
        if (!searches.empty()) begin(searches);
        list(launches_.dtype, adding_, searches, work_.greatest);
    }

    u64 rows_of_parts() const { return std::max<u64>(rows_for(parts_), 1); }

    // The blocks of each row of the grid, for n threads in all rows.
    static u64 blocks(u64 n, u64 rows) {
        return blocks_up_to(std::max<u64>(SelectionWork::BLOCKS / rows, 1), ceil_divide(n, rows));
    }

    // Zeroes the magnitudes of units that an earlier selection has taken.
    void forget_marked() {
        if (marks_ != nullptr && marked_)
            launches_.launch(FORGET_MARKED, blocks(units_, 1), 1, marks_, static_cast<i64>(units_),
                             magnitudes_);
        marked_ = true;
    }

    void begin(const std::vector<Search>& searches) {
        uploaded_.push_back(searches);
        launches_.copy_in(work_.searches, uploaded_.back().data(), searches.size() * sizeof(Search));
        launches_.clear(work_.counters, parts_ * sizeof(SearchCounters));
        searched_ = searches.size();
    }

    Selecting selecting() const {
        return {work_.searches, work_.counters, searched_, order_, keys_, marks_, work_.counts, work_.list};
    }

    Moving moving() const {
        return {width_, left_, clears_ ? velocity_ : nullptr, work_.left, work_.number, bits_};
    }

    Adding keys() const { return {keys_, nullptr, nullptr, nullptr, nullptr, 0, nullptr, 0}; }

    void find_digits(const Selecting& by, u64 end) {
        const u64 rows = rows_of_parts();
        for (u64 step = 0; step < end; ++step)
            launches_.launch(FIND_DIGIT, blocks(units_, rows), rows, by, static_cast<i64>(step));
    }

    // Accumulates, and lists the units that `searches`, which have begun, may take.
    void list(i64 dtype, const Adding& adding, const std::vector<Search>& searches, u64* greatest) {
        bool guesses = false, lists = greatest != nullptr;
        for (const Search& search : searches) guesses |= search.of_sample != 0;
        const Selecting by = searches.empty() ? Selecting{} : selecting();
        const u64 rows = searches.empty() ? 1 : rows_of_parts();
        if (guesses) launches_.launch_of(dtype, GUESS_LEAST, 1, rows, adding, by);
        if (guesses || lists)
            launches_.launch_of(dtype, ACCUMULATE, blocks(units_ * width_, rows), rows, adding,
                                static_cast<i64>(units_ * width_), greatest, work_.gradient, work_.sums, by);
    }

    // Begins with a finished search, for what reaches the threshold of a sample.
    void draw(i64 dtype, const Adding& of, u64 k, u64 drawn, u64 key, float* sample) {
        const u64 share = static_cast<u64>(static_cast<unsigned __int128>(k) * drawn / units_);
        begin({Search{0, drawn, share == 0 ? 1 : share, 0, 0, 0, 1, 0, NONE_LISTED, 0}});
        launches_.launch_of(dtype, DRAW_SAMPLE, launches_.blocks_for(drawn), 1, of, static_cast<i64>(units_),
                            static_cast<i64>(drawn), static_cast<i64>(key), sample);
        Selecting of_sample = selecting();
        of_sample.keys = sample;
        of_sample.parts = 1;
        find_digits(of_sample, MAGNITUDE_DIGITS);
        launches_.launch(USE_THRESHOLD, 1, 1, work_.searches, static_cast<i64>(units_));
    }

    Launches launches_;
    const u64 units_, width_, parts_;
    const SelectionWork work_;
    const i64* order_ = nullptr;
    u8* const marks_;
    Adding adding_ = {};
    u64* bits_ = nullptr;
    float* left_ = nullptr;
    float* velocity_ = nullptr;
    bool clears_ = true;  // velocities of what is taken
    const float* keys_ = nullptr;
    float* magnitudes_ = nullptr;
    bool marked_ = false;
    u64 searched_ = 0;
    std::list<std::vector<Search>> uploaded_;  // until the stream is drained, and so is
    std::vector<u64> found_;
};

}  // namespace zenc
