"""Jobs of ranks in the tests of the run time; each takes the group first and returns what can be pickled."""

import hashlib
import itertools
import os
import time
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

import zenc
from tests.support.cases import DTYPES, KINDS, dense_tensor, sparse_tensor, wrong_sums
from tests.support.exact import positive
from zenc.rank_ir.ir import Statement
from zenc.runtime.cpu.executor import SegmentInterpreter

DEADLINE = 60.0


def load(group: dist.ProcessGroup, text: str, deadline: float = DEADLINE, **options: Any) -> zenc.Collective:
    return zenc.load(zenc.compile_text(text, **options), group, deadline=deadline)


def both_ways(artifact: zenc.Artifact, group: dist.ProcessGroup) -> list[zenc.Collective]:
    """Return each way of exchange: through shared memory, and over the wire."""
    return [zenc.load(artifact, group, deadline=DEADLINE, shared_memory=shared) for shared in (True, False)]


def bits(tensor: torch.Tensor) -> str:
    """Return a fingerprint of all bits of a tensor, and of a sparse one's indices."""
    pieces = [tensor._indices(), tensor._values()] if tensor.is_sparse else [tensor]
    return hashlib.sha256(b"".join(bytes(p.contiguous().view(torch.uint8).numpy()) for p in pieces)).hexdigest()


def combinations(group: dist.ProcessGroup, texts: list[str], turn: int, scheme: str | None = None) -> list[str]:
    """Check the sums of all ``texts`` with inputs in rotation, and return fingerprints of all results."""
    found = []
    for place, text in enumerate(texts):
        artifact = zenc.compile_text(text, ranks=group.size(), scheme=scheme)
        found += sums(group, both_ways(artifact, group), turn + 3 * place)
    return found


def shipped(group: dist.ProcessGroup, schemes: list[tuple[str, dict[str, int]]], turn: int) -> list[str]:
    """Check the sums of shipped schemes with values of their parameters, and return fingerprints."""
    found = []
    for place, (name, parameters) in enumerate(schemes):
        artifact = zenc.compile(name, ranks=group.size(), params=parameters)
        found += sums(group, both_ways(artifact, group), turn + 3 * place)
    return found


def sums(group: dist.ProcessGroup, ways: list[zenc.Collective], turn: int) -> list[str]:
    """Sum three inputs twice each, and check that sums are right and have the same bits both ways."""
    rank, size = group.rank(), group.size()
    found = []
    for step in range(3):
        kind, dtype = KINDS[(turn + step * 3) % len(KINDS)], DTYPES[turn % len(DTYPES)]
        make, width = (dense_tensor, 3) if turn % 3 == 2 else (sparse_tensor, (1, 3, 64, 1000)[turn % 4])
        inputs = [make(kind, r, size, (1, 65, 301)[turn % 3], width, dtype, turn) for r in range(size)]
        twice = [way.all_reduce(inputs[rank].clone(), "mean" if turn % 2 else "sum") for way in ways]
        assert bits(twice[0]) == bits(twice[1])
        assert wrong_sums(twice[:1], inputs, divisor=size if turn % 2 else 1) == []
        found.append(bits(twice[0]))
        turn += 1
    return found


def in_flight(group: dist.ProcessGroup, text: str) -> list[str]:
    """Run two collectives, torch's own all-reduce between them, and calls that nobody waits for."""
    rank, size = group.rank(), group.size()
    first, second = load(group, text, ranks=size), load(group, text.replace("combination", "other"), ranks=size)
    tensors = [
        [sparse_tensor("random", r, size, 5000, 8, torch.float32, call) for r in range(size)] for call in range(6)
    ]
    works, plain = [], torch.full((1000,), float(rank))
    for call, inputs in enumerate(tensors):
        works.append((first if call % 2 else second).all_reduce(inputs[rank], async_op=True))
        own = dist.all_reduce(plain, group=group, async_op=True)
        first.all_reduce(inputs[rank], "mean", async_op=True)  # forgotten
        own.wait()
        plain.fill_(float(rank))
    results = [work.wait() for work in works]
    for result, inputs in zip(results, tensors, strict=True):
        assert wrong_sums([result], inputs) == []
    future = second.all_reduce(tensors[0][rank], async_op=True).get_future()
    assert bits(future.wait()) == bits(results[0])
    return [bits(result) for result in results]


