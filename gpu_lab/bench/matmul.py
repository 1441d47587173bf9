"""Square matrix product: arithmetic rate."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gpu_lab.bench.rows import WrongResult, measured, require_random
from gpu_lab.records import Device, Measurement
from gpu_lab.timing import QUICK, Arm, Plan

METHOD_VERSION = 2
# Relative error allowed against a float64 product of a few rows: float32 sums of
# 10**3 to 10**4 products stay below 1e-4, TF32 near 1e-3, bf16 below 1e-2, e4m3 near
# 4e-2 (3 bits of mantissa).
TOLERANCE = {
    "float32": 2e-4,
    "tf32": 2e-3,
    "float16": 1e-2,
    "bfloat16": 2e-2,
    "float8": 8e-2,
}
# Compute capability from which the units exist (CUDA programming guide).
CAPABILITY = {"tf32": (8, 0), "float8": (8, 9), "nvfp4": (10, 0)}
CHECKED_ROWS = 4


def matmul(
    n: int,
    *,
    device: Device,
    dtype: str = "float32",
    plan: Plan = QUICK,
    seed: int = 0,
) -> Measurement:
    """Time of one n x n by n x n matrix product, in seconds.

    Args:
        n: rows and columns of both matrices, filled with seeded normal numbers.
        dtype: "float32" (TF32 off), "tf32", "float16", "bfloat16" or "float8"
            (e4m3 inputs, bfloat16 result, `torch.nn.functional.scaled_mm`).

    Returns:
        Measurement with `work` = 2 n**3 FLOP a call (one multiply and one add per
        term), so `.tflops` is 2 n**3 / median time / 10**12. Where the device has no
        units for the dtype nothing is timed and `reason` says why.

    Raises:
        ValueError: n < 1 or unknown dtype.
        WrongResult: the product differs from a float64 product.
        DeviceLost: the device vanished during the run.

    Same quantity elsewhere: mamf-finder, torch.utils.benchmark of `torch.mm`.
    """
    arm = matmul_arm(n, device=device, dtype=dtype, seed=seed)
    return measured(arm, device=device, plan=plan)


def matmul_arm(n: int, *, device: Device, dtype: str = "float32", seed: int = 0) -> Arm:
    """The prepared product of `matmul`, for rounds together with other arms."""
    import torch

    if n < 1 or dtype not in TOLERANCE:
        raise ValueError(
            f"wanted n >= 1 and dtype of {', '.join(TOLERANCE)}, found {n}, {dtype!r}"
        )
    name = f"matmul_{dtype}_{n}"
    reason = missing(device, dtype)
    if reason:
        return Arm(name=name, reason=reason)
    generator = torch.Generator().manual_seed(seed)
    host = [torch.randn(n, n, generator=generator) for _ in range(2)]
    for matrix in host:
        require_random(matrix, what=name)
    product = _product(*host, device=device, dtype=dtype)
    _require_right(product(), *host, dtype=dtype)
    threads = torch.get_num_threads()
    return Arm(
        name=name,
        calls=(product,),
        work=2.0 * n**3,
        work_unit="FLOP",
        version=METHOD_VERSION,
        settings={"n": n, "dtype": dtype, "seed": seed, "threads": threads},
    )


def missing(device: Device, dtype: str) -> str:
    """Why this device has no such product; empty when it has."""
    import torch

    if dtype == "float8" and not hasattr(torch.nn.functional, "scaled_mm"):
        return "needs torch with torch.nn.functional.scaled_mm"
    if dtype not in CAPABILITY or device.simulated:
        return ""
    wanted = ".".join(map(str, CAPABILITY[dtype]))
    if device.backend != "cuda":
        return f"needs an NVIDIA GPU of compute capability {wanted} or newer"
    have = tuple(int(part) for part in (device.capability or "0.0").split("."))
    if have < CAPABILITY[dtype]:
        return f"needs compute capability {wanted}, this GPU has {device.capability}"
    return ""


def _product(a: Any, b: Any, *, device: Device, dtype: str) -> Callable[[], Any]:
    """The call that multiplies a and b on the device."""
    import torch

    if dtype == "float8":
        return _product_float8(a.to(device.torch_name), b.to(device.torch_name))
    kind = getattr(torch, "float32" if dtype == "tf32" else dtype)
    a, b = a.to(device.torch_name, kind), b.to(device.torch_name, kind)
    product = functools.partial(torch.mm, a, b, out=torch.empty_like(a))
    if device.backend != "cuda" or device.simulated or kind != torch.float32:
        return product
    precision = "tf32" if dtype == "tf32" else "ieee"

    def with_precision() -> Any:
        with fp32_precision(precision):
            return product()

    return with_precision


@contextmanager
def fp32_precision(precision: str) -> Iterator[None]:
    """TF32 on ("tf32") or off ("ieee") inside, in products and in convolutions."""
    import torch

    backends: Any = torch.backends
    settings = (backends.cuda.matmul, backends.cudnn.conv)
    before = [setting.fp32_precision for setting in settings]
    for setting in settings:
        setting.fp32_precision = precision
    try:
        yield
    finally:
        for setting, value in zip(settings, before, strict=True):
            setting.fp32_precision = value


def _product_float8(a: Any, b: Any) -> Callable[[], Any]:
    import torch
    from torch.nn import functional

    # The second factor must lie column by column.
    columns = b.t().contiguous().to(torch.float8_e4m3fn).t()
    one = torch.ones((), device=a.device)
    scaling = functional.ScalingType.TensorWise
    return functools.partial(
        functional.scaled_mm,
        a.to(torch.float8_e4m3fn),
        columns,
        scale_a=one,
        scale_recipe_a=scaling,
        scale_b=one,
        scale_recipe_b=scaling,
        output_dtype=torch.bfloat16,
    )


def _require_right(out: Any, a: Any, b: Any, *, dtype: str) -> None:
    """Compare a few rows with their float64 product on the host."""
    right = a[:CHECKED_ROWS].double() @ b.double()
    error = (out[:CHECKED_ROWS].cpu().double() - right).norm() / right.norm()
    if not error <= TOLERANCE[dtype]:  # also true for NaN
        raise WrongResult(
            f"matmul {dtype}: relative error {float(error):.1e} against float64, "
            f"wanted at most {TOLERANCE[dtype]:.0e}; do not trust this device"
        )
