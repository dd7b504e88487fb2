// Connections to all peers, and waits for what comes over them.
//
// Whoever waits reads what comes, for everybody: no thread stands in between. One thread pumps at a time,
// and others that wait are told. Where nobody waits and more of a message is to come or to go than what lies
// in the sockets, a helper pumps, so that the network has work while this process computes.
#pragma once

#include <signal.h>
#include <sys/epoll.h>
#include <time.h>

#include <condition_variable>
#include <thread>
#include <unordered_map>

#include "zenc_cpu/sockets/blocks.h"
#include "zenc_cpu/sockets/connection.h"

namespace zenc {

class Hub {
public:
    static constexpr i64 DONE = 1, NOT_YET = 0, CLOSED = -1, DAMAGED = -2;

    // `files` has a connection to each peer, or -1; they are its own from here on, and so is `poll` of epoll.
    Hub(u64 size, const i64* files, u8* memory, u64 bytes, int poll)
        : peers_(size), blocks_(memory, bytes), most_beside_(std::max(MOST_UNTAKEN, bytes / 8)), poll_(poll) {
        for (u64 number = 0; number < size; ++number) {
            Peer& peer = peers_[number];
            peer.file = static_cast<int>(files[number]);
            peer.closed = peer.file < 0;
            epoll_event event{0, {}};
            event.data.u64 = number;
            if (!peer.closed) epoll_ctl(poll_, EPOLL_CTL_ADD, peer.file, &event);
            show_interest(number);
        }
    }

    ~Hub() {
        end(0);
        helper_.join();
        ::close(poll_);
    }

    // Starts to send `body`, which stays as it is until it is sent: the message's number; 0 if that is now.
    i64 send(u64 to, u32 tag, const u8* body, u64 bytes) {
        Peer& peer = peers_[to];
        const std::lock_guard<std::mutex> own(peer.out.lock);
        if (peer.out.broken || closing_) return CLOSED;
        const bool first = peer.out.empty();
        peer.out.add(tag, body, bytes);
        const u64 number = peer.out.asked;
        if (first) peer.out.write(peer.file);
        if (peer.out.broken) return CLOSED;
        if (peer.out.empty()) return 0;
        if (first) note_unsent(to, true);
        return static_cast<i64>(number);
    }

    i64 wait_sent(u64 to, u64 number, i64 nanoseconds) {
        const Outgoing& out = peers_[to].out;
        Hold hold(lock_);
        return wait(hold, nanoseconds, [&] {
            return out.sent >= number ? DONE : out.broken ? CLOSED : NOT_YET;
        });
    }

    // Waits for the next message of `tag`: where it lies, and its bytes.
    i64 wait_message(u64 from, u32 tag, i64 nanoseconds, i64* found) {
        Peer& peer = peers_[from];
        Hold hold(lock_);
        peer.waiting.push_back(tag);
        show_interest(from);
        const i64 status = wait(hold, nanoseconds, [&] {
            return taken(peer, tag, found) ? DONE : peer.closed ? peer.why : NOT_YET;
        });
        peer.waiting.erase(std::find(peer.waiting.begin(), peer.waiting.end(), tag));
        show_interest(from);
        return status;
    }

    void give_back(u64 at) {
        const Hold hold(lock_);
        blocks_.give_back(at);
    }

    // Nothing is waited for any more. What is on its way still goes out, and what comes is read, for a
    // second.
    void close() { end(LINGER); }

private:
    using Hold = std::unique_lock<std::mutex>;
    static constexpr i64 MILLISECOND = 1'000'000, SLICE = 50 * MILLISECOND, LINGER = 1000 * MILLISECOND;
    static constexpr u64 MOST_UNTAKEN = 1 << 26;  // bytes of a peer for which nobody waits, before it has to
    static constexpr u64 BOOKKEEPING = 1 << 10;   // bytes that a message takes beside its own
    static constexpr int CALL_SHIFT = 15;         // of a tag: its call stands before that of its step
    static constexpr int EVENTS = 64;

    struct Message {
        u64 at, bytes;
    };

