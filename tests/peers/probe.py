"""Curves of the operators that training consists of, measured on this machine."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from gpu_lab.bench import matmul_arm, measured
from gpu_lab.records import Device, Measurement, Settings
from gpu_lab.timing import QUICK, Arm, Plan

HALVES = ("float32", "bfloat16")
PRODUCTS = (64, 256, 1024)  # rows
SUMS = (2**14, 2**17, 2**20, 2**22)  # float32 numbers that are added
KEPT = 16  # results that are alive together, as activations are


def probe(*, device: Device, plan: Plan = QUICK) -> list[Measurement]:
    """Rows for `of_rows`; convolutions and attention with their backward pass."""
    arms = [matmul_arm(n, device=device, dtype=k) for k in HALVES for n in PRODUCTS]
    for kind in HALVES:
        dtype = getattr(torch, kind)
        arms += [
            _passes(f"conv_{kind}", _conv(3, 64, 56), dtype, 18.0 * 64 * 64 * 56**2),
            _passes(f"conv_{kind}", _conv(3, 256, 14), dtype, 18.0 * 256**2 * 14**2),
            _passes(f"conv_{kind}", _conv(1, 256, 28), dtype, 2.0 * 256**2 * 28**2),
            _passes(f"depthwise_{kind}", _depthwise, dtype, 98.0 * 192 * 28**2),
            _passes(f"attention_{kind}", _attention, dtype, 4.0 * 12 * 197**2 * 64),
        ]
    arms += [_sums(items) for items in SUMS]
    one = torch.ones(1, requires_grad=True)
    arms.append(Arm(name="launch", calls=(functools.partial(torch.add, one, one),)))
    return [measured(arm, device=device, plan=plan) for arm in arms]


def _passes(name: str, forward: Callable[[Any], Any], dtype: Any, flop: float) -> Arm:
    """Both passes of an operator over two samples: three times the FLOP of one."""

    def call() -> None:
        forward(dtype).float().sum().backward()

    call()
    settings: Settings = {"dtype": name.split("_")[1], "operators": 3}
    work = 2 * 3 * flop
    return Arm(name=name, calls=(call,), work=work, work_unit="FLOP", settings=settings)


def _conv(size: int, channels: int, rows: int) -> Callable[[Any], Any]:
    @functools.cache
    def data(dtype: Any) -> tuple[Any, Any]:
        x, weight = (2, channels, rows, rows), (channels, channels, size, size)
        return _leaf(x, dtype), _leaf(weight, dtype)

    return lambda dtype: torch.conv2d(*data(dtype), padding=size // 2)


def _depthwise(dtype: Any) -> Any:
    x, weight = _leaf((2, 192, 28, 28), dtype), _leaf((192, 1, 7, 7), dtype)
    return torch.conv2d(x, weight, padding=3, groups=192)


def _attention(dtype: Any) -> Any:
    q, k, v = (_leaf((2, 12, 197, 64), dtype) for _ in "qkv")
    return functional.scaled_dot_product_attention(q, k, v)


def _leaf(sizes: tuple[int, ...], dtype: Any) -> Any:
    return torch.randn(sizes, dtype=dtype, requires_grad=True)


def _sums(items: int) -> Arm:
    """Sums whose results are all kept: memory is new to the process, as in a step."""
    a, b = torch.randn(items), torch.randn(items)
    return Arm(
        name=f"move_{items}",
        calls=(lambda: [torch.add(a, b) for _ in range(KEPT)],),
        work=12.0 * items * KEPT,
        work_unit="byte",
        settings={"size_bytes": 4 * items, "operators": KEPT},
    )
