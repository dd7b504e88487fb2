// All algorithms of the CUDA target. The generated unit instantiates them for one mapping.
#pragma once

#include "zenc_cuda/admit.h"
#include "zenc_cuda/collect.h"
#include "zenc_cuda/decode.h"
#include "zenc_cuda/encode.h"
#include "zenc_cuda/encoded.h"
#include "zenc_cuda/expand.h"
#include "zenc_cuda/gather.h"
#include "zenc_cuda/holders.h"
#include "zenc_cuda/mark.h"
#include "zenc_cuda/merge.h"
#include "zenc_cuda/permute.h"
#include "zenc_cuda/place.h"
#include "zenc_cuda/rank.h"
#include "zenc_cuda/sort.h"
#include "zenc_cuda/sparsify.h"
#include "zenc_cuda/sum.h"
