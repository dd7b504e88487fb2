// Posts of ranks: sends, receives and reductions, in groups.
#pragma once

#include <string>
#include <vector>

#include "engine/launch.h"

namespace emulator {

constexpr int TYPES = 10;      // ncclInt8 to ncclBfloat16
constexpr int REDUCTIONS = 4;  // ncclSum, ncclProd, ncclMax, ncclMin

struct Transfer {
    bool sends;
    void* memory;
    size_t count;
    int type, peer;
    bool done;
};

// A rank's part in an all-reduce.
struct Reduction {
    const void* from;
    void* to;
    size_t count;
    int type, op;
};

// Posts of a rank at once.
struct Group {
    int rank = 0;
    u64 number = 0;  // of the rank's groups
    u64 ticket = 0;  // of the groups of all communicators
    std::vector<Transfer> transfers = {};
    std::vector<Reduction> reductions = {};  // which are done together
    bool reduced = false;
    // Order for race detectors: its posting before its copies, and these before its end.
    char before = 0, after = 0;

    void add(const Transfer& transfer) { transfers.push_back(transfer); }
    void add(const Reduction& reduction) { reductions.push_back(reduction); }
    bool waits_to_reduce() const { return !reductions.empty() && !reduced; }
    bool waits_to_meet(int peer) const;
    bool done() const;
};

// Bytes of a value.
size_t bytes_of(int type);

// Whether values of the type can be reduced here: not those of 16 bits.
bool is_reduced(int type);

std::string described(const Transfer& transfer, int rank);
std::string described(const Reduction& reduction, int rank);

// The first thing of a group that is not done.
std::string described_first_left(const Group& group);

// Returns why the groups, one a rank, can't be reduced with each other; empty if they can.
std::string disagreement(const std::vector<Group*>& groups);

// Does all reductions of the groups, one a rank: values are joined in the order of the ranks.
void reduce(const std::vector<Group*>& groups);

}  // namespace emulator
