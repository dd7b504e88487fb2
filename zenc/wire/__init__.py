"""Wire formats: what every target writes to the byte, and how units are cut into parts."""
