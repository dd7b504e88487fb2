// Blocks of memory that nobody else uses, behind a line that has the size of each.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "zenc/config.h"

namespace zenc {

class Blocks {
public:
    Blocks(u8* memory, u64 size) : memory_(memory), size_(size) {}

    // Takes a block for `bytes`, and returns where it begins; -1 if there is no room.
    i64 take(u64 bytes) {
        if (bytes > size_) return -1;  // before anything is reckoned with a length that a peer has told
        const u64 size = rounded(bytes);
        const auto found = free_.lower_bound(size);
        if (found != free_.end() && found->first <= size + size / 2) {
            const u64 at = found->second.back();
            found->second.pop_back();
            if (found->second.empty()) free_.erase(found);
            return static_cast<i64>(at);
        }
        if (size + LINE > size_ - end_) return -1;
        const u64 at = end_ + LINE;
        std::memcpy(memory_ + end_, &size, sizeof size);
        end_ = at + size;
        return static_cast<i64>(at);
    }

    void give_back(u64 at) {
        u64 size;
        std::memcpy(&size, memory_ + at - LINE, sizeof size);
        if (size > MOST_KEPT) {
            const u64 first = (at + PAGE - 1) / PAGE * PAGE, end = (at + size) / PAGE * PAGE;
            madvise(memory_ + first, end - first, MADV_DONTNEED);
        }
        free_[size].push_back(at);
    }

    u8* address(u64 at) { return memory_ + at; }

private:
    static constexpr u64 LINE = 64, PAGE = 1 << 16;
    static constexpr u64 MOST_KEPT = 1 << 26;  // bytes of a block whose pages stay

    // A multiple of lines, at most an eighth more than `bytes`.
    static u64 rounded(u64 bytes) {
        u64 step = LINE;
        while (step << 4 <= bytes) step *= 2;
        return (std::max<u64>(bytes, 1) + step - 1) / step * step;
    }

    u8* const memory_;
    const u64 size_;
    u64 end_ = 0;
    std::map<u64, std::vector<u64>> free_;
};

}  // namespace zenc
