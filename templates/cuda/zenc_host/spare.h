// Device memory that a call has no more use for. All of it is used on one stream: what takes it comes after
// what left it.
#pragma once

#include <vector>

#include "zenc/config.h"

namespace zenc {

struct Room {
    u8* at = nullptr;
    u64 bytes = 0;
};

class Spare {
public:
    void give(Room room) {
        if (room.bytes != 0) rooms_.push_back(room);
    }

    // The smallest room that has space for some bytes, which are aligned; null if there is none. The rest
    // stays.
    u8* take(u64 bytes, u64 alignment) {
        Room* best = nullptr;
        for (Room& room : rooms_)
            if (padding(room, alignment) + bytes <= room.bytes &&
                (best == nullptr || room.bytes < best->bytes))
                best = &room;
        if (best == nullptr) return nullptr;
        const u64 passed = padding(*best, alignment) + bytes;
        best->at += passed;
        best->bytes -= passed;
        return best->at - bytes;
    }

private:
    static u64 padding(const Room& room, u64 alignment) {
        return (alignment - reinterpret_cast<u64>(room.at) % alignment) % alignment;
    }

    std::vector<Room> rooms_;
};

}  // namespace zenc
