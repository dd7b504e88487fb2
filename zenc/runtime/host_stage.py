"""What a collective keeps between calls in host memory, and how it opens one: over a cut that is fixed, or by holders.

Stage = plan proved for this group, program of this rank, room for first packets
prepare(layout) -> open(envelope) -> HostCall of an Exchange | HolderExchange
"""

from __future__ import annotations

from dataclasses import replace

from zenc.plan.cargo import verify_with_cargo
from zenc.plan.model import Plan
from zenc.plan.program import program
from zenc.plan.verify import verify
from zenc.runtime.exchange import Exchange
from zenc.runtime.holders import HolderExchange
from zenc.runtime.host import HostCall
from zenc.runtime.inbox import Room
from zenc.runtime.layout import Layout
from zenc.runtime.phases import rank_phases
from zenc.runtime.reduction import Opener, Stage
from zenc.runtime.segments import Workshop
from zenc.runtime.transport import Transport
from zenc.scheme.model import Holders
from zenc.targets.cpu.holders import HolderKernels
from zenc.targets.cpu.kernels import Kernels


def host_stage(plan: Plan, kernels: Kernels, transport: Transport, deadline: float) -> Stage:
    """Prove ``plan`` for the ranks of ``transport``; raises VerificationError."""
    make = _by_holders if isinstance(plan.mapping, Holders) else _over_a_cut
    return make(plan, kernels, transport, deadline)


def _over_a_cut(plan: Plan, kernels: Kernels, transport: Transport, deadline: float) -> Stage:
    rounds, proof = verify(plan, transport.size)
    phases, room = rank_phases(plan, program(rounds, transport.rank), transport.size), Room()

    def prepare(layout: Layout) -> Opener:
        workshop = Workshop(kernels, kernels.geometry(layout.units, layout.width, proof.parts), layout)
        return lambda call: HostCall(Exchange(plan.scheme, phases, transport, workshop, call, deadline, room), layout)

    return prepare


def _by_holders(plan: Plan, kernels: Kernels, transport: Transport, deadline: float) -> Stage:
    rounds, _, cargo = verify_with_cargo(plan, transport.size, transport.rank)
    steps, room, holding = program(rounds, transport.rank), Room(), HolderKernels(kernels.path)

    def prepare(layout: Layout) -> Opener:
        whole = Workshop(kernels, kernels.geometry(layout.units, layout.width, 1), layout)
        sets = Workshop(kernels, kernels.geometry(layout.units, 0, 1), replace(layout, width=0))
        return lambda call: HostCall(
            HolderExchange(plan, steps, cargo, transport, whole, sets, holding, call, deadline, room), layout
        )

    return prepare
