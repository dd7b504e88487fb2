// Memory of a call: pinned memory of the host, and what is free again of the device's.
#pragma once

#include <vector>

#include "zenc_host/driver.h"

namespace zenc {

// A range of device memory.
struct Room {
    u8* at = nullptr;
    u64 bytes = 0;

    bool has(const Room& other) const { return at <= other.at && other.at + other.bytes <= at + bytes; }
};

// Device memory that a call no longer needs. All of it is used on one stream, by one owner after another.
class Spare {
public:
    // Marks the beginning of an allocation: memory in front of it is not joined with it, since copies do not
    // cross such a border.
    void begin(u8* at) { borders_.push_back(at); }

    // Adds a room, joined with those that it touches.
    void give(Room room) {
        if (room.bytes == 0) return;
        for (u64 i = 0; i < rooms_.size();) {
            const Room other = rooms_[i];
            if (!touch(other, room) && !touch(room, other)) {
                ++i;
                continue;
            }
            room = {other.at < room.at ? other.at : room.at, other.bytes + room.bytes};
            rooms_[i] = rooms_.back();
            rooms_.pop_back();
        }
        rooms_.push_back(room);
    }

    // Takes bytes from the end of the smallest room that has space for them, at a multiple of `alignment`;
    // null if there is none. The rest stays.
    u8* take(u64 bytes, u64 alignment) {
        u64 best = rooms_.size();
        for (u64 i = 0; i < rooms_.size(); ++i)
            if (last_place(rooms_[i], bytes, alignment) != nullptr &&
                (best == rooms_.size() || rooms_[i].bytes < rooms_[best].bytes))
                best = i;
        if (best == rooms_.size()) return nullptr;
        const Room found = rooms_[best];
        u8* const taken = last_place(found, bytes, alignment);
        rooms_[best] = rooms_.back();
        rooms_.pop_back();
        const u64 in_front = static_cast<u64>(taken - found.at);
        for (const Room& rest :
             {Room{found.at, in_front}, Room{taken + bytes, found.bytes - in_front - bytes}})
            if (rest.bytes != 0) rooms_.push_back(rest);
        return taken;
    }

private:
    static u8* last_place(const Room& room, u64 bytes, u64 alignment) {
        if (room.bytes < bytes) return nullptr;
        u8* const last = room.at + (room.bytes - bytes);
        u8* const place = last - reinterpret_cast<u64>(last) % alignment;
        return place >= room.at ? place : nullptr;
    }

    bool touch(const Room& first, const Room& second) const {
        if (first.at + first.bytes != second.at) return false;
        for (const u8* border : borders_)
            if (border == second.at) return false;
        return true;
    }

    std::vector<Room> rooms_;
    std::vector<const u8*> borders_;
};

// Pinned memory of a communicator, which its calls use one after another.
class Staging {
public:
    Staging() = default;
    Staging(const Staging&) = delete;
    Staging& operator=(const Staging&) = delete;

    ~Staging() {
        for (const Chunk& chunk : chunks_) api.cuMemFreeHost(chunk.memory);
    }

    // Takes memory before there are calls: to ask for pinned memory in a call may wait for everything on the
    // device, and so for messages of other groups that wait for this rank.
    CUresult prepare() { return add(STAGING_BYTES); }

    // Makes memory free again. The device must have passed what was copied from it.
    void reset() {
        chunk_ = kept_chunk_;
        used_ = kept_;
    }

    // Keeps what was taken for good: a captured call reads it with every replay.
    void keep() {
        kept_chunk_ = chunk_;
        kept_ = used_;
    }

    // Whether there is room for some bytes, without asking CUDA for more.
    bool has(u64 bytes) const {
        for (u64 i = chunk_; i < chunks_.size(); ++i)
            if (bytes + ALIGNMENT <= chunks_[i].bytes - (i == chunk_ ? used_ : 0)) return true;
        return false;
    }

    // Takes bytes until the next reset, aligned to 16; null after a failure.
    void* take(Call& call, u64 bytes) {
        bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        for (; chunk_ < chunks_.size(); ++chunk_, used_ = 0) {
            if (chunks_[chunk_].bytes - used_ < bytes) continue;
            used_ += bytes;
            return chunks_[chunk_].memory + used_ - bytes;
        }
        const bool grown = check(call, add(bytes < STAGING_BYTES ? STAGING_BYTES : bytes), "cuMemHostAlloc");
        return grown ? take(call, bytes) : nullptr;
    }

private:
    static constexpr u64 ALIGNMENT = 16;

    struct Chunk {
        u8* memory;
        u64 bytes;
    };

    CUresult add(u64 bytes) {
        void* memory = nullptr;
        const CUresult result = api.cuMemHostAlloc(&memory, bytes, 0);
        if (result == CUDA_SUCCESS) chunks_.push_back({static_cast<u8*>(memory), bytes});
        return result;
    }

    std::vector<Chunk> chunks_;
    u64 chunk_ = 0;
    u64 used_ = 0;  // of this chunk
    u64 kept_chunk_ = 0;
    u64 kept_ = 0;  // of that chunk, and all chunks before it
};

}  // namespace zenc
