"""Files by an attacker who wants zenc to run code, or to take all memory and time."""
