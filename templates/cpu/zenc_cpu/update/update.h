// Updates: the numbers by which one tensor differs from another, in the fewest bytes, and back without loss.
//
//     update = changed: u64, groups of up to GROUP changes, in one stream of bits, to a whole word
//     group  = how many - 1: 10 bits, lower bits of its gaps: 7, of its steps: 7, and of each change
//              the gap to the one before and the step from the old value to the new, as Rice codes
//
// A step counts the values of the dtype that lie between: weights mostly move by one or two. Up and down take
// turns in it, and 0 is no step, so it is 1 less.
#pragma once

#include <type_traits>

#include "zenc_cpu/primitives/nonzero.h"
#include "zenc_cpu/update/rice.h"

namespace zenc {

constexpr u64 GROUP = 1024;
constexpr u64 GROUP_BITS = 10;
constexpr u64 LOW_BITS = 7;
constexpr u64 GAP_BITS = 48;
constexpr i64 NO_ROOM = -1;    // the update is longer than it may be
constexpr i64 NO_UPDATE = -1;  // the bytes are no update of such a tensor

// Bits of a floating-point number as an integer that ascends with it, and back.
template <class Bits>
inline Bits ascending(Bits x) {
    using Signed = std::make_signed_t<Bits>;
    constexpr Bits MAGNITUDE = static_cast<Bits>(~SIGN<Bits>);
    return static_cast<Bits>(
        x ^ (static_cast<Bits>(static_cast<Signed>(x) >> (8 * sizeof(Bits) - 1)) & MAGNITUDE));
}

template <class Bits>
inline u64 step_between(Bits from, Bits to) {
    using Signed = std::make_signed_t<Bits>;
    const Bits by = static_cast<Bits>(ascending(to) - ascending(from));
    const Bits sign = static_cast<Bits>(static_cast<Signed>(by) >> (8 * sizeof(Bits) - 1));
    return static_cast<Bits>(static_cast<Bits>(by << 1) ^ sign) - u64{1};
}

template <class Bits>
inline Bits stepped(Bits from, u64 step) {
    const Bits turns = static_cast<Bits>(step + 1);
    const Bits by = static_cast<Bits>((turns >> 1) ^ (Bits{0} - (turns & 1)));
    return ascending(static_cast<Bits>(ascending(from) + by));
}

// Bit i: a[i] and b[i] differ; for n <= 64 numbers.
template <class Bits>
inline u64 different_word(const Bits* a, const Bits* b, u64 n) {
    Bits differences[64];
    for (u64 i = 0; i < n; ++i) differences[i] = static_cast<Bits>(a[i] ^ b[i]);
    return nonzero_word(differences, n, static_cast<Bits>(~Bits{0}));
}

class UpdateWriter {
public:
    UpdateWriter(u8* out, u64 room, u64 value_bits)
        : value_bits_(value_bits),
          start_(reinterpret_cast<u64*>(out)),
          end_(start_ + room / 8),
          stream_{start_ + 1} {}

    // Returns whether there is room.
    bool put(u64 unit, u64 step) {
        gaps_[waiting_] = unit - next_;
        steps_[waiting_] = step;
        next_ = unit + 1;
        return ++waiting_ < GROUP || put_group();
    }

    // The bytes of the update, or NO_ROOM.
    i64 finish() {
        if (end_ - start_ < 1 || (waiting_ != 0 && !put_group())) return NO_ROOM;
        stream_.finish();
        *start_ = changed_;
        return ((stream_.out - start_) + (stream_.filled != 0)) * 8;
    }

private:
    bool put_group() {
        const u64 most =
            GROUP_BITS + 2 * LOW_BITS + waiting_ * (2 * MOST_ONES + 2 + GAP_BITS + value_bits_) + 128;
        const u64 gap_bits = best_low_bits(gaps_, waiting_, GAP_BITS);
        const u64 step_bits = best_low_bits(steps_, waiting_, value_bits_);
        if (stream_.out >= end_ ||
            (static_cast<u64>(end_ - stream_.out) * 64 < most && !fits(gap_bits, step_bits)))
            return false;
        stream_.put(waiting_ - 1, GROUP_BITS);
        stream_.put(gap_bits, LOW_BITS);
        stream_.put(step_bits, LOW_BITS);
        for (u64 i = 0; i < waiting_; ++i) {
            put_rice(stream_, gaps_[i], gap_bits, GAP_BITS);
            put_rice(stream_, steps_[i], step_bits, value_bits_);
        }
        changed_ += waiting_;
        waiting_ = 0;
        return true;
    }

