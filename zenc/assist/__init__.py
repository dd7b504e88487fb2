"""Help at a terminal: checks of this machine, and the pages of the manual."""
