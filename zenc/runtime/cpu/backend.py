"""What a collective keeps between calls in host memory, and how it opens one: over a cut that is fixed, or by holders.

Stage = plan proved for this group, program of this rank, room for first packets
prepare(layout) -> open(envelope) -> HostCall of an Exchange | HolderExchange
"""

from __future__ import annotations

from dataclasses import replace

from zenc.plan.ir import Plan
from zenc.plan.rank_schedule import program
from zenc.runtime.backend_api import Opener, Stage
from zenc.runtime.cpu.call import HostCall
from zenc.runtime.cpu.executor import Exchange
from zenc.runtime.cpu.holder_executor import HolderExchange
from zenc.runtime.cpu.holder_kernels import HolderKernels
from zenc.runtime.cpu.inbox import Room
from zenc.runtime.cpu.kernels import Kernels
from zenc.runtime.cpu.rank_phases import rank_phases
from zenc.runtime.cpu.segments import SegmentOps
from zenc.runtime.cpu.transport import Transport
from zenc.runtime.layout import Layout
from zenc.scheme.model import Holders
from zenc.verify.incoming import verify_with_cargo
from zenc.verify.proof import verify


def host_stage(plan: Plan, kernels: Kernels, transport: Transport, deadline: float) -> Stage:
    """Prove ``plan`` for the ranks of ``transport``; raises VerificationError."""
    make = _by_holders if isinstance(plan.mapping, Holders) else _over_a_cut
    return make(plan, kernels, transport, deadline)


def _over_a_cut(plan: Plan, kernels: Kernels, transport: Transport, deadline: float) -> Stage:
    rounds, proof = verify(plan, transport.size)
    phases, room = rank_phases(plan, program(rounds, transport.rank), transport.size), Room()

    def prepare(layout: Layout) -> Opener:
        workshop = SegmentOps(kernels, kernels.geometry(layout.units, layout.width, proof.parts), layout)
        return lambda call: HostCall(Exchange(plan.scheme, phases, transport, workshop, call, deadline, room), layout)

    return prepare


def _by_holders(plan: Plan, kernels: Kernels, transport: Transport, deadline: float) -> Stage:
    rounds, _, cargo = verify_with_cargo(plan, transport.size, transport.rank)
    steps, room, holding = program(rounds, transport.rank), Room(), HolderKernels(kernels.path)

    def prepare(layout: Layout) -> Opener:
        whole = SegmentOps(kernels, kernels.geometry(layout.units, layout.width, 1), layout)
        sets = SegmentOps(kernels, kernels.geometry(layout.units, 0, 1), replace(layout, width=0))
        return lambda call: HostCall(
            HolderExchange(plan, steps, cargo, transport, whole, sets, holding, call, deadline, room), layout
        )

    return prepare
