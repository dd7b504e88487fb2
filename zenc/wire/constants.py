"""Constants on which Python, the headers in ``templates`` and all ranks agree.

Here they are written; ``zenc.codegen.render`` renders the headers ``zenc/constants.h`` and ``zenc_host/call_args.h``
of them. The layouts of structures are in ``zenc.wire.structs``.
"""

from __future__ import annotations

from enum import IntEnum

from zenc.scheme.compression import CODES
from zenc.scheme.model import BLOCKS, MOST_FUNCTIONS, PERMUTED_BLOCKS, Format

ABI_VERSION = 20
"""Changes whenever the bytes on the wire or an entry point of the kernels change."""

# Messages
MAGIC = b"zenM"
WIRE_VERSION = 3
CONTROL_MAGIC = int.from_bytes(b"zenmC01", "little")
"""Magic number of control messages between GPUs; it changes with their contents."""
WIRE_FORMATS = (Format.DENSE, Format.COO, Format.BITMAP, Format.ELIAS_FANO, *BLOCKS)
"""The formats that a segment can have on the wire; the header carries the position in this tuple."""
WIRE_NUMBERS = {wire: number for number, wire in enumerate(WIRE_FORMATS)}
"""Format -> its place in WIRE_FORMATS, which is how kernels and headers name it."""
DTYPE_BYTES = {"f32": 4, "f64": 8, "f16": 2, "bf16": 2}
"""dtype -> bytes of a value; a call of a GPU carries the place in this table."""
DTYPE_NUMBERS = {name: number for number, name in enumerate(DTYPE_BYTES)}
CODE_NUMBERS = {word: number for number, word in enumerate(("asc", *CODES))}
"""Word of a code -> its number in kernels and call programs; ``asc`` is ``fixed`` by it."""

# Limits
MOST_VALUES = 1 << 62
"""A tensor has fewer values than this."""
MOST_HASHED_UNITS = (1 << 32) - 1
"""Larger tensors are not hashed: a unit has 32 bits in the tables, and unit + 1 has them in the memory."""
MOST_CELL_FUNCTIONS = MOST_FUNCTIONS
"""Hash functions that choose a unit's cell in that memory, at most."""
MOST_OWNED_ELEMENTS = 1 << 20
"""Single elements whose owners a GPU chooses among holders: 32 at a time, some 20 ms if ranks share all (estimate)."""

# SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): its step, 2^64 / golden ratio, and the products of its finaliser
GOLDEN = 0x9E3779B97F4A7C15
MIX_FIRST = 0xBF58476D1CE4E5B9
MIX_SECOND = 0x94D049BB133111EB

# The permutation (docs/adr/0003-permutation.md): each round moves both halves, by Wellons' lowbias32
PERMUTATION_ROUNDS = 3
"""Rounds of a permutation: 2 pass every balance test that we have; the third is a margin."""
DRAW_FIRST = 0x7FEB352D
DRAW_SECOND = 0x846CA68B
LEAST_BLOCK, MOST_BLOCK = PERMUTED_BLOCKS[0], PERMUTED_BLOCKS[-1]
"""Least and greatest number of single elements in a block, which keep their places in it (docs/adr/0036-blocks.md)."""
BLOCKS_OF_PART = 10_000
"""Blocks that a part has for every doubling of the number of parts, unless they are the least."""

# The choice of an owner (docs/adr/0017-holders.md)
RECEIVED_WEIGHT = 8
"""Cost of a message received, where one sent costs 1."""
MESSAGE_WEIGHT = 16
"""Cost of a message sent, where a unit owned costs 1."""
CHOSEN_TOGETHER = 256
"""Units whose owners are chosen by the same loads, at most: a thread of a block each."""
FEW_TOGETHER = 32
"""Units that are chosen together, at most, when few are left: a lane of a warp each."""

