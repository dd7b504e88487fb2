#include "nccl/group.h"

#include <algorithm>

#include "engine/errors.h"

namespace emulator {

namespace {

constexpr size_t BYTES[TYPES] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
constexpr const char* NAMES[TYPES] = {"int8",   "uint8",   "int32",   "uint32",  "int64",
                                      "uint64", "float16", "float32", "float64", "bfloat16"};
constexpr const char* OPS[REDUCTIONS] = {"sum", "product", "maximum", "minimum"};

}  // namespace

bool Group::done() const {
    return !waits_to_reduce() &&
           std::all_of(transfers.begin(), transfers.end(), [](const Transfer& one) { return one.done; });
}

bool Group::waits_to_meet(int peer) const {
    return std::any_of(transfers.begin(), transfers.end(),
                       [=](const Transfer& one) { return !one.done && one.peer == peer; });
}

size_t bytes_of(int type) {
    return BYTES[type];
}

std::string described(const Transfer& transfer, int rank) {
    return text("rank %d: %s of %zu %s %s rank %d", rank, transfer.sends ? "ncclSend" : "ncclRecv",
                transfer.count, NAMES[transfer.type], transfer.sends ? "to" : "from", transfer.peer);
}

std::string described(const Reduction& reduction, int rank) {
    return text("rank %d: ncclAllReduce of %zu %s to their %s", rank, reduction.count, NAMES[reduction.type],
                OPS[reduction.op]);
}

std::string described_first_left(const Group& group) {
    for (const Transfer& transfer : group.transfers)
        if (!transfer.done) return described(transfer, group.rank);
    return described(group.reductions.front(), group.rank);
}

std::string disagreement(const std::vector<Group*>& groups) {
    const Group& first = *groups.front();
    for (const Group* group : groups) {
        if (group->reductions.size() != first.reductions.size())
            return text("rank %d: %zu ncclAllReduce in a group, but rank %d: %zu", first.rank,
                        first.reductions.size(), group->rank, group->reductions.size());
        for (size_t i = 0; i < first.reductions.size(); i++) {
            const Reduction &a = first.reductions[i], &b = group->reductions[i];
            if (a.count != b.count || a.type != b.type || a.op != b.op)
                return described(a, first.rank) + ", but " + described(b, group->rank);
        }
    }
    return "";
}

}  // namespace emulator
