"""Predictions of zenc for the slow network of the demonstration, where it can't be made."""

from __future__ import annotations

from benchmarks.lab.demo.show import rate_in_words
from benchmarks.lab.settings import Settings
from benchmarks.lab.workloads import TRACE, trace_of, units_of
from benchmarks.predicted import CORES, lab, plan_of
from zenc.gradients.profile_fit import from_gradients
from zenc.simulator.predict import predict

SCHEMES = {
    "holders": "zenc, holders",
    "agsparse": "all-gather, as DDP does with sparse gradients",
    "dense_ring": "ring, as DDP does with dense gradients",
}


def prediction(ranks: int, rate: str) -> str:
    """Return seconds of one sum of the recorded rows, on links of ``rate``, by the cost model; nothing is measured."""
    settings = Settings(ranks, rate, 70_000, "2mb", trace_of(TRACE, ranks, False), (), "", 1, 1, 0, 1)
    profile, calibration = from_gradients(units_of(settings.workload, ranks, 1)), lab(settings, CORES)
    took = {name: predict(plan_of(name), ranks, profile, None, calibration).seconds for name in SCHEMES}
    lines = [f"  {SCHEMES[name]:46} {seconds * 1e3:7.1f} ms" for name, seconds in took.items()]
    title = f"Predicted, not measured: a sum of the model's first table among {ranks} ranks on {rate_in_words(rate)},"
    return "\n".join([title, "by the cost model as fitted to the lab, for the rows of a recorded step:", *lines])
