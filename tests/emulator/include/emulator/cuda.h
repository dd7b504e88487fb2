// CUDA C++ for a C++ compiler: force-included (-include) before a kernel's text, in place of a compiler's own
// names.
//
// Kernels of this project may use the declarations here. A name that is missing is missing on
// purpose: it is not there on all GPUs, or hides an error.
#pragma once

#define ZENC_EMULATOR

#define __host__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __constant__ static
#define __align__(n) alignas(n)

#include "emulator/atomics.h"
#include "emulator/engine.h"
#include "emulator/intrinsics.h"
#include "emulator/kernel.h"
#include "emulator/shared.h"
#include "emulator/vectors.h"
#include "emulator/warp.h"