def publishes(group: dist.ProcessGroup) -> bool:
    """Publish a model's weights twice, once without waiting, then sum; return whether this rank has both."""
    old, new = [torch.zeros(3000, 100), torch.ones(7)], [torch.full((3000, 100), 0.5), torch.ones(7)]
    new[1][2] = 2.0
    root = group.size() - 1
    job = zenc.broadcast_update(old[0], new[0] if group.rank() == root else None, root, group=group, async_op=True)
    done = zenc.broadcast_update(old, new if group.rank() == root else None, root, group=group)
    summed = zenc.load("balanced", group, deadline=DEADLINE).all_reduce(torch.ones(5))
    held = all(torch.equal(each, wanted) for each, wanted in zip(old, new, strict=True))
    return held and job.wait().changed == 300_000 and done.changed == 1 and summed.tolist() == [group.size()] * 5


def statistics(group: dist.ProcessGroup, text: str, dense: bool = False) -> dict[str, Any]:
    collective = load(group, text)
    make = dense_tensor if dense else sparse_tensor
    collective.all_reduce(make("random", group.rank(), group.size(), 3000, 16, torch.float32, 3))
    return collective.stats


def error_of(group: dist.ProcessGroup, call: str, **arguments: Any) -> tuple[str, str, float]:
    """Return (class, text, seconds) of the ZencError that the job ``call`` of this module raises."""
    started = time.perf_counter()
    try:
        globals()[call](group, **arguments)
    except zenc.ZencError as error:
        return type(error).__name__, str(error), time.perf_counter() - started
    return "", "", time.perf_counter() - started


def other_schemes(group: dist.ProcessGroup, texts: list[str]) -> None:
    load(group, texts[group.rank() % len(texts)])


def one_fails_to_load(group: dist.ProcessGroup, path: str, broken: str) -> None:
    zenc.load(broken if group.rank() == 1 else path, group, deadline=DEADLINE)


def load_saved(group: dist.ProcessGroup, directory: str) -> None:
    zenc.load(directory, group, deadline=DEADLINE)


def one_does_not_come(group: dist.ProcessGroup, text: str, deadline: float) -> None:
    if group.rank() != 0:
        load(group, text, deadline)


def other_shapes(group: dist.ProcessGroup, text: str) -> None:
    collective = load(group, text, deadline=10)
    collective.all_reduce(torch.ones(100 + 7 * (group.rank() == 1)))


def other_shapes_while_choosing(group: dist.ProcessGroup) -> None:
    zenc.load("auto", group, deadline=10).all_reduce(torch.ones(100 + 7 * (group.rank() == 1)))


def one_skips_a_call(group: dist.ProcessGroup, text: str, deadline: float) -> None:
    collective = load(group, text, deadline)
    collective.all_reduce(torch.ones(100))
    if group.rank() != 1:
        collective.all_reduce(torch.ones(100))
    else:
        time.sleep(deadline * 3)


def dies_before(group: dist.ProcessGroup, scheme: str, statement: int, shared: bool, deadline: float) -> None:
    """Make rank 1 die before a statement of its second call."""
    collective = zenc.load(scheme, group, deadline=deadline, shared_memory=shared)
    collective.all_reduce(torch.ones(50_000))
    if group.rank() == 1:
        statements = itertools.count()
        play = SegmentInterpreter.play

        def dying(self: SegmentInterpreter, what: Statement) -> None:
            if next(statements) == statement:
                os._exit(1)
            play(self, what)

        SegmentInterpreter.play = dying
    collective.all_reduce(torch.ones(50_000))


def after_a_failure(group: dist.ProcessGroup, text: str) -> str:
    """Return the error of a call on a group that has failed before."""
    collective = load(group, text, deadline=10)
    for _ in range(2):
        try:
            collective.all_reduce(torch.ones(100 + 7 * (group.rank() == 1)))
        except zenc.ZencError as error:
            last = error.diagnostics[0].id
    return last


def short_packets(group: dist.ProcessGroup) -> bool:
    """Check that gloo takes a packet into a larger buffer and leaves the rest alone."""
    if group.rank() == 0:
        group.send([torch.arange(10, dtype=torch.uint8)], 1, 5).wait()
        return True
    buffer = torch.full((64,), 99, dtype=torch.uint8)
    group.recv([buffer], 0, 5).wait()
    return buffer[:10].tolist() == list(range(10)) and bool((buffer[10:] == 99).all())


