// Device memory that a call has no more use for. All of it is used on one stream: what takes it comes after
// what left it.
#pragma once

#include <vector>

#include "zenc/config.h"

namespace zenc {

struct Room {
    u8* at = nullptr;
    u64 bytes = 0;

    bool has(const Room& other) const { return at <= other.at && other.at + other.bytes <= at + bytes; }
};

class Spare {
public:
    // Here begins what was allocated as one: it is not joined with what lies in front of it, since copies do
    // not cross such a border.
    void begin(u8* at) { borders_.push_back(at); }

    // Rooms that touch become one.
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

    // The end of the smallest room that has space for some bytes, which are aligned; null if there is none.
    // The rest stays.
    u8* take(u64 bytes, u64 alignment) {
        u64 best = rooms_.size();
        for (u64 i = 0; i < rooms_.size(); ++i)
            if (padding(rooms_[i], alignment) + bytes <= rooms_[i].bytes &&
                (best == rooms_.size() || rooms_[i].bytes < rooms_[best].bytes))
                best = i;
        if (best == rooms_.size()) return nullptr;
        const Room found = rooms_[best];
        const u64 padded = padding(found, alignment) + bytes;
        const u64 in_front = padded - bytes + (found.bytes - padded) / alignment * alignment;
        rooms_[best] = rooms_.back();
        rooms_.pop_back();
        u8* const taken = found.at + in_front;
        for (const Room& rest :
             {Room{found.at, in_front}, Room{taken + bytes, found.bytes - in_front - bytes}})
            if (rest.bytes != 0) rooms_.push_back(rest);
        return taken;
    }

private:
    static u64 padding(const Room& room, u64 alignment) {
        return (alignment - reinterpret_cast<u64>(room.at) % alignment) % alignment;
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

}  // namespace zenc
