// Messages between processes over TCP connections. One unit for all schemes.
#include "zenc/constants.h"
#include "zenc_cpu/sockets/hub.h"

using zenc::Hub;
using zenc::i64;
using zenc::u32;
using zenc::u64;
using zenc::u8;

extern "C" {

i64 zenc_abi_version() {
    return ZENC_ABI_VERSION;
}

// -errno if the process can have no more files.
i64 zenc_hub_open(i64 size, const i64* files, u8* memory, i64 bytes) {
    const int poll = epoll_create1(EPOLL_CLOEXEC);
    if (poll < 0) return -errno;
    return reinterpret_cast<i64>(
        new Hub(static_cast<u64>(size), files, memory, static_cast<u64>(bytes), poll));
}

i64 zenc_hub_send(Hub* hub, i64 to, i64 tag, const u8* body, i64 bytes) {
    return hub->send(static_cast<u64>(to), static_cast<u32>(tag), body, static_cast<u64>(bytes));
}

i64 zenc_hub_sent(Hub* hub, i64 to, i64 number, i64 nanoseconds) {
    return hub->wait_sent(static_cast<u64>(to), static_cast<u64>(number), nanoseconds);
}

i64 zenc_hub_await(Hub* hub, i64 from, i64 tag, i64 nanoseconds, i64* found) {
    return hub->wait_message(static_cast<u64>(from), static_cast<u32>(tag), nanoseconds, found);
}

i64 zenc_hub_give_back(Hub* hub, i64 at) {
    hub->give_back(static_cast<u64>(at));
    return 0;
}

i64 zenc_hub_close(Hub* hub) {
    hub->close();
    return 0;
}

i64 zenc_hub_delete(Hub* hub) {
    delete hub;
    return 0;
}

}  // extern "C"
