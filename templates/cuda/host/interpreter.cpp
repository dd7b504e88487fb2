// The call sequences of all schemes: one unit, which plays the tables that it is given.
#include "zenc_host/table.h"
