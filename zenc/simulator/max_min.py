"""Fair rates: what each of many flows gets of the links that they share.

Max-min fairness by progressive filling (Bertsekas and Gallager, "Data Networks", 1992, section 6.5): all rates grow
alike until a link is full; its flows keep what they have, and the others grow on.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from zenc.plan.expressions import Ints

Floats = npt.NDArray[np.float64]

_ALIKE = 1 + 1e-9


def fair_rates(flow: Ints, link: Ints, times: Floats, flows: int, bandwidths: Floats) -> Floats:
    """The rate of each of ``flows`` flows, [flows].

    Flow ``flow[i]`` loads ``link[i]`` ``times[i]`` over, of ``bandwidths`` [links]. A flow without links has no bound.
    """
    rates = np.full(flows, np.inf)
    left, open_, links = bandwidths.copy(), np.zeros(flows, dtype=bool), len(bandwidths)
    open_[flow] = True
    while True:
        load = np.bincount(link, times * open_[flow], minlength=links)
        share = np.divide(left, load, out=np.full(links, np.inf), where=load > 0)
        lowest = float(share.min(initial=np.inf))
        if lowest == np.inf:
            return rates
        full = share <= lowest * _ALIKE
        found = np.zeros(flows, dtype=bool)
        found[flow[full[link]]] = True
        found &= open_
        rates[found] = lowest
        open_ &= ~found
        left = np.maximum(left - lowest * np.bincount(link, times * found[flow], minlength=links), 0.0)
