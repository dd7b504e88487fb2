"""Inputs, and the dense float64 sum that every result is compared with."""

import itertools
from collections.abc import Sequence

import torch

COMMUNICATIONS = ("ring", "hierarchy", "point_to_point")
AGGREGATIONS = ("incremental", "one_shot")
CUTS = (
    "partition: centralization",
    "partition: parallelism balance: imbalanced",
    "partition: parallelism balance: balanced by permutation(7)",
)
COMBINATIONS = list(itertools.product(COMMUNICATIONS, AGGREGATIONS, CUTS))
"""The 18 meaningful combinations of the four dimensions."""

FORMATS = ("dense", "coo", "bitmap", "elias_fano", "block(8)", "block(256)", "auto")
FILLING = ("dense", "block(8)", "block(256)")
"""Formats that fill up what they send, so that units without a contribution come out."""
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-13, torch.float16: 4e-3, torch.bfloat16: 3e-2}
"""Tolerance relative to the sum of magnitudes."""

KINDS = (
    "random", "empty_on_one", "empty_on_all", "everything", "one_unit", "many_times", "one_part", "zero_rows",
    "nonfinite",
)  # fmt: skip


def scheme_text(
    communication: str, aggregation: str, cut: str, push: str = "auto", pull: str = "auto", unit: str = "auto"
) -> str:
    """Return a scheme of the 18, as a user would write it."""
    return (
        f"scheme combination {{ communication: {communication} aggregation: {aggregation} {cut} "
        f"push: {push} pull: {pull} unit: {unit} }}"
    )


INNER = [c for c in COMBINATIONS if "parallelism" in c[2] or c[0] == "point_to_point" or c[:2] == ("ring", "one_shot")]
"""Combinations whose push ends with part r at rank r, or with the whole at every rank, for any number of ranks."""


def tiered_text(
    sizes: Sequence[int], tiers: Sequence[tuple[str, str, str]], formats: Sequence[tuple[str, str]] = (), rest: str = ""
) -> str:
    """Return a scheme ``tiered`` whose inner tiers have ``sizes``, and the schemes it names; ``rest`` goes into it."""
    formats = formats or [("auto", "auto")] * len(tiers)
    schemes = [scheme_text(*tier, *pair) for tier, pair in zip(tiers, formats, strict=True)]
    named = [text.replace("combination", f"of_{k}", 1) for k, text in enumerate(schemes)]
    lines = [f"tier level_{k}({size}): of_{k}" for k, size in enumerate(sizes)]
    return f"{' '.join(named)} scheme tiered {{ {' '.join(lines)} tier top: of_{len(sizes)} {rest} }}"


