"""The same calls on both targets: threads over gloo's stand-in, and threads over the emulator or a GPU."""

from __future__ import annotations

from tests.gpu.machine import Machine
from tests.support.cases import DTYPES, assert_same_bits, dense_tensor, sparse_tensor, with_one_nan
from tests.support.emulated import Emulated, Result
from tests.support.local import collectives, run_all
from zenc.codegen.artifact import Artifact
from zenc.runtime.collective import Collective

WIDTHS, UNITS = (1, 5, 64), (1, 63, 200)


def assert_same(
    artifact: Artifact,
    size: int,
    kinds: tuple[str, ...],
    turn: int = 0,
    machine: Machine | None = None,
) -> None:
    """Both targets sum the same tensors: bits, counts, and bytes by format are equal.

    On a ``machine`` that is given, a sum may be any NaN where the CPU's is one.
    """
    seen = with_one_nan if machine else lambda tensor: tensor
    hosts = collectives(artifact, size)
    with Emulated(artifact.plan, size, machine=machine) as ranks:
        for kind in kinds:
            width, units, dtype = WIDTHS[turn % 3], UNITS[(turn + size) % 3], DTYPES[turn % 4]
            make = dense_tensor if turn % 3 == 2 else sparse_tensor
            inputs = [make(kind, rank, size, units, width, dtype, turn) for rank in range(size)]
            op = "mean" if turn % 2 else "sum"
            found = ranks.run([tensor.clone() for tensor in inputs], op)
            for wanted, result, host in zip(run_all(hosts, inputs, op), found, hosts, strict=True):
                assert isinstance(result, Result), result
                assert_same_bits([seen(wanted), seen(result.tensor)])
                assert_same_counts(host, result)
            turn += 1


def assert_same_counts(host: Collective, result: Result) -> None:
    stats = host.stats
    assert (sum(result.counts_in), sum(result.counts_out)) == (stats["units_in"], stats["units_out"])
    counts = dict(zip(("push", "pull", "announce"), result.call.phases, strict=True))
    for phase, wanted in stats["phases"].items():
        counted = counts[phase]
        assert (counted.messages_sent, counted.messages_received) == (
            wanted["messages_sent"],
            wanted["messages_received"],
        )
        for way, formats in (("sent", counted.sent()), ("received", counted.received())):
            names = {format.value: size for format, size in formats.items()}
            wanted_sizes = {format: size for format, size in wanted[f"formats_{way}"].items() if size}
            if "values" in wanted_sizes:  # they have no index, and so count as dense
                wanted_sizes["dense"] = wanted_sizes.pop("values")
            assert names == wanted_sizes
            assert getattr(counted, f"bytes_{way}") >= sum(formats.values())
