"""``python -m zenc`` is the program ``zenc``."""

from zenc.cli import main

main()
