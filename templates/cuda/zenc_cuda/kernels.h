// The algorithms of the CUDA target. The generated unit instantiates them for one mapping.
#pragma once

#include "zenc_cuda/codec/decode.h"
#include "zenc_cuda/codec/encode.h"
#include "zenc_cuda/merge/expand.h"
#include "zenc_cuda/merge/merge.h"
#include "zenc_cuda/merge/sparsify.h"
#include "zenc_cuda/owners/owned_rows.h"
#include "zenc_cuda/pack/capacity_check.h"
#include "zenc_cuda/pack/hash_insert.h"
#include "zenc_cuda/pack/mark.h"
#include "zenc_cuda/pack/place.h"
#include "zenc_cuda/pack/sum_duplicates.h"
#include "zenc_cuda/primitives/gather.h"
#include "zenc_cuda/primitives/rank.h"
#include "zenc_cuda/primitives/sort.h"
