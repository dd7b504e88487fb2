"""Published results of strategies, computed again: Espresso, MergeComp, TopKA2A, OSCAR and BytePS's compressors."""

from typing import Any

Results = dict[str, Any]
Row = dict[str, Any]
