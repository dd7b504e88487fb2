// Sums of single values where the union is marked and ranked: each warp knows where its sums go, and waits
// for nobody. A lane has 32 slots, and adds up what is there, piece after piece: work follows the occupied
// slots.
#pragma once

#include "zenc_cuda/merge.h"
#include "zenc_cuda/shared_memory.h"

namespace zenc {

// Of a warp: 32 sums a lane, as [bit][lane], which no two lanes share a bank of; and values of pieces, as far
// as there is room, that come all at once.
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

    // This lane's slots of a piece.
    ZENC_DEVICE u32 half(const Segment& piece) const {
        const u64 number = WARP * window_ + lane();
        return number < 2 * words_of(piece.slots) ? reinterpret_cast<const u32*>(piece.bitmap)[number] : 0;
    }

    // Those of a piece from this window on.
    ZENC_DEVICE const T* values_of_piece(u64 k) const {
        if (k >= pieces_.number) return nullptr;
        const Segment& piece = pieces_.pieces[k];
        return static_cast<const T*>(piece.values) + Slots(piece).below(WARP / 2 * window_);
    }

    // The pieces from number `first` on: their words, their values, their sums.
    ZENC_DEVICE void add_pieces(u64 first) {
        u32 bits[TOGETHER], places[TOGETHER], used = 0;
        __syncwarp();
#pragma unroll
        for (u32 k = 0; k < TOGETHER; ++k)
            bits[k] = first + k < pieces_.number ? half(pieces_.pieces[first + k]) : 0;
        const T* const values = values_of_piece(first + lane());
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

// targets[i].values = the sums of their pieces, as far as there is room for targets[i].count of them. Bitmaps
// and ranks are there.
template <class T>
ZENC_DEVICE void sum_values(const Segment* targets, i64 n, const Pieces* of, const Segment* pieces,
                            i64 dtype) {
    ZENC_SHARED(u64, memory, WARPS * (LaneSums<T>::BYTES / sizeof(u64)));
    u64* const mine = memory + threadIdx.x / WARP * (LaneSums<T>::BYTES / sizeof(u64));
    for_each_segment(n, [&](u64 i) {
        const Segment& target = targets[i];
        const PiecesOf<T> summed{pieces + of[i].first, of[i].number, 1, Arithmetic<T>(dtype)};
        const u64 halves = 2 * words_of(target.slots);
        for (u64 window = warp_of_row(); window * WARP < halves; window += warps_of_row()) {
            const u64 number = window * WARP + lane();
            const u32 bits = number < halves ? reinterpret_cast<const u32*>(target.bitmap)[number] : 0;
            const u64 first = Slots(target).below(WARP / 2 * window);
            if (target.values == nullptr || first >= target.count) continue;
            LaneSums<T>(summed, mine, window)
                .store(bits, static_cast<T*>(target.values) + first, target.count - first);
        }
    });
}

}  // namespace zenc
