// Sums of single values where the union is marked and ranked: each warp knows where its sums go, and waits
// for nobody. Where pieces have all of 32 slots or none, as blocks have, a warp adds up 32 at a time. Else a
// lane has 32 slots, and adds up what is there, piece after piece: work follows the occupied slots.
#pragma once

#include "zenc_cuda/merge.h"
#include "zenc_cuda/shared_memory.h"

namespace zenc {

// The slots that a segment has of a lane's half of a word, in a window of as many as lanes.
ZENC_DEVICE u32 half_of_lane(const Segment& segment, u64 window) {
    const u64 number = WARP * window + lane();
    return number < 2 * words_of(segment.slots) ? reinterpret_cast<const u32*>(segment.bitmap)[number] : 0;
}

// The values of piece k, if there is one, from a window on.
template <class T>
ZENC_DEVICE const T* values_of_piece(const PiecesOf<T>& pieces, u64 k, u64 window) {
    if (k >= pieces.number) return nullptr;
    const Segment& piece = pieces.pieces[k];
    return static_cast<const T*>(piece.values) + Slots(piece).below(WARP / 2 * window);
}

// A warp's sums, 32 a lane, laid out as [bit][lane], so that no two lanes share a bank; and values of pieces,
// as many as there is room for, which are loaded all at once.
template <class T>
class LaneSums {
public:
    static constexpr u32 SLOTS = WARP * WARP, ROOM = 480, BYTES = (SLOTS + ROOM) * sizeof(float);

    ZENC_DEVICE LaneSums(const PiecesOf<T>& pieces, void* memory, u64 window)
        : pieces_(pieces),
          window_(window),
          sums_(shared_address(memory)),
          staged_(sums_ + SLOTS * sizeof(float)) {
        __syncwarp();
        for (u32 bit = 0; bit < WARP; ++bit)
            store_shared(at(bit), -0.0F);  // what is added to it keeps its bits
#pragma unroll 1
        for (u64 first = 0; first < pieces.number; first += TOGETHER) add_pieces(first);
    }

    // The sums of the slots of this lane whose bits are set, behind those of the lanes before it; out [room].
    ZENC_DEVICE void store(u32 bits, T* out, u64 room) const {
        const u32 mine = static_cast<u32>(__popc(bits)), up_to = inclusive_in_warp(mine);
        const u32 all = __shfl_sync(ALL_LANES, up_to, WARP - 1);
        float sums[WARP];
#pragma unroll
        for (u32 bit = 0; bit < WARP; ++bit) sums[bit] = load_shared<float>(at(bit));
        __syncwarp();
        SharedAddress to = place(up_to - mine);
        bool odd = false;
#pragma unroll
        for (u32 bit = 0; bit < WARP; ++bit) {
            if ((bits >> bit & 1) == 0) continue;
            odd |= !(sums[bit] == sums[bit]);
            store_shared(to, sums[bit]);
            to += sizeof(float);
        }
        __syncwarp();
        for (u32 i = lane(); i < all && i < room; i += WARP)
            out[i] = pieces_.by.round(load_shared<float>(place(i)));
        if (__any_sync(ALL_LANES, odd)) repair(bits, up_to - mine, out, room);
    }

private:
    static constexpr u32 TOGETHER = 8;  // pieces that are loaded at once

    ZENC_DEVICE SharedAddress at(u32 bit) const { return sums_ + (bit * WARP + lane()) * 4; }
    ZENC_DEVICE SharedAddress place(u32 i) const { return sums_ + i * static_cast<u32>(sizeof(float)); }
    ZENC_DEVICE SharedAddress staged(u32 i) const { return staged_ + i * static_cast<u32>(sizeof(T)); }
    ZENC_DEVICE u64 word() const { return WARP / 2 * window_ + lane() / 2; }
    ZENC_DEVICE u32 bit_of_word(u32 bit) const { return lane() % 2 * WARP + bit; }

    ZENC_DEVICE static u32 lowest(u32 bits) { return static_cast<u32>(__ffs(static_cast<int>(bits))) - 1; }

    // The pieces from number `first` on: their words, their values, their sums.
    ZENC_DEVICE void add_pieces(u64 first) {
        u32 bits[TOGETHER], places[TOGETHER], used = 0;
        __syncwarp();
#pragma unroll
        for (u32 k = 0; k < TOGETHER; ++k)
            bits[k] = first + k < pieces_.number ? half_of_lane(pieces_.pieces[first + k], window_) : 0;
        const T* const values = values_of_piece(pieces_, first + lane(), window_);
#pragma unroll
        for (u32 k = 0; k < TOGETHER; ++k) {
            const u32 mine = static_cast<u32>(__popc(bits[k])), up_to = inclusive_in_warp(mine);
            const u32 all = __shfl_sync(ALL_LANES, up_to, WARP - 1);
            places[k] = used + up_to - mine;
            const T* const from = shuffle(values, k);
#pragma unroll 1
            for (u32 i = lane(); i < all && used + i < ROOM; i += WARP)
                copy_to_shared(staged(used + i), from + i);
            used += all;
        }
        await_copies();
        __syncwarp();
#pragma unroll
        for (u32 k = 0; k < TOGETHER; ++k) {
            u32 number = places[k], left = bits[k];
#pragma unroll 1
            for (; left != 0 && number < ROOM; left &= left - 1)
                add(lowest(left), load_shared<T>(staged(number++)));
#pragma unroll 1
            for (; left != 0; left &= left - 1)  // there was no room
                add(lowest(left), *pieces_.row(first + k, word(), bit_of_word(lowest(left))));
        }
    }

