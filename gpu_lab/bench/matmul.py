"""Square matrix product: arithmetic rate."""

from __future__ import annotations

from typing import Any

from gpu_lab.bench.rows import WrongResult, row
from gpu_lab.records import Device, Measurement
from gpu_lab.timing import QUICK, Plan, measure

METHOD_VERSION = 1
# Relative error allowed against a float64 product of a few rows: float32 sums of
# 10**3 to 10**4 products stay below 1e-4, TF32 near 1e-3, bf16 below 1e-2.
TOLERANCE = {"float32": 2e-3, "float16": 1e-2, "bfloat16": 2e-2}
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
        dtype: "float32", "float16" or "bfloat16".

    Returns:
        Measurement with `work` = 2 n**3 FLOP a call (one multiply and one add per
        term), so `.tflops` is 2 n**3 / median time / 10**12.

    Raises:
        ValueError: n < 1 or unknown dtype.
        WrongResult: the product differs from a float64 product.
        DeviceLost: the device vanished during the run.

    Same quantity elsewhere: mamf-finder, torch.utils.benchmark of `torch.mm`.
    """
    import torch

    if n < 1 or dtype not in TOLERANCE:
        raise ValueError(
            f"wanted n >= 1 and dtype of {', '.join(TOLERANCE)}, found {n}, {dtype!r}"
        )
    generator = torch.Generator().manual_seed(seed)
    host = [torch.randn(n, n, generator=generator) for _ in range(2)]
    a, b = (m.to(device.torch_name, getattr(torch, dtype)) for m in host)
    out = torch.mm(a, b)
    _require_right(out, a, b, dtype=dtype)
    timing = measure(lambda: torch.mm(a, b, out=out), device=device, plan=plan)
    return row(
        f"matmul_{dtype}_{n}",
        timing,
        device=device,
        work=2.0 * n**3,
        unit="FLOP",
        version=METHOD_VERSION,
        settings={"n": n, "dtype": dtype, "seed": seed, **_flags()},
    )


def _flags() -> dict[str, str | int | float | bool]:
    import torch

    return {
        "allow_tf32": bool(torch.backends.cuda.matmul.allow_tf32),
        "threads": torch.get_num_threads(),
    }


def _require_right(out: Any, a: Any, b: Any, *, dtype: str) -> None:
    """Compare a few rows with their float64 product on the host."""
    right = a[:CHECKED_ROWS].cpu().double() @ b.cpu().double()
    error = (out[:CHECKED_ROWS].cpu().double() - right).norm() / right.norm()
    if not error <= TOLERANCE[dtype]:  # also true for NaN
        raise WrongResult(
            f"matmul {dtype}: relative error {float(error):.1e} against float64, "
            f"wanted at most {TOLERANCE[dtype]:.0e}; do not trust this device"
        )
