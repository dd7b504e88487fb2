"""The prediction of a model's step by a strategy that is written down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zenc.common.wording import seconds_text
from zenc.errors import CostError, Diagnostic
from zenc.simulator.calibration import Calibration
from zenc.simulator.network import Network
from zenc.strategy.merging import ends_of
from zenc.strategy.model import Cuts, Strategy
from zenc.strategy.search.tuned import proved
from zenc.strategy.search.tuning import StrategyResult, buckets, simulated
from zenc.strategy.simulation.model_step import ModelStep
from zenc.strategy.simulation.replay import Replay, replay
from zenc.strategy.simulation.scheme_calls import ON_HOST, SchemeTable, StepCalls
from zenc.strategy.simulation.step import VALUE_BYTES, TrainingStep
from zenc.topology.model import Topology


@dataclass(frozen=True, slots=True, eq=False)
class PredictedStep:
    """A step by a strategy: the ``result``, the scheme of each tensor in it, and the ``replay`` of the groups."""

    step: TrainingStep
    merged: TrainingStep
    result: StrategyResult
    replay: Replay
    labels: tuple[str, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return JSON data; seconds."""
        return {**self.result.to_json(), "computing": self.step.computing, "notes": list(self.notes)}

    def text(self) -> str:
        """Return the times of the step, in words, a line each."""
        result, computing = self.result, self.step.computing
        calls = sum(label.count(" + ") + 1 for label in self.labels)
        lines = [
            f"a step of {seconds_text(result.seconds)}, {result.seconds / computing:.2f} times its computation alone",
            f"exposed communication: {seconds_text(result.exposed)}, of which {seconds_text(result.exposed_computing)} "
            "are selections, codes and sums",
            f"{calls} calls in {len(self.merged.tensors)} groups of {len(self.step.tensors)} tensors",
        ]
        return "\n".join([*lines, *self.notes])


def predict_step(
    of: ModelStep,
    strategy: Strategy,
    network: Network,
    calibration: Calibration,
    topology: Topology | None = None,
    host: Calibration | None = None,
) -> PredictedStep:
    """Return the step of ``of`` by ``strategy``: the first of a rule's candidates sums the tensors it matches.

    Rules ``on host`` take what ``host`` says, the calibration of the processors beside GPUs; without one nothing more
    than others do, as where no rank has a GPU.
    Groups that are searched at run time are predicted as DDP's buckets. Raises CostError (``wrong-range``) where
    groups end beyond the last tensor, VerificationError for schemes that don't run among the network's ranks, and
    TopologyError for those that do not suit the ``topology``.
    """
    step = of.step
    plans = {name: proved(each, network.size, topology) for name, each in strategy.candidates.items()}
    table = SchemeTable(plans, network, calibration, host)
    schemes = []
    for at, tensor in enumerate(step.tensors):
        rule = strategy.matching(tensor.name, tensor.numel * VALUE_BYTES)
        name = rule.candidates[0].name + (ON_HOST if host and rule.device == "host" else "")
        if at in of.tables:
            label = f"{tensor.name} by {name}"
            table.fix(label, table.plans[name], of.tables[at])
            name = label
        schemes.append(name)
    ends = ends_of(strategy.groups, step, buckets(step))
    if isinstance(strategy.groups, Cuts) and ends and ends[-1] >= len(step.tensors):
        message = f"a group ends before tensor {ends[-1]}, and the model has {len(step.tensors)}"
        raise CostError(Diagnostic("wrong-range", message, help="count tensors as gradients become ready"))
    result = simulated(step, ends, table, schemes)
    calls, merged = StepCalls(step, ends, table, schemes), step.merged(ends)
    labels = tuple(" + ".join(dict.fromkeys(calls.called(group))) for group in range(len(merged.tensors)))
    alike = "rules on host take what others do here: --host takes the calibration of hosts beside GPUs"
    missing = not host and any(rule.device == "host" for rule in strategy.rules)
    notes = tuple(filter(None, (calibration.note, *table.host_notes, alike if missing else "")))
    return PredictedStep(step, merged, result, replay(merged, calls.operations()), labels, notes)