    ZENC_DEVICE void add(u32 bit, T value) {
        store_shared(at(bit), load_shared<float>(at(bit)) + pieces_.by.widen(value));
    }

    // NaN alone keeps its bits, which arithmetic does not keep: such sums are made anew. The first of this
    // lane has this number.
    ZENC_DEVICE void repair(u32 bits, u32 number, T* out, u64 room) const {
        __syncwarp();
#pragma unroll 1
        for (u32 left = bits; left != 0; left &= left - 1, ++number) {
            const float sum = load_shared<float>(place(number));
            if (!(sum == sum) && number < room)
                out[number] = sum_of_column(pieces_, word(), bit_of_word(lowest(left)), 0);
        }
    }

    const PiecesOf<T>& pieces_;
    const u64 window_;
    const SharedAddress sums_, staged_;
};

// The sums of a window of which target and pieces have all 32 slots of a lane or none; out [room]. Returns
// whether it is one, and all values are at addresses of vectors. Lane k knows piece k.
template <class T>
ZENC_DEVICE bool sum_halves(const PiecesOf<T>& pieces, u64 window, u32 bits, T* out, u64 room) {
    constexpr u32 N = 4, LANES = WARP / N;  // values of a vector, vectors of a half
    if (pieces.number > WARP || __any_sync(ALL_LANES, bits + 1 > 1)) return false;
    const T* const values = values_of_piece(pieces, lane(), window);
    if (__any_sync(ALL_LANES, !in_vectors(values, out))) return false;
    const u32 wanted = __ballot_sync(ALL_LANES, bits != 0), number = static_cast<u32>(pieces.number);
    u32 has = 0;
#pragma unroll 1
    for (u32 k = 0; k < number; ++k) {
        const u32 there = half_of_lane(pieces.pieces[k], window);
        if (__any_sync(ALL_LANES, there + 1 > 1)) return false;
        const u32 halves = __ballot_sync(ALL_LANES, there != 0);
        if (lane() == k) has = halves;
    }
#pragma unroll 1
    for (u32 half = lane() / LANES; half < WARP; half += N) {
        const u32 below = (1U << half) - 1, column = lane() % LANES * N;
        Sum<T> sums[N] = {};
        u64 added = 0;
#pragma unroll 2
        for (u32 k = 0; k < number; ++k) {
            const u32 halves = __shfl_sync(ALL_LANES, has, static_cast<int>(k));
            const T* const from = shuffle(values, k);
            if ((halves >> half & 1) == 0) continue;
            const auto loaded = Columns<T, N>::load(from + WARP * __popc(halves & below) + column);
#pragma unroll
            for (u32 c = 0; c < N; ++c) sums[c].add(pieces.by, loaded.of[c], added == 0);
            ++added;
        }
        const u64 at = WARP * static_cast<u32>(__popc(wanted & below)) + column;
        if ((wanted >> half & 1) == 0 || at >= room) continue;
        Columns<T, N> made;
#pragma unroll
        for (u32 c = 0; c < N; ++c) made.of[c] = sums[c].of(pieces.by, added);
        if (at + N <= room) {
            made.store(out + at);
            continue;
        }
#pragma unroll
        for (u32 c = 0; c < N; ++c)
            if (at + c < room) out[at + c] = made.of[c];
    }
    return true;
}

template <bool BLOCKS, class T>
ZENC_DEVICE void sum_windows(const Segment& target, const PiecesOf<T>& pieces, void* memory) {
    const u64 halves = 2 * words_of(target.slots);
    for (u64 window = warp_of_row(); window * WARP < halves; window += warps_of_row()) {
        const u32 bits = half_of_lane(target, window);
        const u64 first = Slots(target).below(WARP / 2 * window);
        if (target.values == nullptr || first >= target.count) continue;
        T* const out = static_cast<T*>(target.values) + first;
        const u64 room = target.count - first;
        if (!BLOCKS || !sum_halves(pieces, window, bits, out, room))
            LaneSums<T>(pieces, memory, window).store(bits, out, room);
    }
}

// targets[i].values = the sums of their pieces, as far as there is room for targets[i].count of them. Bitmaps
// and ranks are there. If there may be BLOCKS, windows are looked at for whole halves.
template <class T, bool BLOCKS = false>
ZENC_DEVICE void sum_values(const Segment* targets, u64 n, const Pieces* of, const Segment* pieces,
                            i64 dtype) {
    ZENC_SHARED(u64, memory, WARPS * (LaneSums<T>::BYTES / sizeof(u64)));
    u64* const mine = memory + threadIdx.x / WARP * (LaneSums<T>::BYTES / sizeof(u64));
    for_each_segment(n, [&](u64 i) {
        const PiecesOf<T> summed{pieces + of[i].first, of[i].number, 1, Arithmetic<T>(dtype)};
        sum_windows<BLOCKS>(targets[i], summed, mine);
    });
}

}  // namespace zenc
