"""Predictions as functions: the time of schemes, the best one, and whether zenc is worth it for a model.

``zenc.simulate``, ``zenc.tune`` and ``zenc.advise``; of whole steps ``zenc.tune_strategy`` and ``zenc.simulate_step``.
Gradients, links and calibrations are given as objects, or as what a command line would say: the path of a file,
``'25 Gbit/s'``, ``'nodes(4, gpus = 8)'``. Nothing is run or sent, and no GPU or network is needed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from zenc.analysis.fit import units_of
from zenc.common.arguments import names_wrong_types
from zenc.errors import CostError, Diagnostic
from zenc.gradients.profile import Profile
from zenc.gradients.profile_io import read_profiles
from zenc.language.files import load_file, locate
from zenc.pipeline.request import Request, bandwidth_of
from zenc.pipeline.shown import planners_of
from zenc.scheme.library import shipped
from zenc.select import search
from zenc.select.search import TunedScheme
from zenc.simulator.calibration import Calibration, Device, assumed, read_calibration
from zenc.simulator.network import Network
from zenc.simulator.predict import network
from zenc.simulator.sweep import Simulation, SweepPoint
from zenc.simulator.sweep import simulate as sweep
from zenc.simulator.training import advice as advising
from zenc.simulator.training.advice import Advice
from zenc.simulator.training.model_profile import (
    ModelProfile,
    load_of,
    load_of_model,
    read_gradients,
    read_model_profile,
)
from zenc.strategy.predicted_step import PredictedStep, predict_step
from zenc.strategy.resolve import resolve_strategy
from zenc.strategy.search.tuned import DEFAULT_SCHEMES, TunedStrategy, candidates_of
from zenc.strategy.search.tuned import tune_strategy as searched
from zenc.strategy.simulation.model_step import ModelStep, step_of
from zenc.topology.load import load_topology
from zenc.topology.model import Topology

File: TypeAlias = str | os.PathLike[str]
Gradients: TypeAlias = File | Profile | Iterable[Profile] | Mapping[str, Profile] | ModelProfile
Cluster: TypeAlias = Topology | str
Bandwidth: TypeAlias = float | str
DEFAULT_RANKS = 8


@names_wrong_types
def simulate(
    schemes: File | Iterable[File],
    gradients: Gradients,
    *,
    ranks: int | Iterable[int] | None = None,
    bandwidth: Bandwidth | None = None,
    topology: Cluster | None = None,
    calibration: Calibration | File | None = None,
    device: Device | None = None,
    params: Mapping[str, str] | None = None,
    ready: Mapping[str, float] | None = None,
    trace: bool = False,
    link: Bandwidth | None = None,
) -> Simulation:
    """Predict the time of ``schemes`` to sum ``gradients``, one call after another, as ``zenc simulate`` does.

        found = zenc.simulate(["balanced", "holders"], "model.json", ranks=[8, 16], bandwidth="1 Gbit/s")
        found.points[0].outcomes[0].scheme, found.points[0].outcomes[0].seconds         # the best at 8 ranks

    Args:
        schemes: files, or names of schemes that come with zenc.
        gradients: profiles, or the path of a file that ``zenc.Profiler`` or a dry run wrote.
        ranks: their number; several make a point each. Default: the topology's, or 8.
        bandwidth: of each rank's link to one switch, each way: bytes a second, or a text such as ``'25 Gbit/s'``.
        topology: links instead, as ``zenc.load_topology`` takes them.
        calibration: that of ``zenc calibrate``, or its file. Default: a guess, which ``notes`` of the result say.
        device: ``cpu`` or ``gpu``: whose kernels are guessed. Default: as the topology has it.
        params: values of the schemes' parameters.
        ready: name of a gradient -> seconds from the start of the backward pass until it is there.
        trace: keep the work of ranks over time.
        link: choose formats by seconds over links of this bandwidth, as ``zenc.compile`` does.

    Returns:
        Points, best scheme first; seconds and bytes. ``to_json()`` has everything.

    Raises:
        CostError: no scheme suits these numbers of ranks, or a file holds no profile or calibration.
        SchemeError, VerificationError, TopologyError: as ``zenc.check`` does.
    """
    cluster = _cluster(topology)
    known = _known(calibration, bandwidth, cluster, device)
    sizes = _sizes(ranks, cluster)
    summed = _profiles(gradients)
    places = [SweepPoint(size, summed, cluster, known, ready or {}) for size in sizes]
    files = [schemes] if isinstance(schemes, str | os.PathLike) else list(schemes)
    return sweep(planners_of(files, Request(params=params, topology=cluster, link=link)), places, trace=trace)


@names_wrong_types
def tune(
    gradients: Gradients,
    *,
    ranks: int | None = None,
    bandwidth: Bandwidth | None = None,
    topology: Cluster | None = None,
    calibration: Calibration | File | None = None,
    device: Device | None = None,
    lossy: File | Iterable[File] = (),
    progress: search.Progress = lambda _: None,
) -> TunedScheme:
    """Search for the scheme that takes least time for ``gradients``, as ``zenc tune`` does.

        Path("best.zen").write_text(zenc.tune("model.json", ranks=8, bandwidth="1 Gbit/s").text())

    Args are those of ``zenc.simulate``; ``progress`` is called with the present trial. The search takes some seconds.
    ``lossy``: schemes that lose something, which are tried as well: files or names, or ``"all"`` that come with zenc.
    No other one does.

    Returns:
        The best schemes, proved, the first one first; ``text()`` is its file, ``rows()`` the table.

    Raises:
        CostError: no scheme runs there (``no-scheme-found``), or a file holds no profile or calibration.
        TopologyError: as ``zenc.load_topology`` does.
    """
    cluster = _cluster(topology)
    (size,) = _sizes(ranks, cluster)
    known = _known(calibration, bandwidth, cluster, device)
    return search.tune(list(_profiles(gradients).values()), size, cluster, known, progress, _lossy(lossy))


@names_wrong_types
def tune_strategy(
    model: ModelProfile | File,
    schemes: str = DEFAULT_SCHEMES,
    *,
    ranks: int | None = None,
    bandwidth: Bandwidth | None = None,
    topology: Cluster | None = None,
    calibration: Calibration | File | None = None,
    device: Device | None = None,
    host: Calibration | File | None = None,
    groups: int = 2,
    progress: search.Progress = lambda _: None,
) -> TunedStrategy:
    """Search for the strategy with which a step of ``model`` takes least time, as ``zenc tune --strategy`` does.

        handle = zenc.attach(ddp_model, dry_run=True)           # train some tens of steps, then:
        found = zenc.tune_strategy(handle.profile, "dense_ring, topk_a2a(0.01), one_bit", ranks=4)
        Path("step.zen").write_text(found.text())               # zenc.attach(ddp_model, "step.zen") takes it

    Args:
        model: the profile of a dry run, or its file.
        schemes: those that may sum dense gradients, with commas between, or a file whose strategy names them; lossy
            ones have to be named.
        host: the calibration of the processors beside GPUs, with which rules ``on host`` are tried; without it none is.
        groups: the most groups of tensors that are searched for, beside DDP's buckets and buffers of one size.
        ranks: their number. Default: the topology's, or 8.
        bandwidth: of each rank's link to one switch, each way.
        topology: links instead, as ``zenc.load_topology`` takes them.
        calibration: that of ``zenc calibrate``, or its file. Default: a guess, which the text says.
        device: ``cpu`` or ``gpu``: whose kernels are guessed. Default: as the model or the topology has it.
        progress: called with the present trial in words.

    Returns:
        The best strategy; ``text()`` is its file, ``rows()`` the ones compared with it.

    Raises:
        CostError: the file holds no profile of a model, or it does not say when gradients are ready (``bad-profile``).
        SchemeError, SchemeSyntaxError, VerificationError: for ``schemes``.
    """
    of, links, known, beside = _stepping(model, ranks, bandwidth, topology, calibration, device, host)
    return searched(of, candidates_of(schemes, links.size, _cluster(topology)), links, known, groups, progress, beside)


@names_wrong_types
def simulate_step(
    model: ModelProfile | File,
    strategy: File,
    *,
    ranks: int | None = None,
    bandwidth: Bandwidth | None = None,
    topology: Cluster | None = None,
    calibration: Calibration | File | None = None,
    device: Device | None = None,
    host: Calibration | File | None = None,
) -> PredictedStep:
    """Predict a step of ``model`` by the ``strategy`` of a file, as ``zenc simulate --strategy`` does.

    Args are those of ``zenc.tune_strategy``. Returns the step: ``result.seconds``, and the exposed part of it. Raises
    as ``zenc.tune_strategy`` does, for the file.
    """
    of, links, known, beside = _stepping(model, ranks, bandwidth, topology, calibration, device, host)
    cluster = _cluster(topology)
    levels = units_of(cluster) if cluster else {}
    read, _ = resolve_strategy(load_file(locate(strategy)), levels=levels)
    return predict_step(of, read, links, known, cluster, beside)


def _stepping(
    model: ModelProfile | File,
    ranks: int | None,
    bandwidth: Bandwidth | None,
    topology: Cluster | None,
    calibration: Calibration | File | None,
    device: Device | None,
    host: Calibration | File | None,
) -> tuple[ModelStep, Network, Calibration, Calibration | None]:
    cluster = _cluster(topology)
    (size,) = _sizes(ranks, cluster)
    observed = model if isinstance(model, ModelProfile) else read_model_profile(model)
    if device is None and observed.device == "cuda":
        device = "gpu"
    known = _known(calibration, bandwidth, cluster, device)
    beside = None if host is None else _known(host, None, None, None)
    if beside and not (device == "gpu" or known.gpu or (cluster is not None and cluster.has_gpus)):
        message = "a calibration of the host is for ranks that have GPUs, and these sum on their hosts anyway"
        help = "give device='gpu' (--device gpu), a model observed on GPUs, or a topology that has some"
        raise CostError(Diagnostic("bad-calibration", message, help=help))
    return step_of(observed), network(cluster, size, known), known, beside


@names_wrong_types
def advise(
    gradients: Gradients,
    *,
    ranks: int | None = None,
    bandwidth: Bandwidth | None = None,
    topology: Cluster | None = None,
    calibration: Calibration | File | None = None,
    device: Device | None = None,
    rest: float | None = None,
    computing: float | None = None,
    lossy: File | Iterable[File] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> Advice:
    """Say whether zenc is worth it for a model, by prediction, as ``zenc advise`` does.

    It is compared with DDP's own ways, with sparse gradients and with dense ones, and with no communication at all:

        handle = zenc.attach(ddp_model, dry_run=True)           # train some tens of steps, then:
        advice = zenc.advise(handle.profile, ranks=16, bandwidth="10 Gbit/s")

    Args:
        gradients: the profile of a model, of a dry run, which knows all that is needed; or of gradients alone.
        ranks: their number. Default: the topology's, or 8.
        bandwidth: of each rank's link to one switch, each way: bytes a second, or a text such as ``'25 Gbit/s'``.
        topology: links instead, as ``zenc.load_topology`` takes them.
        calibration: that of ``zenc calibrate``, or its file. Default: a guess, which ``notes`` of the result say.
        device: ``cpu`` or ``gpu``, which has NCCL. Default: as the model or the topology has it.
        rest: bytes of all other gradients. Default: those of the model's other parameters, or 0.
        computing: seconds of a step without any wait for synchronisation. Default: those of the dry run, if it was one.
        lossy: schemes that lose something, to be compared as well: files or names, or ``"all"`` that come with zenc.
            None of them is ever advised. Gradients that are no tables go by them, and tables where that is cheaper.
        progress: called with the next prediction in words.

    Returns:
        The advice: ``answer`` is ``yes`` or ``no``, ``verdict`` a sentence, ``str()`` all of it in words.

    Raises:
        CostError: a file holds no profile or calibration, or numbers are impossible.
        TopologyError: as ``zenc.load_topology`` does.
    """
    cluster = _cluster(topology)
    (size,) = _sizes(ranks, cluster)
    if isinstance(gradients, str | os.PathLike):
        gradients = read_gradients(gradients)
    model = gradients if isinstance(gradients, ModelProfile) else None
    if device is None and model is not None and model.device == "cuda":
        device = "gpu"
    if model is None:
        load = load_of(_profiles(gradients).values(), rest or 0.0, computing)
    else:
        load = load_of_model(model, rest, computing)
    on_gpu = device == "gpu" or (device is None and cluster is not None and cluster.has_gpus)
    known = _known(calibration, bandwidth, cluster, device)
    files = _lossy(lossy)
    asked_for = planners_of(files, Request(topology=cluster)) if files else {}
    return advising.advise(load, size, cluster, known, on_gpu, progress, asked_for)


def _lossy(given: File | Iterable[File]) -> list[File]:
    """Return the files that ``given`` names; ``all`` are the shipped schemes that lose something."""
    if given == "all":
        return [entry["name"] for entry in shipped() if entry["compression"]]
    return [given] if isinstance(given, str | os.PathLike) else list(given)


def _profiles(gradients: Gradients) -> dict[str, Profile]:
    if isinstance(gradients, str | os.PathLike):
        return read_profiles(gradients)
    if isinstance(gradients, ModelProfile):
        return dict(gradients.profiles)
    if isinstance(gradients, Mapping):
        return dict(gradients)
    return {each.name: each for each in ([gradients] if isinstance(gradients, Profile) else gradients)}


def _cluster(topology: Cluster | None) -> Topology | None:
    return load_topology(topology) if isinstance(topology, str) else topology


def _sizes(ranks: int | Iterable[int] | None, cluster: Topology | None) -> list[int]:
    if ranks is None:
        return [cluster.size if cluster else DEFAULT_RANKS]
    return [ranks] if isinstance(ranks, int) else list(ranks)


def _known(
    calibration: Calibration | File | None, bandwidth: Bandwidth | None, cluster: Topology | None, device: Device | None
) -> Calibration:
    speed = bandwidth_of(bandwidth, "bandwidth")
    if speed is not None and cluster is not None:
        raise CostError(
            Diagnostic("bad-calibration", "a bandwidth is of one switch; links of a topology have their own")
        )
    if calibration is None:
        return assumed(cluster, speed, device)
    known = calibration if isinstance(calibration, Calibration) else read_calibration(calibration)
    return known if speed is None else replace(known, bandwidth=speed)
