// The algorithms of the CUDA target. The generated unit instantiates them for one mapping.
#pragma once

// A module is compiled alone by -DZENC_ONLY -DZENC_ and its name (zenc/codegen/build/gpu_kernels.py);
// otherwise there are all of them.
#ifdef ZENC_ONLY
#define ZENC_HAS(module) ZENC_##module
#else
#define ZENC_HAS(module) 1
#endif

#include "zenc_cuda/codec/decode.h"
#include "zenc_cuda/codec/encode.h"
#include "zenc_cuda/merge/expand.h"
#include "zenc_cuda/merge/merge.h"
#include "zenc_cuda/merge/sparsify.h"
#include "zenc_cuda/owners/owned_rows.h"
#include "zenc_cuda/pack/capacity_check.h"
#include "zenc_cuda/pack/hash_insert.h"
#include "zenc_cuda/pack/mark.h"
#include "zenc_cuda/pack/pack_values.h"
#include "zenc_cuda/pack/place.h"
#include "zenc_cuda/pack/sum_duplicates.h"
#include "zenc_cuda/primitives/gather.h"
#include "zenc_cuda/primitives/rank.h"
#include "zenc_cuda/primitives/sort.h"
