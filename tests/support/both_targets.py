"""Calls on both targets: threads over gloo's stand-in, and threads over the emulator or a GPU."""

from tests.gpu.machine import Machine
from tests.support.cases import DTYPES, dense_tensor, same_bits, sparse_tensor, with_one_nan
from tests.support.emulated import Emulated, Result
from tests.support.local import collectives, run_all
from zenc.codegen.artifact import Artifact
from zenc.runtime.call.stats import CallReport
from zenc.runtime.gpu.call_args import CallArgs

WIDTHS, UNITS = (1, 5, 64), (1, 63, 200)


def differences(
    artifact: Artifact,
    size: int,
    kinds: tuple[str, ...],
    turn: int = 0,
    machine: Machine | None = None,
    **shares: list[float],
) -> list[str]:
    """Return differences between both targets, which sum the same tensors: in bits, counts, and bytes by format.

    On a given ``machine``, a sum may be any NaN where the CPU's is one. Of ``shares``, which must suffice, bytes are
    their own.
    """
    seen = with_one_nan if machine else lambda tensor: tensor
    hosts, wrong = collectives(artifact, size), list[str]()
    with Emulated(artifact.plan, size, machine=machine) as ranks:
        for kind in kinds:
            width, units, dtype = WIDTHS[turn % 3], UNITS[(turn + size) % 3], DTYPES[turn % 4]
            make = dense_tensor if turn % 3 == 2 else sparse_tensor
            inputs = [make(kind, rank, size, units, width, dtype, turn) for rank in range(size)]
            op = "mean" if turn % 2 else "sum"
            found = ranks.run([tensor.clone() for tensor in inputs], op, **shares)
            for wanted, result, host in zip(run_all(hosts, inputs, op), found, hosts, strict=True):
                if not isinstance(result, Result):
                    raise result
                faults = [] if same_bits([seen(wanted), seen(result.tensor)]) else ["other bits"]
                stats, call = host.stats, result.call
                units = (sum(result.counts_in), sum(result.counts_out)) == (stats["units_in"], stats["units_out"])
                faults += [] if units and not call.made_again else ["other units, or made again"]
                faults += [] if shares else other_bytes(stats, call)
                wrong += [f"{kind}, turn {turn}: {each}" for each in faults]
            turn += 1
    return wrong


def other_bytes(stats: CallReport, call: CallArgs) -> list[str]:
    counts, found = dict(zip(("push", "pull", "announce"), call.phases, strict=True)), list[str]()
    for phase, wanted in stats["phases"].items():
        counted = counts[phase]
        for way, formats in (("sent", counted.sent()), ("received", counted.received())):
            names = {format.value: size for format, size in formats.items()}
            sizes = {format: size for format, size in wanted[f"formats_{way}"].items() if size}
            if "values" in sizes:  # they have no index, and so count as dense
                sizes["dense"] = sizes.pop("values")
            messages = getattr(counted, f"messages_{way}") == wanted[f"messages_{way}"]
            whole = getattr(counted, f"bytes_{way}") >= sum(formats.values())
            if not (messages and whole and names == sizes):
                found.append(f"other messages or bytes {way} in the {phase}")
    return found
