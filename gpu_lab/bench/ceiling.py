"""Ceilings: the most that a device or a link can do, with the kind of that knowledge.

measured, ceiling, kind: D derived from reported properties, S from a datasheet, M
measured on this machine, N not known.
"""

from __future__ import annotations

import functools
import re
from typing import Any

from gpu_lab import facts, units
from gpu_lab.records import Ceiling, CeilingKind, Device, GpuLabError

WRONG = 1.02  # a share above this means that ceiling or measurement is wrong
# FLOP a clock and SM are columns of data/gpus.csv; PyTorch accumulates in float32.
COLUMNS = {
    "tf32": "flop_per_clk_per_sm_tf32",
    "float16": "flop_per_clk_per_sm_fp32acc",
    "bfloat16": "flop_per_clk_per_sm_fp32acc",
}
FP32_LANES = {"7": 64, "8.0": 64, "10": 128}  # else 128 a SM (CUDA guide, 5.4.1)
UNKNOWN = Ceiling(value=None, kind=CeilingKind.NOT_KNOWN, how="nobody tells it")
# GT/s a lane, and the share that is left by the line code (linux/drivers/pci/pci.h).
PCIE_GT_S = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}
OLD_CODE, NEW_CODE = 8 / 10, 128 / 130
PAYLOAD_BYTES, HEADER_BYTES = 256, 24  # 5 to 7 words a packet (Intel AN 690)


def share(measured: float | None, ceiling: Ceiling) -> str:
    """Measured over ceiling as text; above 102 % no percentage but what that means."""
    if not measured or not ceiling.value:
        return units.NOT_AVAILABLE
    if measured > WRONG * ceiling.value:
        return "ceiling or measurement wrong"
    return units.percent(measured / ceiling.value)


def card(name: str) -> facts.Row:
    """Row of `data/gpus.csv` for the name that the driver gives.

    Raises:
        GpuLabError: no such card in the table.
    """
    wanted = _plain(name)
    for row in facts.table("gpus"):
        if _plain(row["name"]) == wanted:
            return row
    raise GpuLabError(
        f"no card {name!r} in data/gpus.csv; found there: "
        f"{', '.join(r['name'] for r in facts.table('gpus')[:3])}, …"
    )


def peak(
    name: str, *, dtype: str, accumulate: str = "float32", clock_mhz: float = 0.0
) -> Ceiling:
    """Dense matrix peak of a card, in FLOP a second: SM x FLOP a clock and SM x clock.

    Args:
        name: as in `data/gpus.csv`.
        dtype: "float32", "tf32", "float16" or "bfloat16".
        accumulate: "float16" gives the rate that PyTorch does not use by itself.
        clock_mhz: SM clock; by default the boost clock of the datasheet.

    Returns:
        Ceiling of kind D; N when the card's numbers are not known.
    """
    row = card(name)
    per_clock = _per_clock(row, dtype, accumulate)
    clock = clock_mhz or float(row["boost_clock_mhz"] or 0)
    if not (per_clock and clock and row["sm_or_cu_count"]):
        return UNKNOWN
    sms = int(row["sm_or_cu_count"])
    how = f"{sms} SM x {per_clock} FLOP a clock x {units.clock(clock)}"
    return Ceiling(
        value=sms * per_clock * clock * 1e6, kind=CeilingKind.DERIVED, how=how
    )


def _per_clock(row: facts.Row, dtype: str, accumulate: str) -> int:
    if dtype == "float32":
        if row["vendor"] != "NVIDIA":
            return 0
        capability = row["compute_capability"]
        major = capability.split(".")[0]
        return 2 * FP32_LANES.get(capability, FP32_LANES.get(major, 128))
    column = COLUMNS[dtype]
    if accumulate == "float16" and dtype == "float16":
        column = "flop_per_clk_per_sm_fp16acc"
    if dtype == "bfloat16" and row["bf16_tensor"] != "yes":
        return 0
    return int(row[column] or 0)


def arithmetic(
    device: Device, *, dtype: str, clock_mhz: float | None = None
) -> Ceiling:
    """Ceiling of a matrix product on a device, in FLOP a second.

    A CPU's is not known: its clock and its units cannot be read reliably, least of
    all in a virtual machine; use the best product of a sweep (`measured_best`).

    Args:
        clock_mhz: mean SM clock of the run; by default the datasheet's boost clock.
    """
    if not device.is_real_gpu:
        return UNKNOWN
    try:
        return peak(device.name, dtype=dtype, clock_mhz=clock_mhz or 0.0)
    except GpuLabError:
        return UNKNOWN


def measured_best(rate: float | None, *, how: str) -> Ceiling:
    """A ceiling that this machine has shown: best of a sweep, measured again."""
    return Ceiling(value=rate, kind=CeilingKind.MEASURED, how=how) if rate else UNKNOWN


def memory(device: Device) -> Ceiling:
    """Memory bandwidth of a GPU, in bytes a second: clock x bus x 2, or the datasheet.

    torch and triton use the same formula; the datasheet stands in where torch does
    not tell clock and bus.
    """
    if not device.is_real_gpu:
        return UNKNOWN
    props = _properties(device)
    clock_khz = getattr(props, "memory_clock_rate", 0)
    bits = getattr(props, "memory_bus_width", 0)
    if clock_khz and bits:
        how = f"{clock_khz / 1e3:.0f} MHz x {bits // 8} bytes x 2"
        value = clock_khz * 1e3 * bits / 8 * 2
        return Ceiling(value=value, kind=CeilingKind.DERIVED, how=how)
    try:
        text = card(device.name)["memory_bandwidth_gb_s"]
    except GpuLabError:
        return UNKNOWN
    value = float(text or 0) * 1e9
    kind = CeilingKind.DATASHEET
    return Ceiling(value=value, kind=kind, how=device.name) if value else UNKNOWN


def pcie(generation: int, lanes: int, *, payload_bytes: int = PAYLOAD_BYTES) -> Ceiling:
    """Bytes a second in one direction of a PCIe link, headers of packets taken off.

    GT/s x lanes x line code / 8 x payload / (payload + header).
    """
    code = OLD_CODE if generation <= 2 else NEW_CODE
    raw = PCIE_GT_S[generation] * 1e9 * lanes * code / 8
    value = raw * payload_bytes / (payload_bytes + HEADER_BYTES)
    how = f"PCIe {generation} x{lanes}, {payload_bytes} bytes a packet"
    return Ceiling(value=value, kind=CeilingKind.DERIVED, how=how)


@functools.cache
def _properties(device: Device) -> Any:
    if device.backend not in ("cuda", "rocm"):
        return None
    import torch

    return torch.cuda.get_device_properties(device.torch_name)


def _plain(name: str) -> str:
    return re.sub(r"^nvidia |^amd |\s+", "", name.lower().strip())
