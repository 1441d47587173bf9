"""Curves of the operators that training consists of, measured on a device."""

from __future__ import annotations

import functools
from typing import Any

from gpu_lab.bench import matmul_arm, measured
from gpu_lab.records import Device, Measurement
from gpu_lab.timing import QUICK, Arm, Plan

PRODUCTS = (64, 256, 512, 1024)  # rows
IMAGES = (14, 56)  # rows of the pictures that are convolved
SUMS = (2**14, 2**18, 2**22)  # float32 numbers that are added
CHANNELS, SAMPLES = 128, 4


def probe(*, device: Device, plan: Plan = QUICK, seed: int = 0) -> list[Measurement]:
    """Rows for `of_rows`: products, convolutions, sums into fresh memory, a start."""
    halves = ("float32", "bfloat16")
    arms = [
        matmul_arm(n, device=device, dtype=kind, seed=seed)
        for kind in halves
        for n in PRODUCTS
    ]
    arms += [_conv(rows, kind, device) for kind in halves for rows in IMAGES]
    arms += [_sum(items, device) for items in SUMS]
    arms.append(_start(device))
    return [measured(arm, device=device, plan=plan) for arm in arms]


def _conv(rows: int, kind: str, device: Device) -> Arm:
    """A 3 x 3 convolution as in the middle of ResNet-50."""
    import torch

    where: dict[str, Any] = {
        "device": device.torch_name,
        "dtype": getattr(torch, kind),
    }
    picture = torch.randn(SAMPLES, CHANNELS, rows, rows, **where)
    weight = torch.randn(CHANNELS, CHANNELS, 3, 3, **where)
    call = functools.partial(torch.conv2d, picture, weight, padding=1)
    return Arm(
        name=f"conv_{kind}_{rows}",
        calls=(call,),
        work=2.0 * 9 * CHANNELS * picture.numel(),
        work_unit="FLOP",
        settings={"dtype": kind, "rows": rows},
    )


def _sum(items: int, device: Device) -> Arm:
    """One addition whose result is new, as between the products of a model."""
    import torch

    a, b = (torch.randn(items, device=device.torch_name) for _ in "ab")
    return Arm(
        name=f"move_{items}",
        calls=(functools.partial(torch.add, a, b),),
        work=12.0 * items,
        work_unit="byte",
        settings={"size_bytes": 4 * items},
    )


def _start(device: Device) -> Arm:
    """An operator with nothing to do: what starting one costs the host."""
    import torch

    one = torch.ones(1, device=device.torch_name)
    return Arm(name="launch", calls=(functools.partial(torch.add, one, one),))