def statistics_of_rows(
    group: dist.ProcessGroup, text: str, rows: list[list[int]], units: int, width: int
) -> dict[str, Any]:
    """Return the statistics of a call in which rank r holds ``rows[r]``."""
    ids = torch.tensor(rows[group.rank()])[None]
    values = torch.ones(ids.shape[1], width)
    collective = load(group, text)
    collective.all_reduce(torch.sparse_coo_tensor(ids, values, (units, width), check_invariants=False))
    return collective.stats


def counted(group: dist.ProcessGroup, text: str, dense: bool, **case: Any) -> dict[str, Any]:
    collective = load(group, text, ranks=group.size())
    make = dense_tensor if dense else sparse_tensor
    collective.all_reduce(positive(make(rank=group.rank(), size=group.size(), **case)))
    return collective.stats


def forks_after_loading(group: dist.ProcessGroup) -> tuple[str, list[float]]:
    """Return, after a fork, the child's error when it calls as if it were a rank, and the parent's sum afterwards."""
    collective = zenc.load("balanced", group, deadline=30)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            collective.all_reduce(torch.ones(3))
        except zenc.ZencError as error:
            os.write(writing, str(error).partition(":")[0].encode())
        os._exit(0)
    os.waitpid(child, 0)
    return os.read(reading, 100).decode(), collective.all_reduce(torch.full((3,), group.rank() + 1.0)).tolist()


def chosen(
    group: dist.ProcessGroup, text: str, densities: list[float], units: int = 20_000, width: int = 4
) -> dict[str, Any]:
    """Make calls on random rows of each of ``densities``; return the scheme of each, and all decisions."""
    collective, random = load(group, text), torch.Generator().manual_seed(group.rank())
    ran, results = [], []
    for density in densities:
        rows = torch.randperm(units, generator=random)[: round(density * units)].sort().values
        values = torch.ones(len(rows), width) * (1 + rows[:, None] % 7)
        gradient = torch.sparse_coo_tensor(rows[None], values, (units, width), check_invariants=True)
        with mock.patch("zenc.runtime.choice.autoselect.MOST_TENSORS", 0):
            collective.all_reduce(torch.ones(1 + len(ran)))  # however many have no name, those with one are known
        total = collective.all_reduce(gradient, name="table")
        held = torch.zeros(units)
        held[rows] = 1
        dist.all_reduce(held, group=group)
        expected = held * (1 + torch.arange(units) % 7)
        assert torch.equal(total.to_dense()[:, 0], expected), "the sum is wrong"
        choice = collective.stats["choice"]
        assert set(choice) == {"scheme", "seconds_expected", "trial", "seconds_of_first"}
        ran.append(choice["scheme"])
        results.append(bits(total))
    decisions = [each.to_json() for each in collective.decisions if each.tensor == "table"]
    return {"ran": ran, "results": results, "decisions": decisions}


def without_compiler(group: dist.ProcessGroup, folder: str, empty: str) -> list[str]:
    """Load a choice from ``folder``, whose second candidate rank 0 can't build: its cache is empty."""
    collective, told, before = zenc.load(folder, group, deadline=DEADLINE), [], dict(os.environ)
    for call in range(3):
        if call == 1 and group.rank() == 0:
            os.environ |= {"CXX": "/no/such/compiler", "ZENC_CACHE_DIR": empty}
        try:
            collective.all_reduce(torch.ones(64))
        except zenc.ZencError as error:
            told.append(error.diagnostics[0].id)
        else:
            told.append(collective.stats["choice"]["scheme"])
    for variable in ("CXX", "ZENC_CACHE_DIR"):
        os.environ.pop(variable, None)
    os.environ.update(before)
    return told


def other_choices(group: dist.ProcessGroup) -> None:
    """Load a choice on ranks that would look at different calls."""
    load(group, f"scheme mine {{ choose(every = {5 + group.rank()}) from [balanced, sparcml] }}")


def left_alone(group: dist.ProcessGroup, calls: int) -> str:
    """Return rank 0's error where rank 1 stops after a number of calls."""
    collective = zenc.load("auto", dist.new_group([0, 1]), deadline=2.0)
    try:
        for call in range(calls + 1):
            if call < calls or group.rank() == 0:
                collective.all_reduce(torch.ones(300, 4).to_sparse(1), name="table")
    except zenc.SynchronisationError as error:
        return f"{error.diagnostics[0].id}: {error.diagnostics[0].message}"
    time.sleep(4)
    return "none"
