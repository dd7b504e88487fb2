"""Plans: a scheme lowered to phases of statements, and unrolled to the moves of a number of ranks."""
