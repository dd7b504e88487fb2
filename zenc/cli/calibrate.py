"""``zenc calibrate``: measures the cluster that it runs on, for ``zenc simulate``."""

from __future__ import annotations

import json as json_text
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zenc.cli.common import JsonOption, answer, file_option, output_option, reporting, show_diagnostics, without_plots
from zenc.cli.given import amount
from zenc.common.resources import write_text

if TYPE_CHECKING:
    from zenc.simulator.calibration import Calibration

EXAMPLES = """\b
Examples:
  torchrun --nproc-per-node 8 --no-python zenc calibrate -o here.json
  torchrun --nnodes 4 --nproc-per-node 8 ... --no-python zenc calibrate -o here.json --bandwidth '100 Gbit/s'
  zenc calibrate --nproc 4 -o loopback.json
  zenc calibrate --read here.json --plot here.svg
  zenc simulate balanced sparcml --calibration here.json

Run it as you run training: with as many ranks, on the same machines, while nothing else runs there. It takes seconds.
"""

LONGEST = 600
"""Most seconds that a rank waits for another one."""


def calibrate(
    output: Annotated[Path, output_option(".json", "-o", "--output", help="Where to write it.")] = Path(
        "calibration.json"
    ),
    nproc: Annotated[
        int | None,
        typer.Option(min=2, max=64, metavar="N", help="Without torchrun: the number of processes on this machine."),
    ] = None,
    backend: Annotated[str, typer.Option(metavar="NAME", help="Backend of the process group: gloo or nccl.")] = "gloo",
    bandwidth: Annotated[
        str | None,
        typer.Option(metavar="B", help="Nominal bandwidth of the links, such as '100 Gbit/s': gives the efficiency."),
    ] = None,
    name: Annotated[str, typer.Option(metavar="NAME", help="Name of the calibration.")] = "measured",
    plot: Annotated[
        Path | None, output_option(".svg", "--plot", help="Plot kernels' times to this file; needs zenc[plots].")
    ] = None,
    read: Annotated[Path | None, file_option(help="Show this calibration, and measure nothing.")] = None,
    json: JsonOption = False,
) -> None:
    """Measure latency, bandwidth, fan-in, buffers and kernels among the ranks of a process group.

    Under torchrun it is one of the ranks; without, --nproc starts them on this machine.
    """
    first = os.environ.get("RANK", "0") == "0"
    missing = without_plots(plot if first else None)
    if read:
        from zenc.simulator.calibration import read_calibration

        with reporting(json):
            _print(read_calibration(read), read, json)
    else:
        link = amount("bandwidth", "--bandwidth", bandwidth) if bandwidth else None
        _run(nproc, output, backend, link, name, json)
    if plot and first and not missing:
        _draw(read or output, plot)
    if missing:
        raise SystemExit(1)


def _run(nproc: int | None, output: Path, backend: str, link: float | None, name: str, json: bool) -> None:
    """Measure, as one of the ranks or as all of them."""
    if backend not in ("gloo", "nccl"):
        raise typer.BadParameter(f"--backend is gloo or nccl, not '{backend}'")
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        if nproc:
            raise typer.BadParameter("torchrun has started the ranks: leave out --nproc")
        _measure(output, backend, link, name, json)
    elif nproc:
        _start(nproc, output, backend, link, name, json)
    else:
        raise typer.BadParameter("start it by torchrun, or with --nproc 4 for processes on this machine")


def _draw(path: Path, plot: Path) -> None:
    from zenc.draw.plots.curves import of_kernels
    from zenc.simulator.calibration import read_calibration

    with reporting(json=False):
        write_text(plot, of_kernels(read_calibration(path)))


def _measure(output: Path, backend: str, link: float | None, name: str, json: bool) -> None:
    """Measure as one of the ranks; the first one writes the results."""
    from datetime import timedelta

    import torch
    import torch.distributed as dist

    with reporting(json):
        from zenc import api

        torch.set_num_threads(1)
        if backend == "nccl":
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        dist.init_process_group(backend, timeout=timedelta(seconds=LONGEST))
        first = not dist.get_rank()
        try:
            found = api.calibrate(_tell if first else lambda _: None, link=link, name=name)
            if first:
                write_text(output, json_text.dumps(found.to_json(), indent=1) + "\n")
        finally:
            dist.destroy_process_group()
    if first:
        _print(found, output, json)


def _start(nproc: int, *arguments: Any) -> None:
    import socket

    from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException, spawn

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(nproc)}
    start: Callable[..., object] = spawn
    try:
        start(_child, (shared, *arguments), nproc)
    except (ProcessExitedException, ProcessRaisedException):  # which has said why
        raise SystemExit(1) from None


def _child(rank: int, shared: dict[str, str], *arguments: Any) -> None:
    os.environ.update(shared, RANK=str(rank), LOCAL_RANK=str(rank))
    _measure(*arguments)


def _tell(what: str) -> None:
    print(f"measuring {what} ...", file=sys.stderr)


def _print(found: Calibration, path: Path, json: bool) -> None:
    from zenc.errors import Diagnostic
    from zenc.simulator.calibration import BUSY

    answer(json, {"file": str(path), "calibration": found.to_json()}, "\n".join(_lines(found, path)))
    if found.spread is not None and found.spread > BUSY:
        message = f"the machine was busy: rounds of the same took up to {found.spread:.0%} longer than their least"
        help = "measure again while nothing else runs there, or with no more ranks than cores"
        show_diagnostics([Diagnostic("busy-machine", message, help=help, severity="warning")])


def _lines(found: Calibration, path: Path) -> Iterator[str]:
    from zenc.common.wording import seconds_text, size_text
    from zenc.scheme.units import bandwidth_text
    from zenc.simulator.calibration import BOUNDLESS, BUSY

    yield f"{path}: {found.name}"
    yield f"  bandwidth  {bandwidth_text(found.bandwidth * found.efficiency)} of {bandwidth_text(found.bandwidth)}"
    yield f"  step       {seconds_text(found.step)}, and {seconds_text(found.message)} a message"
    yield f"  fan-in     {size_text(found.fan_in)} a message"
    yield f"  buffer     {size_text(found.buffer)} a message"
    yield f"  call       {seconds_text(found.call)}"
    if found.spread is None:
        yield "  spread     unknown: measured before it was kept"
    else:
        busy = "the machine was busy, measure again" if found.spread > BUSY else "quiet"
        yield f"  spread     {found.spread:.0%} between rounds: {busy}"
    for name, kernel in found.kernels.items():
        speed = f", and {bandwidth_text(kernel.speed)}" if kernel.speed < BOUNDLESS else ""
        some, many = (seconds_text(kernel.seconds(share * 1e6, 0.0, 1e6)) for share in (0.01, 0.1))
        yield f"  {name:<10} {some} for 1 % of a million units, {many} for 10 %{speed}"
    if not found.compression:
        yield "  selections and codes were not measured: predictions estimate them"
    for name, measured in found.compression.items():
        yield f"  {name:<16} {bandwidth_text(measured)} of float32"
