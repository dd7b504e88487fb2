"""What ranks run in the tests of the run time; each takes the group first."""

from __future__ import annotations

import torch

import zenc


def sum_once(group, scheme, seed=0, units=100, width=4, dtype="float32"):
    torch.manual_seed(seed + group.rank())
    c = zenc.load(scheme, group, deadline=20)
    n = units // 3
    ids = torch.randint(0, units, (n,))
    vals = torch.randn(n, width, dtype=getattr(torch, dtype))
    t = torch.sparse_coo_tensor(ids[None], vals, (units, width))
    out = c.all_reduce(t)
    return t, out, c.stats
