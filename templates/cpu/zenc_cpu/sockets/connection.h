// One end of a TCP connection: frames that go out, and those that come in.
//
//     stream = (Frame bytes)*
#pragma once

#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>

#include "zenc/config.h"

namespace zenc {

struct Frame {
    u32 mark, tag;
    u64 bytes;
};

static_assert(sizeof(Frame) == 16, "no gaps");

constexpr u32 FRAME_MARK = 0x466e657a;  // "zenF"

// The sending half. All but the counts is for who holds `lock`.
class Outgoing {
public:
    std::mutex lock;
    std::atomic<u64> asked{0}, sent{0};  // messages
    std::atomic<bool> broken{false};     // nothing can be sent any more

    bool empty() const { return queue_.empty(); }

    void add(u32 tag, const u8* body, u64 bytes) {
        queue_.push_back({{FRAME_MARK, tag, bytes}, body, 0});
        ++asked;
    }

    // Sends what the connection takes now.
    void write(int file) {
        while (!queue_.empty() && !broken) {
            Message& next = queue_.front();
            const ssize_t count = send_rest(file, next);
            if (count < 0 && errno == EINTR) continue;
            if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
            if (count < 0) return give_up();
            next.done += static_cast<u64>(count);
            if (next.done < sizeof(Frame) + next.frame.bytes) return;
            queue_.pop_front();
            ++sent;
        }
    }

    void give_up() {
        broken = true;
        queue_.clear();
    }

private:
    struct Message {
        Frame frame;
        const u8* body;
        u64 done;  // of the frame and the body
    };

    static ssize_t send_rest(int file, Message& of) {
        const u64 head = std::min<u64>(of.done, sizeof(Frame)), body = of.done - head;
        iovec parts[2] = {{reinterpret_cast<u8*>(&of.frame) + head, sizeof(Frame) - head},
                          {const_cast<u8*>(of.body) + body, of.frame.bytes - body}};
        msghdr message{};
        message.msg_iov = parts;
        message.msg_iovlen = 2;
        return sendmsg(file, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    }

    std::deque<Message> queue_;
};

// DAMAGED: what comes is no stream of frames, or there is no room for one.
enum class Stream { OPEN, ENDED, DAMAGED };

// The receiving half, for one thread at a time.
class Incoming {
public:
    // The message that comes: its tag, the bytes of it that are there, and those that are not.
    struct Progress {
        u32 tag;
        u64 got, left;
    };
    Progress progress() const {
        return within_ ? Progress{frame_.tag, got_, frame_.bytes - got_} : Progress{0, 0, 0};
    }

    static constexpr u64 STAGED = 1 << 16;

    // Reads what is there, as long as there is to be `more()`. `room(bytes)` is where a message goes, or
    // null, and `came(tag)` tells that the last one is whole.
    template <class More, class Room, class Came>
    Stream read(int file, More more, Room room, Came came) {
        if (!staged_) staged_.reset(new u8[STAGED]);
        for (int turn = 0; turn < READS && more(); ++turn) {
            const bool straight = within_ && first_ == end_ && frame_.bytes - got_ >= STAGED / 4;
            u8* const to = straight ? body_ + got_ : staged_.get() + end_;
            const u64 most = straight ? frame_.bytes - got_ : STAGED - end_;
            const ssize_t count = recv(file, to, most, MSG_DONTWAIT);
            if (count < 0 && errno == EINTR) continue;
            if (count < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? Stream::OPEN : Stream::ENDED;
            if (count == 0) return Stream::ENDED;
            const u64 found = static_cast<u64>(count);
            straight ? got_ += found : end_ += found;
            if (!take(room, came)) return Stream::DAMAGED;
            if (found < most) break;
        }
        return Stream::OPEN;
    }

    // Reads what is there for nobody.
    Stream drop(int file) {
        u8 nothing[1 << 14];
        ssize_t count = 1;
        for (int turn = 0; turn < READS && count > 0; ++turn)
            count = recv(file, nothing, sizeof nothing, MSG_DONTWAIT);
        const bool open = count > 0 || (count < 0 && (errno == EAGAIN || errno == EINTR));
        return open ? Stream::OPEN : Stream::ENDED;
    }

private:
    static constexpr int READS = 16;

    // Looks at what was staged. False: it is no stream of frames, or there is no room for one.
    template <class Room, class Came>
    bool take(Room room, Came came) {
        for (;;) {
            if (within_) {
                const u64 count = std::min(end_ - first_, frame_.bytes - got_);
                std::memcpy(body_ + got_, staged_.get() + first_, count);
                first_ += count;
                got_ += count;
                if (got_ < frame_.bytes) break;
                within_ = false;
                came(frame_.tag);
            }
            if (end_ - first_ < sizeof(Frame)) break;
            std::memcpy(&frame_, staged_.get() + first_, sizeof(Frame));
            first_ += sizeof(Frame);
            if (frame_.mark != FRAME_MARK || !(body_ = room(frame_.bytes))) return false;
            within_ = true;
            got_ = 0;
        }
        std::memmove(staged_.get(), staged_.get() + first_, end_ - first_);
        end_ -= first_;
        first_ = 0;
        return true;
    }

    std::unique_ptr<u8[]> staged_;
    u64 first_ = 0, end_ = 0;  // of what was staged and not looked at
    Frame frame_{};
    u8* body_ = nullptr;
    u64 got_ = 0;
    bool within_ = false;
};

}  // namespace zenc
