"""Forms of schemes for sparse gradients: trees in chunks, by holders or permuted, and owners; the quickest is found.

Of sparse gradients a permuted tree carries the sum of all ranks also to those that had some of it. By holders each
link carries the least that any scheme does where links make a tree: a row, or a sum of it, in one direction or both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from zenc.errors import ZencError
from zenc.gradients.profile import Profile
from zenc.language.files import load_text
from zenc.plan.ir import Plan
from zenc.plan.lower import lower
from zenc.scheme.resolve import resolve
from zenc.simulator.calibration import DEFAULTS, ESTIMATES
from zenc.simulator.predict import network as network_of
from zenc.simulator.predict import predict_on
from zenc.synthesize.loads import Packing
from zenc.synthesize.write import Form, name_for, scheme_text
from zenc.topology.model import Topology

CHUNKS = 1, 4, 8, 16
"""Numbers of chunks that are tried: small messages have latency, and each takes processor time."""
MOST_MOVES = 2_000_000
"""Most moves of a form that is tried, times the kinds of ranks, if there is another one."""
GAIN = 1.05
"""The least gain for which a form of more messages is taken: predictions are no better, and messages take time."""


def plan_of(topology: Topology, down: Packing, up: Packing | None, form: Form) -> Plan:
    """Return the plan of the scheme of ``form``, not proved yet."""
    return next(plans_of(topology, down, up, form, [form.chunks]))


def plans_of(
    topology: Topology, down: Packing, up: Packing | None, form: Form, chunks: Iterable[int]
) -> Iterator[Plan]:
    """Yield the plans of the scheme of ``form`` in each number of ``chunks``, not proved yet."""
    name = name_for(topology)
    file = load_text(scheme_text(topology, down, up, form), f"{name}.zen")
    for each in chunks:
        scheme, _ = resolve(file, name, {"chunks": each} if form.chunks else {})
        yield lower(scheme, topology.size)


def forms(topology: Topology, down: Packing, chunks: int | None = None) -> Iterator[Form]:
    """Yield the forms for sparse gradients, those of the fewest messages first, or of trees in ``chunks``.

    GPUs do not cut what an owner has.
    """
    kinds, moves = len(down.rotation.roots), 2 * topology.size**2 * down.each
    if chunks is None:
        yield Form(0, by_holders=True)
    for each in CHUNKS if chunks is None else (chunks,):
        if each == 1 or each == chunks or moves * each * kinds <= MOST_MOVES:
            if not topology.has_gpus or each * down.each == 1:
                yield Form(each, by_holders=True)
            yield Form(each)


def quickest(
    topology: Topology, down: Packing, up: Packing | None, profile: Profile, chunks: int | None = None
) -> tuple[Form, Plan, float]:
    """Return the form that is the quickest of all for gradients like ``profile``, its plan and the predicted seconds.

    Predicted by the simulator, with usual kernels; forms with messages that have no way are left out.
    """
    known, best = ESTIMATES if topology.has_gpus else DEFAULTS, None
    network = network_of(topology, topology.size, known)
    for form in forms(topology, down, chunks):
        plan = plan_of(topology, down, up, form)
        try:
            seconds = predict_on(plan, profile, network, known).seconds
        except ZencError:
            continue
        if best is None or seconds * GAIN < best[2]:
            best = form, plan, seconds
    assert best is not None, "trees have ways"
    return best
