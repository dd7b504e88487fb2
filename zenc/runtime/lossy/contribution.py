"""Contribution: a gradient and the residual of earlier calls, split into the sent and the kept part.

    accumulated = gradient + residual           # with momentum + velocity, which is m velocity + gradient
    gradient    = its selected part, in the gradient's dtype; +0 else
    residual    = accumulated - gradient        # velocity = 0 where units were selected

Momentum is DGC's (ICLR 2018, section 3.1 and 3.2): summed before selection, and cleared where units are sent. Where all
units are contributed, as in a dense warm-up, it goes on as ordinary momentum does.

Each device has kernels for it (``cpu_contribution``, ``gpu_contribution``), which give the same bits. What is not
finite is sent, so that all ranks see it: a NaN in the first unit, if need be.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Contributed:
    """The sums of squares of ``gradient`` and ``residual``; ``finite``: whether all accumulated values are.

    Where parts are contributed one by one they are those of the parts so far.
    """

    gradient: float
    residual: float
    finite: bool
