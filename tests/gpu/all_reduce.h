// The greatest of what ranks have, for each of a few words: fetched from all streams, and given back to them.
#pragma once

#include <sched.h>

#include <cstring>
#include <vector>

#include "zenc_host/driver.h"

namespace zenc {

constexpr u64 MOST_WORDS = 64;

// A reduction that a rank has posted.
struct Reduction {
    const void* from;
    void* to;
    u64 words;
    CUstream stream;
};

// Pinned memory for all ranks. What it gives back has been taken when the same streams are fetched from
// again.
class AllReduce {
public:
    ~AllReduce() {
        if (memory_ != nullptr) api.cuMemFreeHost(memory_);
    }

    // Reduces those of all ranks, of as many words each. Waits for their streams.
    CUresult run(const std::vector<Reduction>& ranks) {
        CUresult result = prepare(ranks.size());
        std::vector<CUevent> fetched(ranks.size());
        for (u64 rank = 0; rank < ranks.size() && result == CUDA_SUCCESS; ++rank)
            result = fetch(ranks[rank], of(rank), fetched[rank]);
        for (const CUevent event : fetched) result = wait(event, result);
        if (result != CUDA_SUCCESS) return result;
        u64* const most = of(ranks.size());
        std::memset(most, 0, 8 * MOST_WORDS);
        for (u64 rank = 0; rank < ranks.size(); ++rank)
            for (u64 i = 0; i < ranks[rank].words; ++i)
                most[i] = most[i] < of(rank)[i] ? of(rank)[i] : most[i];
        for (const Reduction& rank : ranks)
            if (result == CUDA_SUCCESS)
                result = api.cuMemcpyHtoDAsync_v2(reinterpret_cast<CUdeviceptr>(rank.to), most,
                                                  8 * rank.words, rank.stream);
        return result;
    }

private:
    u64* of(u64 rank) const { return memory_ + rank * MOST_WORDS; }

    CUresult prepare(u64 ranks) {
        if (memory_ != nullptr) return CUDA_SUCCESS;
        return api.cuMemHostAlloc(reinterpret_cast<void**>(&memory_), 8 * MOST_WORDS * (ranks + 1), 0);
    }

    static CUresult fetch(const Reduction& rank, u64* to, CUevent& fetched) {
        const CUdeviceptr from = reinterpret_cast<CUdeviceptr>(rank.from);
        if (const CUresult result = api.cuMemcpyDtoHAsync_v2(to, from, 8 * rank.words, rank.stream))
            return result;
        if (const CUresult result = api.cuEventCreate(&fetched, CU_EVENT_DISABLE_TIMING)) return result;
        return api.cuEventRecord(fetched, rank.stream);
    }

    static CUresult wait(CUevent event, CUresult before) {
        if (event == nullptr) return before;
        CUresult result = before;
        while (before == CUDA_SUCCESS && (result = api.cuEventQuery(event)) == CUDA_ERROR_NOT_READY)
            sched_yield();
        api.cuEventDestroy_v2(event);
        return result;
    }

    u64* memory_ = nullptr;
};

}  // namespace zenc