def unit_ids(kind: str, rank: int, size: int, units: int, generator: torch.Generator) -> torch.Tensor:
    """Draw the units of a rank's gradient, in any order, maybe several times."""
    some = torch.randint(0, units, (max(1, units // 4),), generator=generator)
    match kind:
        case "empty_on_all":
            return some[:0]
        case "empty_on_one":
            return some[:0] if rank == size - 1 else some
        case "everything":
            return torch.randperm(units, generator=generator)
        case "one_unit":
            return torch.tensor([units // 2])
        case "many_times":
            return torch.full((9,), units - 1)
        case "one_part":
            return some % max(1, units // size)
    return some


def sparse_tensor(
    kind: str, rank: int, size: int, units: int, width: int, dtype: torch.dtype, seed: int
) -> torch.Tensor:
    """Draw a rank's sparse COO gradient [units, width] (or [units] for width 0), uncoalesced."""
    generator = torch.Generator().manual_seed(seed * 1000 + rank)
    ids = unit_ids(kind, rank, size, units, generator)
    values = torch.randn(len(ids), max(width, 1), generator=generator, dtype=torch.float64).to(dtype)
    if kind == "zero_rows":
        values[::2] = 0
    if kind == "nonfinite" and len(values) and rank == 0:
        values[0, 0], values[-1, -1] = float("nan"), float("inf")
    if width == 0:
        return torch.sparse_coo_tensor(ids[None], values[:, 0], (units,), check_invariants=False)
    return torch.sparse_coo_tensor(ids[None], values, (units, width), check_invariants=False)


def dense_tensor(
    kind: str, rank: int, size: int, units: int, width: int, dtype: torch.dtype, seed: int
) -> torch.Tensor:
    """Draw a rank's gradient as a dense tensor, mostly zero."""
    return sparse_tensor(kind, rank, size, units, width, dtype, seed).to_dense()


def wrong_sums(results: list[torch.Tensor], inputs: list[torch.Tensor], divisor: int = 1) -> list[str]:
    """Return faults of ``results``, each to be the float64 sum of ``inputs`` within the tolerance of its dtype.

    Results must have the same bits. The list is empty where all is well.
    """
    expected = sum(_wide(tensor) for tensor in inputs) / divisor
    magnitude = sum(_wide(tensor, magnitude=True) for tensor in inputs) / divisor
    tolerance = TOLERANCE[inputs[0].dtype] * (1 + len(inputs) // 4)
    type_ = torch.finfo(inputs[0].dtype)
    floor = 2 * len(inputs) * type_.smallest_normal * type_.eps  # subnormals are this far apart, however small they are
    bounds = tolerance * magnitude + floor
    alike = same_bits(results) and len({(result.dtype, result.shape, result.layout) for result in results}) == 1
    found = [_wrong(result, inputs[0], expected, bounds) for result in (results[:1] if alike else results)]
    found.append("" if alike else "the ranks hold other bits")
    return [each for each in found if each]


def _wrong(result: torch.Tensor, like: torch.Tensor, expected: torch.Tensor, bounds: torch.Tensor) -> str:
    if (result.dtype, result.shape, result.layout) != (like.dtype, like.shape, like.layout):
        return f"a tensor of another kind: {result.dtype} {list(result.shape)}, {result.layout}"
    dense, finite = result.to_dense().double(), torch.isfinite(expected)
    if not torch.equal(torch.isfinite(dense), finite) or not torch.equal(torch.isnan(dense), torch.isnan(expected)):
        return "finite elsewhere, or not a number elsewhere"
    error = (dense - expected)[finite].abs()
    return "" if bool((error <= bounds[finite]).all()) else f"off by {error.max()}"


def _wide(tensor: torch.Tensor, magnitude: bool = False) -> torch.Tensor:
    """Return ``tensor`` in float64 and dense; or the sum of its magnitudes, where a unit is there several times."""
    tensor = tensor.double()
    if tensor.layout is not torch.sparse_coo:
        return tensor.abs() if magnitude else tensor
    values = tensor._values().abs() if magnitude else tensor._values()
    return torch.sparse_coo_tensor(tensor._indices(), values, tensor.shape, check_invariants=False).to_dense()


def same_bits(results: list[torch.Tensor]) -> bool:
    """Return whether all tensors have the same bits, and sparse ones the same indices, in the same order."""
    first = _pieces(results[0])
    return all(len(pieces) == len(first) and all(map(_equal, pieces, first)) for pieces in map(_pieces, results[1:]))


def _equal(mine: torch.Tensor, other: torch.Tensor) -> bool:
    if mine.shape != other.shape:
        return False
    return torch.equal(mine.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8))


def _pieces(tensor: torch.Tensor) -> list[torch.Tensor]:
    if tensor.layout is torch.sparse_coo:
        assert tensor.is_coalesced()
        return [tensor._indices(), tensor._values()]
    return [tensor.reshape(-1)]


def with_one_nan(tensor: torch.Tensor) -> torch.Tensor:
    """Return ``tensor`` with one NaN in place of every other: which one a sum is depends on the processor."""
    if tensor.layout is not torch.sparse_coo:
        return tensor.clone().masked_fill_(tensor.isnan(), torch.nan)
    indices, values = tensor._indices(), with_one_nan(tensor._values())
    return torch.sparse_coo_tensor(
        indices, values, tensor.shape, is_coalesced=tensor.is_coalesced(), check_invariants=False
    )


def same_units(results: list[torch.Tensor], inputs: list[torch.Tensor]) -> bool:
    """Return whether exactly the units that some rank had are there: none is dropped by value, none is made up."""
    everyone = torch.cat([tensor._indices() for tensor in inputs], dim=1)
    expected = torch.unique(everyone, dim=1)
    return all(torch.equal(result._indices(), expected) for result in results)


WASTEFUL = """
scheme wasteful {
    communication: schedule {
        push { step { send all to 0 where rank != 0  send all to 1 where rank == 2 } }
        pull { step { send all to 1 where rank == 0  send all to 2 where rank == 0 } }
    }
    aggregation: incremental partition: centralization balance: imbalanced
}
"""
