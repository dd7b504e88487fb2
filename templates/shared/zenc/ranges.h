// Ranges: parts are ranges of the tensor, of any lengths. Units keep their order; behind all parts but the
// largest there is a gap of slots.
#pragma once

#include "zenc/bits.h"
#include "zenc/permutation.h"

namespace zenc {

// Slot = part * largest part + place in the part. The words of the table: 1, the slots of the largest part;
// [parts], the slots of each; [parts], the first unit of each, ascending.
struct Ranges {
    static constexpr bool IS_IDENTITY = true;
    static constexpr bool HAS_TABLES = true;
    static constexpr int LANES = 1;

    u64 parts;
    const u64* sizes;
    const u64* firsts;
    Divider largest;

    ZENC_HD Ranges(u64 parts_, const u64* words) : Ranges(parts_, words, Divider(*words)) {}

    // Ranges whose largest part is known.
    ZENC_HD Ranges(u64 parts_, const u64* words, const Divider& largest_)
        : parts(parts_), sizes(words + 1), firsts(sizes + parts_), largest(largest_) {}

    ZENC_HD static u64 words(u64 parts) { return 1 + 2 * parts; }

    // The last part that begins at `unit` or before it: empty ones begin where the next one does.
    ZENC_HD u64 part(u64 unit) const {
        u64 low = 0;
        for (u64 end = parts; end - low > 1;) {
            const u64 middle = (low + end) / 2;
            if (firsts[middle] <= unit)
                low = middle;
            else
                end = middle;
        }
        return low;
    }

    ZENC_HD u64 block() const { return 1; }
    ZENC_HD u64 slots_of(u64 part) const { return sizes[part]; }
    ZENC_HD u64 slot(u64 part, u64 unit) const { return part * largest.divisor + unit - firsts[part]; }
    ZENC_HD u64 unit(u64 slot) const {
        const u64 part = largest.quotient(slot);
        return firsts[part] + slot - part * largest.divisor;
    }

    ZENC_HD void slots(const u64* of, u64* slots_) const { *slots_ = slot(part(*of), *of); }
    ZENC_HD void units_at(const u64* of, u64* units_) const { *units_ = unit(*of); }
};

// Parts of equal lengths but for the last ones, as the first call has them.
ZENC_HD inline void cut_evenly(u64 units, u64 parts, u64* words) {
    words[0] = ceil_divide(units, parts);
    for (u64 part = 0; part < parts; ++part) {
        const u64 first = part * words[0] < units ? part * words[0] : units;
        words[1 + parts + part] = first;
        words[1 + part] = units - first < words[0] ? units - first : words[0];
    }
}

}  // namespace zenc
