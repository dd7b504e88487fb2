// Memory for the length of one kernel call. A kernel never throws: it asks `failed()` and returns NO_MEMORY.
#pragma once

#include <cstdlib>

#include "zenc/config.h"

namespace zenc {

template <class T>
class Scratch {
public:
    // Cleared memory costs nothing here: the system hands out zero pages.
    explicit Scratch(u64 n) : data_(static_cast<T*>(std::calloc(n ? n : 1, sizeof(T)))) {}
    ~Scratch() { std::free(data_); }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

    bool failed() const { return data_ == nullptr; }
    T* get() const { return data_; }
    T& operator[](u64 i) const { return data_[i]; }

private:
    T* data_;
};

}  // namespace zenc
