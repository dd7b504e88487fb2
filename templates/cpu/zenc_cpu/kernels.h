// The algorithms of the CPU target. The generated unit instantiates them for one mapping and exports them.
#pragma once

#include "zenc_cpu/codec/blocks.h"
#include "zenc_cpu/codec/codec.h"
#include "zenc_cpu/merge/expand.h"
#include "zenc_cpu/merge/merge.h"
#include "zenc_cpu/owners/directory.h"
#include "zenc_cpu/owners/owners.h"
#include "zenc_cpu/pack/hash_memory.h"
#include "zenc_cpu/pack/mark.h"
#include "zenc_cpu/pack/place.h"
