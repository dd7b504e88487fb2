"""Bandwidth a direction (bytes a second) and latency of known links. Sources: ``docs/reference/topologies.md``."""

from __future__ import annotations

from collections.abc import Mapping

GB = 10**9

NVLINK_BY_SM: Mapping[int, float] = {60: 20e9, 70: 25e9, 72: 25e9, 80: 25e9, 86: 14e9, 87: 14e9, 90: 25e9, 100: 50e9}
"""CUDA's compute capability -> bytes a second of one NVLink. A capability that is missing counts as the next lower one.
"""

XGMI_BY_GFX: Mapping[str, float] = {
    "906": 46e9, "908": 46e9, "90a": 50e9, "940": 64e9, "941": 64e9, "942": 64e9, "950": 76.8e9,
}  # fmt: skip
"""AMD's architecture -> bytes a second of one link of Infinity Fabric (xGMI): half the figure of AMD's data sheets."""

PCIE_LANE_BY_GTS: Mapping[float, float] = {
    2.5: 2.5e9 * 8 / 10 / 8,
    5.0: 5e9 * 8 / 10 / 8,
    8.0: 8e9 * 128 / 130 / 8,
    16.0: 16e9 * 128 / 130 / 8,
    32.0: 32e9 * 128 / 130 / 8,
    64.0: 64e9 * 242 / 256 / 8,
}
"""Gigatransfers a second -> bytes a second of one lane, after line coding: PCI Express 1.0 to 6.0."""

PCIE = 16 * PCIE_LANE_BY_GTS[16.0]
"""The bandwidth of 16 lanes of PCI Express 4.0, for a slot without a figure: 31.5 GB/s."""

NVSWITCH = 18 * NVLINK_BY_SM[90]
"""The bandwidth of a GPU of an HGX H100: 18 NVLinks, 450 GB/s."""

NETWORK = 400e9 / 8
"""The bandwidth of a port of 400 Gbit/s: InfiniBand NDR, 400 Gb Ethernet."""

SYSTEM = 20e9
"""The bandwidth between the sockets of a machine. Rough: NCCL reckons with 10 to 40 GB/s for Xeons, 16 to 32 for Epycs.
"""

TORUS = 50e9
"""The bandwidth between neighbours of a torus: the inter-chip links of TPU v4."""

NVLINK_LATENCY = 0.3e-6
PCIE_LATENCY = 0.5e-6
NETWORK_LATENCY = 1e-6
SYSTEM_LATENCY = 0.5e-6


def nvlink(sm: int) -> float:
    """Return the bytes a second, each direction, of one NVLink of a GPU of compute capability ``sm``."""
    known = [figure for capability, figure in sorted(NVLINK_BY_SM.items()) if capability <= sm]
    return known[-1] if known else NVLINK_BY_SM[60]


def xgmi(gcn: str) -> float:
    """Return the bytes a second, each direction, of one xGMI link, by RCCL's ``gcn``: ``906``, ``910``, ``gfx942``."""
    name = gcn.removeprefix("gfx").partition(":")[0]
    return XGMI_BY_GFX.get("90a" if name == "910" else name, XGMI_BY_GFX["906"])
