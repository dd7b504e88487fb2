// Messages between processes over TCP connections. One unit for all schemes.
#include "zenc/entry_points.h"
#include "zenc_cpu/sockets/hub.h"

namespace zenc {

// -errno if the process can have no more files.
i64 open_hub(u64 size, const i64* files, u8* memory, u64 bytes) {
    const int poll = epoll_create1(EPOLL_CLOEXEC);
    return poll < 0 ? -errno : reinterpret_cast<i64>(new Hub(size, files, memory, bytes, poll));
}

void delete_hub(Hub* hub) {
    delete hub;
}

}  // namespace zenc

using zenc::entry, zenc::Hub, zenc::Method;

const zenc::EntryPoint zenc_entry_points[] = {
    entry("hub_open", zenc::open_hub),
    entry("hub_send", Method<&Hub::send>::call),
    entry("hub_sent", Method<&Hub::wait_sent>::call),
    entry("hub_await", Method<&Hub::wait_message>::call),
    entry("hub_give_back", Method<&Hub::give_back>::call),
    entry("hub_close", Method<&Hub::close>::call),
    entry("hub_delete", zenc::delete_hub),
    {},
};
