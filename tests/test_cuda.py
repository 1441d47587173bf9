"""The clock of CUDA on a torch.cuda that is played by the simulated device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gpu_lab import timing
from gpu_lab.hardware import nvidia
from gpu_lab.records import Device, DeviceLost, DeviceState, Source
from gpu_lab.timing import Arm, Model, Plan, Queue, SimulatedGpu, cuda

GPU = Device(backend="cuda", name="Test GPU", index=1, bus_id="0000:65:00.0")
CYCLES_PER_S = 1.6e9


class FakeCuda:
    """torch.cuda as far as the clock needs it; knows which device was meant."""

    def __init__(self) -> None:
        self.gpu = SimulatedGpu(Model(noise=0.0))
        self.slept: list[int] = []
        self.current = "cuda:0"
        self.streams: list[str] = []

    @contextmanager
    def device(self, device: torch.device) -> Iterator[None]:
        before, self.current = self.current, str(device)
        yield
        self.current = before

    def current_stream(self, device: torch.device) -> str:
        return f"stream of {device}"

    def synchronize(self, device: Any = None) -> None:
        self.gpu.synchronize()

    def sleep(self, cycles: int) -> None:
        assert self.current == GPU.label
        assert isinstance(cycles, int)
        self.slept.append(cycles)
        self.gpu.hold(cycles / CYCLES_PER_S)

    def event(self, *, enable_timing: bool) -> Any:
        assert enable_timing
        event = SimpleNamespace()

        def record(stream: str) -> None:
            self.streams.append(stream)
            event.mark = self.gpu.mark()

        event.record = record
        event.query = lambda: bool(event.mark.done())
        event.elapsed_time = lambda later: 1e3 * event.mark.seconds_to(later.mark)
        return event


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    """torch.cuda is played, and what was kept of an earlier one forgotten."""
    found = FakeCuda()
    for name in ("device", "current_stream", "synchronize"):
        monkeypatch.setattr(torch.cuda, name, getattr(found, name))
    monkeypatch.setattr(torch.cuda, "_sleep", found.sleep, raising=False)
    monkeypatch.setattr(torch.cuda, "Event", found.event)
    monkeypatch.setattr(torch.accelerator, "synchronize", found.synchronize)
    monkeypatch.setattr(nvidia, "devices", lambda: ())
    forget()
    yield found
    forget()


def forget() -> None:
    cuda._cycles_per_s.cache_clear()
    cuda._nvml_index.cache_clear()


def test_a_real_gpu_gets_this_clock(fake: FakeCuda) -> None:
    for backend in ("cuda", "rocm"):
        clock = timing.clock_for(Device(backend=backend, name="x", index=1))
        assert isinstance(clock, cuda.CudaQueue)
        assert isinstance(clock, Queue)
        assert clock.source is Source.MEASURED


def test_the_sleep_is_calibrated_once_a_device(fake: FakeCuda) -> None:
    clock = cuda.CudaQueue(GPU)
    cuda.CudaQueue(GPU)
    assert fake.slept == [cuda.CALIBRATION_CYCLES] * (cuda.WAKING + 1)
    clock.hold(0.25)
    assert fake.slept[-1] == pytest.approx(0.25 * CYCLES_PER_S, rel=1e-3)
    clock.hold(0.0)
    assert fake.slept[-1] == 1
    assert fake.current == "cuda:0"  # as the user left it


def test_marks_measure_device_seconds(fake: FakeCuda) -> None:
    clock = cuda.CudaQueue(GPU)
    start = clock.mark()
    clock.hold(0.5)
    assert not clock.mark().done()
    stop = clock.mark()
    clock.synchronize()
    assert stop.done()
    assert start.seconds_to(stop) == pytest.approx(0.5, rel=1e-3)
    assert set(fake.streams) == {"stream of cuda:1"}


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize(
    ("listed", "asked"),
    [
        (("00000000:17:00.0", "00000000:65:00.0"), 1),
        (("00000000:65:00.0", "00000000:17:00.0"), 0),
        (("00000000:17:00.0",), None),
        ((), None),
        ((None,), None),
    ],
)
def test_the_state_is_that_of_the_card_with_its_address(
    monkeypatch: pytest.MonkeyPatch, listed: tuple[str | None, ...], asked: int | None
) -> None:
    cards = tuple(
        Device(backend="cuda", name="x", index=i, bus_id=b)
        for i, b in enumerate(listed)
    )
    monkeypatch.setattr(nvidia, "devices", lambda: cards)
    monkeypatch.setattr(nvidia, "state", lambda i: DeviceState(clock_sm_mhz=i))
    found = cuda.CudaQueue(GPU).state()
    assert found == (None if asked is None else DeviceState(clock_sm_mhz=asked))


@pytest.mark.usefixtures("fake")
def test_a_card_that_fell_off_the_bus_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_index: int) -> None:
        raise DeviceLost("GPU is lost")

    monkeypatch.setattr(nvidia, "devices", lambda: (GPU,))
    monkeypatch.setattr(nvidia, "state", fails)
    with pytest.raises(DeviceLost, match=r"^cuda:1 \(Test GPU\) failed .*GPU is lost"):
        cuda.CudaQueue(GPU).state()


def failing(*_args: Any, **_options: Any) -> Any:
    raise RuntimeError("CUDA error: the launch timed out and was terminated")


@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("_sleep", lambda clock: clock.hold(0.1)),
        ("Event", lambda clock: clock.mark()),
    ],
)
def test_what_the_driver_says_is_not_hidden(
    fake: FakeCuda,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    use: Callable[[cuda.CudaQueue], Any],
) -> None:
    clock = cuda.CudaQueue(GPU)
    monkeypatch.setattr(torch.cuda, name, failing)
    with pytest.raises((DeviceLost, RuntimeError), match="the launch timed out"):
        use(clock)


def test_the_core_measures_by_it(
    fake: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = cuda.CudaQueue(GPU)
    for name in ("wall", "cpu"):  # one virtual time for host and device
        monkeypatch.setattr(clock, name, getattr(fake.gpu, name))
    monkeypatch.setattr(clock, "anchor", fake.gpu.anchor)
    arm = Arm(name="kernel", calls=(lambda: fake.gpu.kernel(100e-6),))
    found = timing.measure(arm, device=GPU, plan=Plan(), clock=clock)
    assert found.decided_by == "events"
    assert found.times_s == pytest.approx([101e-6] * len(found.times_s))
    assert found.anchor_s == pytest.approx([51e-6] * len(found.times_s))
    assert (found.flags, found.states) == ((), ())
    assert found.warmup_s
