"""Steps of training by strategies: those that ``zenc tune --strategy`` finds, beside ten written by hand."""
