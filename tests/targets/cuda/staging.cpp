// Pinned memory on its own: taken before calls, given out in calls, and free again.
#include "zenc_host/driver.h"
#include "zenc_host/memory.h"

using namespace zenc;

extern "C" Staging* make_staging() {
    auto* const made = new Staging;
    made->prepare();
    return made;
}

extern "C" void* take(Staging* from, Call* call, u64 bytes) {
    return from->take(*call, bytes);
}

extern "C" void reset(Staging* staging) {
    staging->reset();
}

extern "C" void drop(Staging* staging) {
    delete staging;
}

extern "C" void keep(Staging* staging) {
    staging->keep();
}
