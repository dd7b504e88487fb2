// Pinned host memory through which small things cross to the device. It belongs to a communicator: calls use
// it one after another.
#pragma once

#include <cstring>
#include <vector>

#include "zenc_host/driver/failure.h"

namespace zenc {

class Staging {
public:
    Staging() = default;
    Staging(const Staging&) = delete;
    Staging& operator=(const Staging&) = delete;

    ~Staging() {
        for (const Chunk& chunk : chunks_) api.cuMemFreeHost(chunk.memory);
    }

    // Takes some memory before there are calls. To ask for pinned memory may wait for all that runs on the
    // device, and so, in a call, for messages of other groups that wait for this rank.
    CUresult prepare() { return add(STAGING_BYTES); }

    // Makes memory free again. The device must have passed what was copied from it.
    void reset() { go_to(0); }

    // Keeps what was taken as it is, for good: a captured call reads it with every replay.
    void keep() {
        for (u64 i = 0; i < chunks_.size() && i <= chunk_; ++i)
            chunks_[i].kept = i < chunk_ ? chunks_[i].bytes : used_;
        reset();
    }

    // Whether there is room for some bytes, without asking CUDA for more.
    bool has(u64 bytes) const {
        u64 used = used_;
        for (u64 i = chunk_; i < chunks_.size(); used = ++i < chunks_.size() ? chunks_[i].kept : 0)
            if (bytes + ALIGNMENT <= chunks_[i].bytes - used) return true;
        return false;
    }

    // Room for some bytes until the next reset, aligned to 16; null after a failure.
    void* take(Call& call, u64 bytes) {
        bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        for (; chunk_ < chunks_.size(); go_to(chunk_ + 1)) {
            if (chunks_[chunk_].bytes - used_ < bytes) continue;
            u8* const found = chunks_[chunk_].memory + used_;
            used_ += bytes;
            return found;
        }
        return grow(call, bytes) ? take(call, bytes) : nullptr;
    }

private:
    static constexpr u64 ALIGNMENT = 16;

    struct Chunk {
        u8* memory;
        u64 bytes;
        u64 kept;  // of them, from the first one on
    };

    void go_to(u64 chunk) {
        chunk_ = chunk;
        used_ = chunk < chunks_.size() ? chunks_[chunk].kept : 0;
    }

    bool grow(Call& call, u64 bytes) {
        return check(call, add(bytes < STAGING_BYTES ? STAGING_BYTES : bytes), "cuMemHostAlloc");
    }

    CUresult add(u64 bytes) {
        void* memory = nullptr;
        const CUresult result = api.cuMemHostAlloc(&memory, bytes, 0);
        if (result == CUDA_SUCCESS) chunks_.push_back({static_cast<u8*>(memory), bytes, 0});
        return result;
    }

    std::vector<Chunk> chunks_;
    u64 chunk_ = 0;
    u64 used_ = 0;
};

}  // namespace zenc