    struct Peer {
        int file = -1;
        Outgoing out;
        Incoming in;            // the pump's
        u64 at = 0, bytes = 0;  // of the message that comes; the pump's too
        bool closed = false;    // from here on under the lock of all
        bool unsent = false, partial = false, shut = false;
        i64 why = CLOSED;
        u32 events = 0;
        Incoming::Progress comes{};
        u64 untaken = 0;
        std::vector<u32> waiting;  // tags
        std::unordered_map<u32, std::deque<Message>> came;
    };

    // `nanoseconds`: for peers to end, too, where nothing is left to be sent to them.
    void end(i64 nanoseconds) {
        const Hold hold(lock_);
        if (closing_) return;
        closing_ = true;
        ends_ = now() + (unsent_ ? LINGER : nanoseconds);
        start_helper();
        told_.notify_all();
        helped_.notify_all();
    }

    static i64 now() {
        timespec time;
        clock_gettime(CLOCK_MONOTONIC, &time);
        return time.tv_sec * 1000 * MILLISECOND + time.tv_nsec;
    }

    bool taken(Peer& peer, u32 tag, i64* found) {
        const auto came = peer.came.find(tag);
        if (came == peer.came.end()) return false;
        const Message message = came->second.front();
        came->second.pop_front();
        if (came->second.empty()) peer.came.erase(came);
        peer.untaken -= message.bytes + BOOKKEEPING;
        found[0] = static_cast<i64>(message.at);
        found[1] = static_cast<i64>(message.bytes);
        return true;
    }

    template <class Status>
    i64 wait(Hold& hold, i64 nanoseconds, Status status_of) {
        const i64 until = nanoseconds > 0 ? now() + nanoseconds : 0;
        i64 status = status_of();
        while (status == NOT_YET && nanoseconds > 0) {
            if (closing_) return CLOSED;
            const i64 left = until - now();
            if (left <= 0) break;
            if (pumping_) {
                ++followers_;
                told_.wait_for(hold, std::chrono::nanoseconds(left));
                --followers_;
            } else {
                pump(hold, left);
            }
            status = status_of();
        }
        if (!pumping_) followers_ ? told_.notify_all() : needs_help() ? helped_.notify_one() : void();
        return status;
    }

    bool needs_help() const { return closing_ || unsent_ || partial_; }

    // Reads and writes once something can be. The lock is let go of meanwhile.
    void pump(Hold& hold, i64 nanoseconds) {
        epoll_event events[EVENTS];
        pumping_ = true;
        hold.unlock();
        const i64 milliseconds = (std::min(nanoseconds, SLICE) + MILLISECOND - 1) / MILLISECOND;
        const int count = epoll_wait(poll_, events, EVENTS, static_cast<int>(milliseconds));
        for (int event = 0; event < count; ++event) {
            const u32 what = events[event].events;
            if (what & EPOLLOUT) write(events[event].data.u64);
            if (what & ~u32{EPOLLOUT}) read(events[event].data.u64, what & (EPOLLHUP | EPOLLERR));
        }
        hold.lock();
        pumping_ = false;
        if (followers_) told_.notify_all();  // one of them pumps, where this thread does not go on
    }

    void write(u64 to) {
        Peer& peer = peers_[to];
        const std::lock_guard<std::mutex> own(peer.out.lock);
        peer.out.write(peer.file);
        if (peer.out.empty()) note_unsent(to, false);
    }

    void note_unsent(u64 to, bool unsent) {
        const Hold hold(lock_);
        Peer& peer = peers_[to];
        unsent_ += unsent - peer.unsent;
        peer.unsent = unsent;
        show_interest(to);
        if (unsent) start_helper();
        if (unsent && !pumping_) helped_.notify_one();
    }

    // `gone`: nothing follows what is there.
    void read(u64 from, bool gone) {
        Peer& peer = peers_[from];
        const auto more = [&] {
            const Hold hold(lock_);
            peer.comes = peer.in.progress();
            return gone || reads(peer);
        };
        const auto room = [&](u64 bytes) -> u8* {
            const Hold hold(lock_);
            const i64 at = closing_ ? -1 : blocks_.take(bytes);
            peer.at = static_cast<u64>(at);
            peer.bytes = bytes;
            return at < 0 ? nullptr : blocks_.address(peer.at);
        };
        const auto came = [&](u32 tag) {
            const Hold hold(lock_);
            peer.came[tag].push_back({peer.at, peer.bytes});
            peer.untaken += peer.bytes + BOOKKEEPING;
            if (followers_) told_.notify_all();
        };
        const Stream stream = closing_ ? peer.in.drop(peer.file) : peer.in.read(peer.file, more, room, came);
        const Hold hold(lock_);
        peer.comes = peer.in.progress();
        if (stream == Stream::DAMAGED) peer.why = DAMAGED;
        if (stream != Stream::OPEN) lose(from);
        show_interest(from);
    }

