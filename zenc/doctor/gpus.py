"""GPUs, the compiler of their kernels, and NCCL: absent where PyTorch is one for processors, broken where it is not."""

from __future__ import annotations

from functools import cache

from zenc.codegen.build.nvrtc import find_compiler
from zenc.doctor.finding import Finding, of_error
from zenc.errors import ZencError


def devices() -> Finding:
    """The GPUs that this process sees, and their driver."""
    import torch

    if torch.version.cuda is None:
        kind = "ROCm" if getattr(torch.version, "hip", None) else "processors only"
        note = ("zenc's GPU kernels are for CUDA",) if kind == "ROCm" else ()
        return Finding("gpus", "absent", f"this PyTorch is for {kind}; zenc runs on the processor", note)
    count = visible()
    if count == 0:
        help = "see what nvidia-smi and CUDA_VISIBLE_DEVICES say, if there should be one"
        return Finding("gpus", "absent", f"PyTorch for CUDA {torch.version.cuda} sees no GPU", help=help)
    from zenc.runtime.gpu.driver import driver

    names = ", ".join(f"{gpu.name} ({gpu.arch})" for gpu in (driver().gpu(i) for i in range(count)))
    return Finding("gpus", "good", f"{count}: {names}")


def device_compiler() -> Finding:
    """NVRTC, which GPUs need and ``zenc compile --target cuda`` needs anywhere."""
    try:
        found, reasons = find_compiler()
    except ZencError as error:
        return of_error("gpu compiler", error)
    if found is not None:
        return Finding("gpu compiler", "good", found.name)
    help = "pip install 'zenc[cuda13]' or 'zenc[cuda12]', for GPU kernels"
    return Finding("gpu compiler", "broken" if visible() else "absent", "no NVRTC", reasons, help)


def nccl() -> Finding:
    """The NCCL that ranks on GPUs would send by."""
    if not visible():
        return Finding("nccl", "absent", "not needed without GPUs")
    from zenc.runtime.gpu.driver import find_nccl

    found = find_nccl()
    return Finding("nccl", "good", f"{found.version // 10000}.{found.version // 100 % 100} ({found.path})")


@cache
def visible() -> int:
    """The number of GPUs that PyTorch sees."""
    try:
        import torch
    except Exception:  # said by the finding about torch
        return 0
    return torch.cuda.device_count()
