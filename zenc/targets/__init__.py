"""Where a plan runs. Each target compiles and loads the kernels; ``geometry`` is common to all."""