    // Nothing comes from a peer any more, and so nothing goes there.
    void lose(u64 number) {
        Peer& peer = peers_[number];
        peer.closed = true;
        peer.out.broken = true;
        unsent_ -= peer.unsent;
        peer.unsent = false;
        epoll_ctl(poll_, EPOLL_CTL_DEL, peer.file, nullptr);
        told_.notify_all();
    }

    // Whether more is read of a peer than what nobody waits for. Messages of a call come in the order in
    // which they are waited for; only those of the call beside it may stand before one that is waited for.
    bool reads(const Peer& peer) const {
        if (peer.untaken + peer.comes.got < MOST_UNTAKEN) return true;
        for (const u32 tag : peer.waiting)
            if ((peer.comes.left && peer.comes.tag == tag) || may_come_before(peer, tag)) return true;
        return false;
    }

    bool may_come_before(const Peer& peer, u32 awaited) const {
        u64 beside = are_beside(peer.comes.tag, awaited) ? peer.comes.got : 0;
        for (const auto& [tag, messages] : peer.came)
            for (const Message& message : messages)
                if (are_beside(tag, awaited)) beside += message.bytes + BOOKKEEPING;
        return beside < most_beside_ && peer.untaken + peer.comes.got - beside < MOST_UNTAKEN;
    }

    // Whether two tags are of calls of which one follows the other.
    static bool are_beside(u32 one, u32 other) {
        const u32 apart = ((one >> CALL_SHIFT) - (other >> CALL_SHIFT)) & 0xffff;
        return apart == 1 || apart == 0xffff;
    }

    // Asks for the events of a peer that there is something to do at, and for help with a long message.
    void show_interest(u64 number) {
        Peer& peer = peers_[number];
        const bool wanted = !peer.closed && reads(peer),
                   partial = wanted && peer.comes.left > Incoming::STAGED;
        partial_ += partial - peer.partial;
        peer.partial = partial;
        if (partial) start_helper();
        const u32 events = (wanted ? u32{EPOLLIN} : 0) | (peer.unsent ? u32{EPOLLOUT} : 0);
        if (peer.closed || events == peer.events) return;
        epoll_event event{events, {}};
        event.data.u64 = number;
        epoll_ctl(poll_, EPOLL_CTL_MOD, peer.file, &event);
        peer.events = events;
    }

    void start_helper() {
        if (helper_.joinable()) return;
        sigset_t all, before;  // signals are for the threads of Python
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        helper_ = std::thread([this] { help(); });
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }

    void help() {
        Hold hold(lock_);
        while (!closing_ || !ended()) {
            if (!closing_ && (pumping_ || followers_ || !needs_help()))
                helped_.wait(hold);
            else if (pumping_)
                told_.wait_for(hold, std::chrono::nanoseconds(SLICE));
            else
                pump(hold, SLICE);
        }
    }

    // Whether all is over; connections are shut once nothing is left to be sent.
    bool ended() {
        bool over = true;
        for (Peer& peer : peers_) {
            if (!peer.shut && !peer.closed && !peer.unsent) {
                peer.shut = true;
                shutdown(peer.file, SHUT_WR);
            }
            over = over && peer.closed;
        }
        if (!over && now() < ends_) return false;
        for (Peer& peer : peers_)
            if (peer.file >= 0) ::close(peer.file);
        return true;
    }

    std::mutex lock_;
    std::condition_variable told_, helped_;
    std::deque<Peer> peers_;
    Blocks blocks_;
    const u64 most_beside_;  // bytes of the call beside that may come before what is waited for
    const int poll_;
    std::atomic<bool> closing_{false};
    bool pumping_ = false;
    u64 followers_ = 0, unsent_ = 0, partial_ = 0;
    i64 ends_ = 0;
    std::thread helper_;
};

}  // namespace zenc
