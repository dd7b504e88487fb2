// The sums and such of an all-reduce.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "engine/sanitizers.h"
#include "nccl/group.h"

namespace emulator {

namespace {

enum Op { SUM, PRODUCT, MAXIMUM, MINIMUM };

// Numbers with a sign wrap around like those without.
template <class T>
using Wrapping =
    typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, std::decay<T>>::type;

template <class T>
T joined(int op, T a, T b) {
    switch (op) {
        case SUM:
            return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
        case PRODUCT:
            return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
        case MAXIMUM:
            return std::max(a, b);
        default:
            return std::min(a, b);
    }
}

using Bytes = std::vector<char>;

template <class T>
void join_all(const Reduction& reduction, Bytes& sums, const Bytes& values) {
    T* to = reinterpret_cast<T*>(sums.data());
    const T* from = reinterpret_cast<const T*>(values.data());
    for (size_t i = 0; i < reduction.count; i++) to[i] = joined(reduction.op, to[i], from[i]);
}

// Functions by type.
constexpr decltype(&join_all<float>) JOIN[TYPES] = {
    join_all<int8_t>,   join_all<uint8_t>, join_all<int32_t>, join_all<uint32_t>, join_all<int64_t>,
    join_all<uint64_t>, nullptr,           join_all<float>,   join_all<double>,   nullptr,
};

// Copied from and to, so that sanitizers see it.
void reduce_one(const std::vector<Group*>& groups, size_t number) {
    const Reduction& first = groups.front()->reductions[number];
    const size_t bytes = first.count * bytes_of(first.type);
    Bytes sums(bytes), values(bytes);
    if (bytes == 0) return;
    for (const Group* group : groups) {
        Bytes& own = group == groups.front() ? sums : values;
        std::memcpy(own.data(), group->reductions[number].from, bytes);
        if (group != groups.front()) JOIN[first.type](first, sums, values);
    }
    for (const Group* group : groups) std::memcpy(group->reductions[number].to, sums.data(), bytes);
}

}  // namespace

bool is_reduced(int type) {
    return JOIN[type] != nullptr;
}

void reduce(const std::vector<Group*>& groups) {
    Seen seen;
    for (Group* group : groups) acquire(&group->before);
    for (size_t i = 0; i < groups.front()->reductions.size(); i++) reduce_one(groups, i);
    for (Group* group : groups) {
        release(&group->after);
        group->reduced = true;
    }
}

}  // namespace emulator
