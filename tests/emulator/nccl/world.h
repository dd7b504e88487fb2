// The ranks of one communicator, all of them threads of this process, and how their messages meet.
//
// Strictly: no message is buffered. A group of sends and receives ends when all of them have met their other
// sides, and a rank's next group begins when the one before it has ended.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "nccl/group.h"

namespace emulator {

class World {
public:
    explicit World(int size);

    // A result of NCCL.
    int join(int rank, int size);
    bool complete();
    bool wait_until_complete(int rank);

    // Whether it has aborted, after a long time in vain.
    bool wait_until_aborted(int rank);

    // The place of the rank's next group.
    u64 next_number(int rank);

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
    void find_deadlock();
    void fail_waiting_for(int rank);
    void fail(Group& group, int error, const std::string& why);
    void time_out(Group& group);

    const int size_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<Rank> ranks_;
};

}  // namespace emulator
