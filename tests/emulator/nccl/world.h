// The ranks of one communicator, all of them threads of this process, and how their messages meet.
//
// Strictly: no message is buffered. A group of sends and receives ends when all of them have met their other
// sides, and a rank's next group begins when the one before it has ended. Groups of several communicators
// wait for each other where streams or events put one behind the other.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "driver/stream.h"
#include "nccl/group.h"

namespace emulator {

class World {
public:
    explicit World(int size);
    ~World();

    // A result of NCCL.
    int join(int rank, int size);
    bool complete();
    bool wait_until_complete(int rank);

    // Whether it has aborted, after a long time in vain.
    bool wait_until_aborted(int rank);

    // Gives the rank's next group its place, and another on the stream.
    void post(Group& group, Stream* stream);

    // Has this thread wait for groups, and post nothing until they have ended. Returns a ticket to wake it
    // by.
    static std::set<u64> sleep(const Groups& groups);
    static void wake(const std::set<u64>& tickets);

    // Posts the group after all earlier ones of its rank, and waits for its end.
    void run(Group& group);

    // No group of the rank goes on; those of others that wait for it fail.
    void abort(int rank);

    // No group of the rank goes on, and nobody is told.
    void die(int rank);

    // Whether no group of the rank goes on.
    bool is_over(int rank);

    bool is_rank(int rank) const { return rank >= 0 && rank < size_; }
    int error(int rank);
    std::string message(int rank);

private:
    struct Rank {
        bool joined = false, aborted = false, dead = false;
        u64 begun = 0, ended = 0;  // groups
        u64 newest = 0;            // ticket of one
        u64 thread = 0;            // that joined, and then the one that posts; 0: there are several
        Group* group = nullptr;    // that waits
        int error = 0;
        std::string message;  // of the first error
    };

    bool all_joined() const;
    void meet(Group& group);
    void exchange(Group& a, Transfer& from, Group& b, Transfer& to);
    Transfer* partner(const Transfer& transfer, int rank);
    void meet_to_reduce();
    bool waits_for(const Group& group, int rank);
    void fail_waiting_for(int rank);
    void fail(int rank, int error, const std::string& why);
    void time_out(Group& group);

    // Groups of all communicators that have not ended, by their tickets; each waits for others to end.
    struct Posted {
        World* world;
        int rank;
        u64 number;
        Groups after;
        bool is_host = false;  // not a group yet: a thread that waits before it posts this one
    };
    using Tickets = std::map<u64, Posted>;

    Group* running(u64 ticket, const Posted& posted);
    bool may_be_stuck(u64 ticket, const Posted& posted);
    static bool waits(u64 ticket, const Posted& posted, const Tickets& stuck);
    static void find_deadlock();

    const int size_;
    const int number_;  // of communicators
    static std::mutex mutex_;
    static Tickets posted_;
    static u64 tickets_;
    static std::set<World*> worlds_;
    std::condition_variable changed_;
    std::vector<Rank> ranks_;
};

}  // namespace emulator