    bool fits(u64 gap_bits, u64 step_bits) const {
        u64 bits = stream_.filled + GROUP_BITS + 2 * LOW_BITS;
        for (u64 i = 0; i < waiting_; ++i)
            bits += rice_bits(gaps_[i], gap_bits, GAP_BITS) + rice_bits(steps_[i], step_bits, value_bits_);
        return bits <= static_cast<u64>(end_ - stream_.out) * 64;
    }

    const u64 value_bits_;
    u64* const start_;
    u64* const end_;
    BitStream stream_;
    u64 changed_ = 0, waiting_ = 0, next_ = 0;
    u64 gaps_[GROUP], steps_[GROUP];
};

// The update from `old` to `now`, both [n], in at most `room` bytes, whole words: its bytes, or NO_ROOM.
template <class Bits>
inline i64 encode_update(const Bits* old, const Bits* now, u64 n, u8* out, u64 room) {
    UpdateWriter update(out, room, 8 * sizeof(Bits));
    for (u64 first = 0; first < n; first += 64) {
        u64 word = different_word(old + first, now + first, n - first < 64 ? n - first : 64);
        for (; word != 0; word &= word - 1) {
            const u64 unit = first + lowest_bit(word);
            if (!update.put(unit, step_between(old[unit], now[unit]))) return NO_ROOM;
        }
    }
    return update.finish();
}

// visit(unit, step) for each change of the update of so many bytes, which READ_BEYOND others follow. Returns
// how many, or NO_UPDATE.
template <class Visit>
inline i64 for_each_change(const u8* update, u64 bytes, u64 n, u64 value_bits, Visit visit) {
    if (bytes < 8) return NO_UPDATE;
    u64 changed, left, next = 0;
    std::memcpy(&changed, update, sizeof changed);
    BitReader reader(update + 8);
    const u64 end = (bytes - 8) * 8;
    for (left = changed; left != 0;) {
        if (reader.position() >= end) return NO_UPDATE;
        u64 count = reader.bits(GROUP_BITS) + 1;
        const u64 gap_bits = reader.bits(LOW_BITS), step_bits = reader.bits(LOW_BITS);
        if (count > left || gap_bits >= GAP_BITS || step_bits >= value_bits) return NO_UPDATE;
        for (left -= count; count != 0; --count, ++next) {
            if (reader.position() >= end) return NO_UPDATE;
            const u64 gap = reader.rice(gap_bits, GAP_BITS);
            if (gap >= n - next) return NO_UPDATE;
            next += gap;
            visit(next, reader.rice(step_bits, value_bits));
        }
    }
    return reader.position() <= end && end - reader.position() < 64 ? static_cast<i64>(changed) : NO_UPDATE;
}

// Makes `values` [n], which are the old ones, the new ones. Returns how many changed, or NO_UPDATE, and then
// they are as they were.
template <class Bits>
inline i64 apply_update(const u8* update, u64 bytes, Bits* values, u64 n) {
    const i64 changed = for_each_change(update, bytes, n, 8 * sizeof(Bits), [](u64, u64) {});
    if (changed == NO_UPDATE) return NO_UPDATE;
    return for_each_change(update, bytes, n, 8 * sizeof(Bits),
                           [&](u64 unit, u64 step) { values[unit] = stepped(values[unit], step); });
}

// A number by which almost all other arrays of bytes differ. Against mistakes, not against enemies.
inline u64 checksum(const u8* data, u64 bytes) {
    constexpr u64 STREAMS = 8;
    u64 sums[STREAMS];
    for (u64 k = 0; k < STREAMS; ++k) sums[k] = mix(bytes + k);
    u64 first = 0;
    for (; first + 8 * STREAMS <= bytes; first += 8 * STREAMS)
        for (u64 k = 0; k < STREAMS; ++k) {
            u64 word;
            std::memcpy(&word, data + first + 8 * k, sizeof word);
            sums[k] = (sums[k] ^ word) * GOLDEN;
            sums[k] ^= sums[k] >> 32;
        }
    u64 total = 0;
    for (u64 k = 0; k < STREAMS; ++k) total = mix(total ^ sums[k]);
    for (; first < bytes; ++first) total = mix(total ^ data[first]);
    return total;
}

}  // namespace zenc
