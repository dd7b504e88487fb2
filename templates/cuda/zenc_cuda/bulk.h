// Rows that are copied through shared memory by bulk copies (cp.async.bulk), on architectures that have them:
// from sm_90 on. A row passes no register, and as much of a warp's rows is under way as it has stages
// (docs/adr/0058-bulk-copies.md).
#pragma once

#include "zenc_cuda/rows.h"
#include "zenc_cuda/shared_memory.h"

#if defined(ZENC_EMULATOR) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900)
#define ZENC_BULK 1

namespace zenc {

// What one thread asks for: an emulator has functions of the same names.

#ifndef ZENC_EMULATOR

// A barrier for one copy at a time.
ZENC_DEVICE void bulk_begin(u64* barrier) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // copies have to see it
}

// Begins a copy, which ends when the barrier is waited for. It is read once, and leaves the cache first.
ZENC_DEVICE void bulk_load(void* to, const void* from, u32 bytes, u64* barrier) {
    u64 policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(bytes)
                 : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, "
        "[%3], %4;" ::"r"(shared_address(to)),
        "l"(from), "r"(bytes), "r"(shared_address(barrier)), "l"(policy)
        : "memory");
}

// Waits for the copies of a barrier with even numbers by parity 0, with odd ones by 1, from 0 on.
ZENC_DEVICE void bulk_wait(u64* barrier, u32 parity) {
    u32 done = 0;
    while (done == 0)
        asm volatile(
            "{ .reg .pred done; mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2; "
            "selp.u32 %0, 1, 0, done; }"
            : "=r"(done)
            : "r"(shared_address(barrier)), "r"(parity)
            : "memory");
}

ZENC_DEVICE void bulk_store(void* to, const void* from, u32 bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                 "r"(shared_address(from)), "r"(bytes)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Until all stores of this thread but the last one have read what they store.
ZENC_DEVICE void bulk_wait_for_earlier_stores() {
    asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
}

// Until all stores of this thread are done.
ZENC_DEVICE void bulk_wait_for_stores() {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

#endif

constexpr u32 STAGE_BYTES = 1024;

// Each warp has STAGES stages, of which lane 0 fills one after another, and empties them in the same order:
// STAGES - 1 pieces of rows are loaded at a time, while one is stored. Of a kernel there is one such object.
template <u32 STAGES>
class InBulk {
public:
    static constexpr bool IN_BULK = true;

    ZENC_DEVICE InBulk() {
        if (lane() == 0)
            for (u32 stage = 0; stage < STAGES; ++stage) bulk_begin(barrier(stage));
        __syncwarp();
    }

    ZENC_DEVICE ~InBulk() {
        if (lane() == 0) bulk_wait_for_stores();
    }

    // As InVectors; sizes and addresses are multiples of 16.
    ZENC_DEVICE void copy(const u8* from, u32 rows, u64 row_bytes, u8* to) {
        const bool there = lane() < rows && to != nullptr, loads = there && from != nullptr;
        if (__any_sync(ALL_LANES, there && !loads)) clear_rows(rows, row_bytes, loads ? nullptr : to);
        const u32 all = __ballot_sync(ALL_LANES, loads), each = piece_bytes(row_bytes);
        Piece loaded{all, 0}, stored{all, 0};
        for (u32 ahead = 0; ahead + 2 < STAGES && loaded.rows != 0; ++ahead)
            load(loaded, from, row_bytes, each);
        while (stored.rows != 0) {
            if (loaded.rows != 0) load(loaded, from, row_bytes, each);
            store(stored, to, row_bytes, each);
        }
    }

private:
    // What comes next of the rows that are left.
    struct Piece {
        u32 rows;
        u64 at;

        ZENC_DEVICE u32 row() const { return static_cast<u32>(__ffs(static_cast<int>(rows))) - 1; }
        ZENC_DEVICE u32 bytes(u64 row_bytes, u32 each) const {
            return row_bytes - at < each ? static_cast<u32>(row_bytes - at) : each;
        }
        ZENC_DEVICE void pass(u64 row_bytes, u32 each) {
            at += each;
            if (at < row_bytes) return;
            at = 0;
            rows &= rows - 1;
        }
    };

    // Of rows of a little more than a stage, too, all pieces are about as long.
    ZENC_DEVICE static u32 piece_bytes(u64 row_bytes) {
        return static_cast<u32>(ceil_divide(row_bytes, 16 * ceil_divide(row_bytes, STAGE_BYTES))) * 16;
    }

    ZENC_DEVICE static void clear_rows(u32 rows, u64 row_bytes, u8* to) {
        for (u32 row = 0; row < rows; ++row)
            if (uint4* const target = reinterpret_cast<uint4*>(shuffle(to, row)); target != nullptr)
                for (u64 at = lane(); at < row_bytes / 16; at += WARP) target[at] = uint4{};
    }

    ZENC_DEVICE static u8* stage(u32 number) {
        ZENC_SHARED(uint4, stages, WARPS * STAGES * STAGE_BYTES / sizeof(uint4));
        return reinterpret_cast<u8*>(stages) + (threadIdx.x / WARP * STAGES + number) * STAGE_BYTES;
    }

    ZENC_DEVICE static u64* barrier(u32 stage) {
        ZENC_SHARED(u64, barriers, WARPS * STAGES);
        return barriers + threadIdx.x / WARP * STAGES + stage;
    }

    ZENC_DEVICE void load(Piece& piece, const u8* from, u64 row_bytes, u32 each) {
        const u8* const source = shuffle(from, piece.row()) + piece.at;
        const u32 into = loaded_++ % STAGES;
        if (lane() == 0) {
            bulk_wait_for_earlier_stores();
            bulk_load(stage(into), source, piece.bytes(row_bytes, each), barrier(into));
        }
        piece.pass(row_bytes, each);
    }

    ZENC_DEVICE void store(Piece& piece, u8* to, u64 row_bytes, u32 each) {
        u8* const target = shuffle(to, piece.row()) + piece.at;
        const u32 of = stored_ % STAGES;
        if (lane() == 0) {
            bulk_wait(barrier(of), stored_ / STAGES % 2);
            bulk_store(target, stage(of), piece.bytes(row_bytes, each));
        }
        ++stored_;
        piece.pass(row_bytes, each);
    }

    u32 loaded_ = 0, stored_ = 0;  // pieces of this warp
};

}  // namespace zenc

#endif
