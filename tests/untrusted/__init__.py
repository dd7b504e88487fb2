"""Files that somebody wrote who wants zenc to run his code, or to take all memory and time."""