# Kernels of GPUs
THREADS = 256
"""Threads of every block of every kernel."""
RANKED_WORDS = 8
"""Words of a bitmap whose ranks are kept together."""
RANK_BITS = 37
"""Bits of the number of set bits below those words: no GPU has room for 2^37 rows."""
SCAN_TILE = 8 * THREADS
"""Numbers that a block scans at a time."""
SORT_TILE = 16 * THREADS
"""Keys that a block ranks at a time."""
FEW_INPUTS = 32 * THREADS
"""Inputs that one block sorts, in shared memory; fewer than 2^16, so that a row and a position have 32 bits."""
DIGIT_BITS = 8
"""Bits of a key that are sorted at a time."""
MOST_INPUTS = 64
"""Rows of more inputs than this are popular: blocks sum them, others are summed by a thread a column."""
SET_WORDS = 2048
"""Words of all index sets in a tile, which a block has in shared memory."""
TABLE_WORDS = 181
"""Words for the tables of a launch in its parameters; 20 segments fit, and one word is not used. CUDA takes 4 KiB of
parameters, and each kernel keeps a copy in its cubin."""

# Tables of rank programs for GPUs
SEQUENCE_VERSION = 2
TABLE_HEADER = ("size", "rank", "parts", "segments", "cuts", "pieces")
"""The first words of a table; the last three are the numbers of such records after them."""
WHOLE_PART = -1
FULL_SPREAD = 1 << 20
NO_CUT = -1
TABLE_ENUMS = {
    "Operation": (
        *("pack", "begin", "send", "receive", "exchange"),
        *("merge", "fill", "sparsify", "agree", "split", "finish"),
        *("code", "encode", "decode", "select"),
    ),
    "Kind": ("push", "pull", "announce"),
    "Carries": ("segments", "sets", "rows"),
    "Announced": ("unannounced", "announced"),
    "InResult": ("not_in_result", "in_result", "sum_for_result"),
}
"""Words of a table that have a name; each counts from 0."""

# The host's side of a GPU
OLDEST_DRIVER = 12000
"""The oldest CUDA driver: major * 1000 + minor * 10."""
OLDEST_NCCL = 22800
"""The oldest NCCL: major * 10000 + minor * 100 + patch."""
NCCL_ID_BYTES = 128
STAGING_BYTES = 1 << 18
"""Pinned memory that a communicator takes at a time."""
MOST_MESSAGE = 512
"""Bytes of the text of a failure."""


class KernelStatus(IntEnum):
    """A status of a kernel that can't do its work, in place of a count; ``reason`` goes on from "a segment ..."."""

    reason: str

    def __new__(cls, value: int, reason: str = "") -> KernelStatus:
        """Make a member of two values, as ``enum`` does: the number, and the text of a diagnostic."""
        self = int.__new__(cls, value)
        self._value_ = value
        self.reason = reason
        return self

    UNKNOWN_FORMAT = -1, "its format is unknown"
    WRONG_COUNT = -2, "its index does not have as many slots as its header says"
    NOT_ASCENDING = -3, "its slots do not ascend"
    OUT_OF_RANGE = -4, "it has a slot beyond the end of its part"
    STRAY_BITS = -5, "it has bits where there must be none"
    NOT_MARKED = -6, "a unit is not marked"
    NO_MEMORY = -7
    NO_MEMORY_FOR_IDS = -(1 << 62)
    """Status without memory for ids; -1 - i stands for a failure at id number i."""


class CallOutcome(IntEnum):
    """Outcome of a call of a GPU. All but DONE break the communicator for later calls, unless no byte has moved."""

    about: str

    def __new__(cls, value: int, about: str = "") -> CallOutcome:
        """Make a member of two values, as ``enum`` does: the number, and the comment in the header."""
        self = int.__new__(cls, value)
        self._value_ = value
        self.about = about
        return self

    DONE = 0, "the result is there"
    CUDA_FAILED = 1, "`message` names the call and the driver's error"
    NCCL_FAILED = 2, "the same of NCCL"
    DEADLINE_PASSED = 3, "the communicator was aborted"
    DIFFERENT_CALLS = 4, "a peer is in another call: `peer`, and what differs in `message`"
    OUT_OF_MEMORY = 5, "`allocate` returned 0"
    BAD_UNIT = 6, "a unit id out of range at position `detail`"
    CORRUPT_SEGMENT = 7, "what came from `peer` is no segment of the count that it promised"
    UNUSABLE_GROUP = 8, "an earlier call broke the communicator, or the sequence is for other ranks"
    NOT_CAPTURABLE = 9, "a graph captures the stream, and `report` is null; nothing has been done"
    NOT_OWNED = 10, "this rank gathers units of a part that it does not own"
