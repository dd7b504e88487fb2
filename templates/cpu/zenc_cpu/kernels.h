// All algorithms of the CPU target. The generated unit instantiates them for one mapping and exports them.
#pragma once

#include "zenc_cpu/blocks.h"
#include "zenc_cpu/codec.h"
#include "zenc_cpu/expand.h"
#include "zenc_cpu/hash_mark.h"
#include "zenc_cpu/holders.h"
#include "zenc_cpu/mark.h"
#include "zenc_cpu/merge.h"
#include "zenc_cpu/message.h"
#include "zenc_cpu/place.h"
#include "zenc_cpu/sparsify.h"
