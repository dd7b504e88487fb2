// Numbers that cross to the host at the end of a call in capacity mode: at once, or whenever it is replayed.
#pragma once

#include "zenc_host/call/host_sync.h"

namespace zenc {

// It is on the device, unless `on_device` is null: then it is known.
struct Number {
    u64 known;
    const u64* on_device;
};

// Of a captured call they go to call.report with every replay. Else this waits for them, and returns them.
inline const u64* report_numbers(Queue& queue, Communicator& group, const std::vector<Number>& numbers) {
    Call& call = queue.call;
    const bool captured = call.report != nullptr;
    const u64 bytes = 8 * numbers.size();
    u64* const host = captured ? call.report : static_cast<u64*>(queue.stage(bytes));
    std::vector<u64> words;
    std::vector<Gathered> rows;
    for (const Number& each : numbers) words.push_back(each.known);
    u64* const device = queue.upload(words.data(), words.size());
    for (u64 i = 0; i < numbers.size(); ++i)
        if (numbers[i].on_device != nullptr) rows.push_back({numbers[i].on_device, nullptr, device + i});
    const Gathered* const table = queue.upload(rows.data(), rows.size());
    queue.launch(GATHER, Queue::blocks_for(rows.size()), 1, table, static_cast<i64>(rows.size()));
    queue.flush();
    if (!queue.ok()) return nullptr;
    const CUdeviceptr from = reinterpret_cast<CUdeviceptr>(device);
    check(call, api.cuMemcpyDtoHAsync_v2(host, from, bytes, queue.stream), "cuMemcpyDtoHAsync");
    if (captured || !queue.ok()) return host;
    check(call, api.cuEventRecord(group.there, queue.stream), "cuEventRecord");
    await(call, group, group.there, -1,
          [&](char* text, u64 size) { Awaited{END, {}}.describe(call.number, text, size); });
    return host;
}

}  // namespace zenc
