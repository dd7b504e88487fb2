"""Published results of strategies, computed again: Espresso, MergeComp, TopKA2A, OSCAR and BytePS's compressors."""
