"""Owners among holders, and the kernels that use them: the results of the CPU's kernels, bit for bit."""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.emulator.build import kernels
from tests.emulator.device import Device, IndexSets
from tests.support.both_targets import differences
from tests.support.cases import KINDS, same_bits, sparse_tensor
from tests.support.emulated import Emulated
from tests.support.fuzz import tried
from tests.support.local import collectives, run_all
from tests.support.packing import scan_words
from tests.support.pieces import Piece, rubbish, table, words_of
from tests.support.survival import faults_of
from zenc.api import compile, compile_text
from zenc.codegen.render import render
from zenc.errors import SynchronisationError
from zenc.runtime.cpu.ownership import HolderKernels
from zenc.wire.constants import SET_WORDS

FUZZ = settings(max_examples=tried(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
SIZES = (1, 63, 64, 65, 2500)
WORDS = (1, 3, 16)
"""Words of a tile."""


@pytest.fixture(scope="session")
def device(device_of) -> Device:
    return device_of("holders")


@pytest.fixture(scope="session")
def holding(kernels_of) -> HolderKernels:
    return HolderKernels(kernels_of("holders").path)


def addresses(arrays: list[np.ndarray]) -> np.ndarray:
    return np.array([array.ctypes.data if array.size else 0 for array in arrays], np.int64)


def bits_of(flags: np.ndarray) -> np.ndarray:
    padded = np.zeros(64 * words_of(len(flags)), np.uint8)
    padded[: len(flags)] = flags
    return np.packbits(padded, bitorder="little").view(np.uint64)


class OnHost:
    """The agreement of ranks that hold ``held`` [ranks, units], by the CPU's kernels."""

    def __init__(self, holding: HolderKernels, at, held: np.ndarray) -> None:
        self.ranks, self.units = held.shape
        self.bitmaps = [bits_of(mine) for mine in held]
        self.any, self.present = bits_of(held.any(0)), np.flatnonzero(held.any(0))
        self.of_several = held.sum(0)[self.present] > 1
        self.owners = np.full(len(self.present), 0xFFFF, np.uint16)
        self.of_parts = np.zeros((self.ranks, self.ranks), np.uint64)
        self.sets, words = addresses(self.bitmaps), words_of(self.units)
        self.digest = holding.choose_owners(
            self.ranks, at.address(self.sets), words, at.address(self.owners), at.address(self.of_parts)
        )
        self.counts = self.of_parts.diagonal()
        self.parts = [[np.zeros(words_of(int(count)), np.uint64) for count in self.counts] for _ in range(self.ranks)]
        where = addresses([bitmap for row in self.parts for bitmap in row])
        holding.mark_parts(self.ranks, at.address(self.sets), words, at.address(self.owners), at.address(where))


NO_CUT = 2**64 - 1


class OnDevice:
    """The agreement by the device's kernels, on ``grid`` blocks, in tiles of ``words`` words of each set."""

    def __init__(self, device: Device, held: np.ndarray, grid: int = 3, words: int = 1) -> None:
        self.device, self.grid, self.words = device, grid, words
        self.ranks, self.units = held.shape
        self.sets = [Piece(self.units, bits_of(mine)).ranked(start=17 * k) for k, mine in enumerate(held)]
        self.far = rubbish(grid * (self.ranks + -(-self.ranks // 4))) if self.ranks > SET_WORDS else None
        self.tiles, count = -(-words_of(self.units) // words), int((held.sum(0) > 1).sum())
        work, alone = (np.zeros(n, np.uint64) for n in (2 + self.tiles, self.ranks))
        self.several, self.masks = rubbish(self.tiles + 1), np.full((count + 1) * -(-self.ranks // 8), 0xA5, np.uint8)
        self.owners, self.starts = np.full(count + 1, 0xFFFF, np.uint16), rubbish(self.ranks * self.tiles)
        loads, self.of_parts = np.full(6 * self.ranks, 7, np.int64), np.zeros((self.ranks, self.ranks), np.uint64)
        self.launch("choose_owners", *self.agreed, work, self.masks, alone, loads, self.of_parts)
        self.digest, work = np.zeros(1, np.uint64), np.zeros(1 + scan_words(self.ranks * self.tiles), np.uint64)
        self.launch("digest_owners", *self.agreed, self.masks, self.digest, self.of_parts, work)

    @property
    def agreed(self) -> tuple[object, ...]:
        """Owners of all units."""
        return self.known(several=self.several, owners=self.owners, starts=self.starts)

    def known(self, **arrays: np.ndarray) -> tuple[object, ...]:
        if self.far is not None:
            arrays["far"] = self.far
        addresses = {name: array.ctypes.data for name, array in arrays.items()}
        made = IndexSets(ranks=self.ranks, words=self.words, **addresses)
        made.arrays = list(arrays.values())
        return table(self.sets), made

    @property
    def counts(self) -> np.ndarray:
        """Units of each rank."""
        return self.of_parts.diagonal()

    def launch(self, name: str, *arguments, rows: int = 1) -> None:
        self.device.launch(f"zenc_{name}", (self.grid, rows), arguments)

    def marked(self, which: list[tuple[int, int]]) -> list[Piece]:
        """Return the segments of ranks and parts, without values."""
        targets = [Piece(int(self.counts[p]), rubbish(words_of(int(self.counts[p]))), part=p) for _, p in which]
        cuts = np.full(self.ranks * self.ranks, NO_CUT, np.uint64)
        for number, (k, p) in enumerate(which):
            cuts[k * self.ranks + p] = number
        work = np.zeros(2, np.uint64)
        self.launch("mark_parts", *self.agreed, self.masks, cuts, table(targets), len(targets), work)
        return [target.ranked(start) for start, target in enumerate(targets)]


def rows_behind(shift: int, rows: int, row_bytes: int) -> np.ndarray:
    """Return zeros [rows, row_bytes], which begin ``shift`` bytes behind an aligned address."""
    return np.zeros(shift + rows * row_bytes, np.uint8)[shift:].reshape(rows, row_bytes)


held_sets = st.tuples(st.integers(1, 9), st.sampled_from(SIZES), st.floats(0, 1), st.integers(0, 2**32), st.booleans())


def drawn_sets(drawn) -> np.ndarray:
    """Draw who holds what: some ranks hold nothing, some hold much more than others, or all hold the same number."""
    ranks, units, density, seed, skewed = drawn
    rng = np.random.default_rng(seed)
    densities = density * rng.choice([0, 0.01, 0.3, 1], (ranks, 1)) if skewed else density
    return rng.random((ranks, units)) < densities


@FUZZ
@given(held_sets.map(drawn_sets), st.integers(1, 4), st.sampled_from(WORDS))
def test_owners_counts_and_digest(device, holding, at, held, grid, words):
    assert agreement_faults(OnDevice(device, held, grid, words), OnHost(holding, at, held)) == []


def agreement_faults(found: OnDevice, wanted: OnHost) -> list[str]:
    owned = np.bincount(wanted.owners, minlength=found.ranks)
    return faults_of(
        other_owners=found.owners[:-1].tolist() == wanted.owners[wanted.of_several].tolist(),
        written_beyond=found.owners[-1] == 0xFFFF and set(found.masks[-found.ranks // 8 :].tolist()) == {0xA5},
        other_counts=found.of_parts.tolist() == wanted.of_parts.tolist(),
        other_starts=found.starts[:: found.tiles].tolist() == (np.cumsum(owned) - owned).tolist(),
        other_digest=int(found.digest[0]) == wanted.digest,
    )


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("ranks", "units"), [(31, 700), (32, 700), (33, 700), (70, 700), (600, 200), (2100, 70)])
def test_more_ranks_than_lanes(device, holding, at, ranks, units):
    """Units have several words of holders; batches, loads and sets are more than a block has room for."""
    held = np.random.default_rng(ranks).random((ranks, units)) < 3 / ranks
    held[:, 5:8] = True
    assert agreement_faults(OnDevice(device, held), OnHost(holding, at, held)) == []


@FUZZ
@given(
    held_sets.map(drawn_sets),
    st.sampled_from([2, 4, 6, 8, 12, 128, 136, 260]),
    st.integers(0, 2**32),
    st.sampled_from(WORDS),
    st.integers(0, 7),
)
def test_rows_are_split_and_joined(device, holding, at, held, row_bytes, seed, words_of_tile, values_before):
    """The result begins anywhere: behind some values, of two bytes or of as many as divide a row."""
    rng = np.random.default_rng(seed)
    found, wanted = OnDevice(device, held, words=words_of_tile), OnHost(holding, at, held)
    tensor = rng.integers(0, 256, (found.units, row_bytes), np.uint8)
    rank, ranks, words = int(rng.integers(found.ranks)), found.ranks, words_of(found.units)

    targets = found.marked([(k, part) for k in range(ranks) for part in range(ranks)])
    for (k, part), target in zip(np.ndindex(ranks, ranks), targets, strict=True):
        assert target.bitmap.tolist() == wanted.parts[k][part].tolist()
    mine = targets[rank * ranks : (rank + 1) * ranks]
    own = np.ascontiguousarray(tensor[held[rank]])
    outs = [np.full((target.count + 1, row_bytes), 0, np.uint8) for target in mine]
    at_any, at_owners = at.address(wanted.any), at.address(wanted.owners)
    places = addresses(outs)
    holding.split_rows(
        at_any, at.address(wanted.bitmaps[rank]), words, at_owners, ranks, at.address(own), row_bytes,
        at.address(places),
    )  # fmt: skip
    for target in mine:
        target.values = np.zeros((target.count + 1, row_bytes), np.uint8)
    found.sets[rank].values = own
    found.launch("split_rows", *found.agreed, rank, table(mine), row_bytes)
    for target, out in zip(mine, outs, strict=True):
        assert np.array_equal(target.values, out)

    whole = [np.ascontiguousarray(tensor[wanted.present[wanted.owners == part]]) for part in range(ranks)]
    parts = table([Piece(len(rows), values=rows) for rows in whole])
    count = len(wanted.present)
    shift = values_before * min(row_bytes & -row_bytes, 8)
    ids, rows = np.full(count + 1, -1, np.int64), rows_behind(shift, count + 1, row_bytes)
    found.launch("join_units", *found.agreed, parts, row_bytes, ids, rows)
    assert ids[-1] == -1 and not rows[-1].any()
    assert np.array_equal(ids[:-1], wanted.present) and np.array_equal(rows[:-1], tensor[wanted.present])
    dense = rows_behind(shift, found.units, row_bytes)
    dense.fill(0xA5)
    found.launch("join_dense", *found.agreed, parts, row_bytes, 0, dense)
    assert np.array_equal(dense, np.where(held.any(0)[:, None], tensor, 0))
    dense.fill(0xA5)
    found.launch("join_dense", *found.agreed, parts, row_bytes, 1, dense)
    assert np.array_equal(dense, np.where(held.any(0)[:, None], tensor, 0xA5))


COMMUNICATIONS = ("point_to_point then ring", "ring", "hierarchy", "point_to_point")
VARIANTS = [
    (communication, aggregation, announce)
    for communication in COMMUNICATIONS
    for aggregation, announce in (("incremental", "ring"), ("one_shot", "point_to_point"))
]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_the_shipped_scheme(size):
    kinds = ("empty_on_one", "many_times", "everything", *KINDS[size % 3 :: 3])
    assert differences(compile("holders", ranks=size), size, kinds, turn=size) == []


@pytest.mark.slow
@pytest.mark.parametrize("size", [4, 6, 7])
def test_the_shipped_scheme_among_other_numbers_of_ranks(size):
    for turn in range(12):
        assert differences(compile("holders", ranks=size), size, KINDS, turn) == []


@pytest.mark.parametrize("number", range(len(VARIANTS)))
def test_any_schedule_that_is_proved(number):
    """Schedules may sum on the way, so that rows of several ranks are forwarded to ranks that are not owners."""
    communication, aggregation, announce = VARIANTS[number]
    text = (
        f"scheme mine {{ communication: {communication} aggregation: {aggregation} partition: parallelism "
        f"balance: balanced by holders announce: {announce} }}"
    )
    size = 4 if "hierarchy" in text else 3 + number % 3
    assert differences(compile_text(text, ranks=size), size, KINDS[number % 2 :: 2], number) == []


def test_many_units_and_duplicates():
    """Everything has more than one block and tile, and choices depend on each other."""
    torch.manual_seed(3)
    artifact = compile("holders", ranks=3)
    indices = [torch.randint(0, 70_000, (1, 20_000)) // (rank + 1) for rank in range(3)]
    inputs = [torch.sparse_coo_tensor(ids, torch.randn(20_000, 2), (70_000, 2)) for ids in indices]
    hosts = collectives(artifact, 3)
    with Emulated(artifact.plan, 3) as ranks:
        for wanted, result in zip(run_all(hosts, inputs), ranks.run(inputs), strict=True):
            assert same_bits([wanted, result.tensor])


@pytest.mark.slow
def test_ranks_that_choose_other_owners_find_out():
    """Every rank names the one whose kernels disagree, before a value moves."""
    plan = compile("holders", ranks=2).plan
    sources = render(type(plan.mapping), "cuda")
    right = "zenc::digest_owners(known.with(tables(sets)), masks, digest, counts, work);"
    assert right in sources["kernels.cu"]
    wrong = sources["kernels.cu"].replace(right, f"{right} if (zenc::thread_of_row() == 0) atomicAdd(digest, 1ULL);")
    image = bytes(kernels({**sources, "kernels.cu": wrong})) + b"\0"
    inputs = [sparse_tensor("random", rank, 2, 63, 3, torch.float32, 1) for rank in range(2)]

    def change_kernels(rank: int) -> None:
        if rank == 1:
            ranks.ranks[1].device.use()
            ranks.unit.unload_kernels(ranks.ranks[1].kernels)
            ranks.ranks[1].kernels = ranks.unit.load_kernels(image)

    with Emulated(plan, 2) as ranks:
        ranks.each(change_kernels)
        found = ranks.run(inputs)
    for rank, error in enumerate(found):
        assert isinstance(error, SynchronisationError)
        assert error.diagnostics[0].id == "different-calls"
        assert f"rank {1 - rank}" in str(error) and "other owners" in str(error)


def test_an_id_out_of_range_is_told():
    bad = torch.sparse_coo_tensor([[5, 63, 1]], torch.ones(3, 2), (63, 2), check_invariants=False)
    good = sparse_tensor("random", 1, 2, 63, 2, torch.float32, 1)
    with Emulated(compile("holders", ranks=2).plan, 2, deadline=5.0) as ranks:
        error, _ = ranks.run([bad, good])
    assert error.diagnostics[0].id == "unit-out-of-range" and "position 1" in str(error)
