// All algorithms of the CUDA target. The generated unit instantiates them for one mapping.
#pragma once

#include "zenc_cuda/permute.h"
