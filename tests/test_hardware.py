from __future__ import annotations

import dataclasses
import functools
import json
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from gpu_lab import hardware
from gpu_lab.hardware import (
    host,
    install,
    nvidia,
    nvml,
    place,
    snapshot,
    torch_view,
)
from gpu_lab.records import Device, GpuLabError, Link, Machine

LOST = Path(__file__).parent / "fixtures" / "standin" / "lost.json"


# -- the machine --


def test_detect_describes_this_machine() -> None:
    found = hardware.detect()
    assert found.devices[0].backend == "cpu"
    assert found.cpu_name
    assert found.cpu_threads >= 1
    assert found.memory_bytes > 2**28
    assert found.torch_threads
    assert found.versions["torch"].startswith("2.")
    assert found.notes == ()


@pytest.mark.usefixtures("stand_in")
def test_detect_with_replayed_answers_gives_a_simulated_device() -> None:
    found = hardware.detect()
    (gpu,) = found.gpus
    assert gpu.simulated
    assert gpu.name == "Stand-in GPU (simulated)"
    assert (gpu.label, gpu.torch_name, gpu.lost) == ("cuda:0", "cpu", "")
    assert gpu.memory_bytes == 16 * 2**30
    assert gpu.link
    assert (gpu.link.pcie_gen_current, gpu.link.pcie_width_current) == (3, 4)
    assert (gpu.link.pcie_gen_max, gpu.link.pcie_width_max) == (4, 16)
    assert gpu.state
    assert (gpu.state.power_w, gpu.state.temperature_c) == (31.5, 46)
    assert (gpu.state.clock_sm_mhz, gpu.state.clock_memory_mhz) == (1410, 7000)
    assert (found.driver_version, found.cuda_driver_version) == ("580.95.05", "13.0")
    assert found.notes == ("stand-in: driver answers replayed from nvml.json",)


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize("wanted", ["auto", "cuda", "cuda:0"])
def test_the_stand_in_can_be_chosen(wanted: str) -> None:
    machine = hardware.detect()
    assert hardware.choose(machine, wanted).simulated
    assert not hardware.choose(machine, "cpu").simulated


def test_a_lost_gpu_is_listed_and_cannot_be_chosen(
    replay: Callable[[Path], None],
) -> None:
    replay(LOST)
    machine = hardware.detect()
    (gpu,) = machine.gpus
    assert "GPU is lost" in gpu.lost
    assert (gpu.name, gpu.bus_id) == ("Stand-in GPU (simulated)", "00000000:2F:00.0")
    assert (gpu.link, gpu.state, gpu.memory_bytes) == (None, None, None)
    assert hardware.choose(machine).label == "cpu"
    with pytest.raises(GpuLabError, match=r"'cuda' is not usable here; found: cpu;"):
        hardware.choose(machine, "cuda")
    assert hardware.ladder_device(machine, machine.devices[0]) is gpu


# -- choosing --


@pytest.fixture
def three(machine: Machine) -> Machine:
    """CPU, a lost GPU, a working one."""
    gpus = (
        Device(backend="cuda", name="first", lost="fell off the bus"),
        Device(backend="cuda", name="second", index=1),
    )
    return dataclasses.replace(machine, devices=(*machine.devices, *gpus))


@pytest.mark.parametrize(
    ("wanted", "variable", "label"),
    [
        ("auto", None, "cuda:1"),
        ("auto", "cpu", "cpu"),
        ("auto", "", "cuda:1"),
        ("cpu", "cuda", "cpu"),
        ("cuda", None, "cuda:1"),
        ("cuda:1", "cpu", "cuda:1"),
    ],
)
def test_choose(
    three: Machine,
    monkeypatch: pytest.MonkeyPatch,
    wanted: str,
    variable: str | None,
    label: str,
) -> None:
    if variable is not None:
        monkeypatch.setenv("GPU_LAB_DEVICE", variable)
    assert hardware.choose(three, wanted).label == label


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("tpu", "unknown device 'tpu'; wanted one of auto, cpu, cuda"),
        ("cuda:0", "device 'cuda:0' is not usable here; found: cpu, cuda:1"),
        ("cuda:7", "device 'cuda:7' is not usable here"),
        ("mps", "device 'mps' is not usable here"),
    ],
)
def test_choose_says_what_is_there(three: Machine, wanted: str, message: str) -> None:
    with pytest.raises(GpuLabError, match=message):
        hardware.choose(three, wanted)


def test_choose_names_an_unknown_device_of_the_variable(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPU_LAB_DEVICE", "gpu")
    with pytest.raises(GpuLabError, match="unknown device 'gpu'"):
        hardware.choose(machine)


def test_ladder_device_is_the_chosen_gpu_else_any(
    three: Machine, machine: Machine
) -> None:
    cpu, lost, second = three.devices
    assert hardware.ladder_device(three, second) is second
    assert hardware.ladder_device(three, cpu) is lost
    assert hardware.ladder_device(machine, cpu) is cpu


# -- torch's list and the driver's list become one --


def join(
    monkeypatch: pytest.MonkeyPatch, seen: list[Device], listed: list[Device]
) -> tuple[Device, ...]:
    """find_devices() of a machine where torch and the driver see these."""
    monkeypatch.setattr(torch_view, "devices", lambda: tuple(seen))
    monkeypatch.setattr(nvidia, "devices", lambda: tuple(listed))
    return hardware.find_devices()


def gpu(index: int, bus: str | None, **fields: object) -> Device:
    """An NVIDIA card at a PCI address."""
    given: dict[str, object] = {"name": "card", **fields}
    return Device(backend="cuda", index=index, bus_id=bus, **given)  # type: ignore[arg-type]


def test_the_same_card_is_joined_by_its_pci_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    link = Link(pcie_width_current=4)
    listed = [gpu(0, "00000000:2F:00.0"), gpu(1, "00000000:01:00.0", link=link)]
    (one, other) = join(monkeypatch, [gpu(0, "0000:01:00.0")], listed)
    assert (one.label, one.link, one.lost) == ("cuda:0", link, "")
    assert (other.label, other.bus_id) == ("cuda:1", "00000000:2F:00.0")
    assert other.lost == "the driver lists it, torch does not see it"


def two_cards(replay: Callable[[Path], None], tmp_path: Path) -> list[Device]:
    """Two different recorded cards, as the driver numbers them."""
    answers: dict[str, object] = {"nvmlDeviceGetCount()": 2}
    for index, name, bus, width in ((0, "A", "01", 16), (1, "B", "2F", 4)):
        answers |= {
            f"nvmlDeviceGetName({index})": f"NVIDIA {name}",
            f"nvmlDeviceGetPciInfo({index})": {"busId": f"00000000:{bus}:00.0"},
            f"nvmlDeviceGetCurrPcieLinkWidth({index})": width,
            f"nvmlDeviceGetPowerUsage({index})": 1000 * width,
        }
    path = tmp_path / "two.json"
    path.write_text(json.dumps({"nvml": answers}))
    replay(path)
    return list(nvidia.devices())


@pytest.mark.parametrize("order", ["0,1", "1,0", "1"])
def test_torch_and_nvml_meet_by_address_whatever_their_numbers(
    replay: Callable[[Path], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    order: str,
) -> None:
    listed = two_cards(replay, tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", order)
    visible = [listed[int(n)] for n in order.split(",")]
    seen = [gpu(i, card.bus_id, name=card.name) for i, card in enumerate(visible)]
    assert [nvidia.index_of(device.bus_id) for device in seen] == [
        int(n) for n in order.split(",")
    ]
    monkeypatch.setattr(nvml, "replayed", lambda: False)
    found = join(monkeypatch, seen, listed)
    widths = {"NVIDIA A": 16, "NVIDIA B": 4}
    for device in found:
        assert device.link
        assert device.link.pcie_width_current == widths[device.name]
    assert [d.name for d in found if not d.lost] == [card.name for card in visible]


def test_the_link_of_a_device_says_where_it_leads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row = {"bus_id": "0000:2f:00.0", "link": "thunderbolt4", "external": True}
    row |= {"evidence": ["behind a bridge"]} | dict.fromkeys(place.LINK_FIELDS, 4)
    monkeypatch.setattr(snapshot, "here", functools.cache(lambda: {"gpus": [row]}))
    link = Link(pcie_width_current=2, evidence=("NVML",))
    one, other = join(
        monkeypatch, [], [gpu(0, "00000000:2F:00.0", link=link), gpu(1, "0:30:00.0")]
    )
    assert one.link
    assert (one.link.kind, one.link.external) == ("thunderbolt4", True)
    assert one.link.pcie_width_current == 2  # NVML's reading stays
    assert one.link.evidence == ("NVML", "behind a bridge")
    assert other.link is None
    (amd,) = join(monkeypatch, [gpu(0, "0000:2F:00.0")], [])
    assert amd.link
    assert amd.link.pcie_gen_max == 4  # from sysfs, where NVML says nothing


def test_a_card_that_torch_lists_and_the_driver_lost_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listed = [gpu(0, "00000000:01:00.0", lost="GPU is lost")]
    (found,) = join(monkeypatch, [gpu(0, "00000000:01:00.0")], listed)
    assert found.lost == "GPU is lost"


def test_only_the_driver_lists_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    found = join(monkeypatch, [], [gpu(0, "0:01:00.0"), gpu(1, None, lost="gone")])
    assert [(d.label, d.lost) for d in found] == [
        ("cuda:0", "the driver lists it, torch does not see it"),
        ("cuda:1", "gone"),
    ]


def test_cards_of_other_makers_keep_their_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arc = Device(backend="xpu", name="Arc")
    found = join(monkeypatch, [arc], [gpu(0, "0:01:00.0")])
    assert [d.label for d in found] == ["xpu:0", "cuda:0"]


def cuda_with(monkeypatch: pytest.MonkeyPatch, **functions: object) -> None:
    """Let torch.cuda answer like this, and let there be no other GPU."""
    monkeypatch.setattr(torch.xpu, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    for name, function in functions.items():
        monkeypatch.setattr(torch.cuda, name, function)


def properties(index: int) -> SimpleNamespace:
    """A card that works at number 0; number 1 is lost."""
    if index == 1:
        raise RuntimeError("CUDA error: unspecified launch failure\nmore")
    return SimpleNamespace(
        name="RTX 5090",
        major=12,
        minor=0,
        total_memory=2**35,
        pci_domain_id=0,
        pci_bus_id=1,
        pci_device_id=0,
    )


def test_torch_devices_with_one_lost_and_one_too_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cuda_with(
        monkeypatch,
        is_available=lambda: True,
        device_count=lambda: 2,
        get_device_properties=properties,
        get_arch_list=lambda: ["sm_80", "sm_90"],
    )
    new, lost = torch_view.devices()
    assert (new.capability, new.bus_id) == ("12.0", "00000000:01:00.0")
    assert new.lost == "this torch build has no kernels for 12.0"
    assert (lost.label, lost.capability) == ("cuda:1", None)
    assert lost.lost == "CUDA error: unspecified launch failure"


def test_warnings_of_torch_about_the_driver_are_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def warns() -> bool:
        warnings.warn("CUDA initialization: CUDA unknown error", stacklevel=1)
        return False

    cuda_with(monkeypatch, is_available=warns)
    assert torch_view.devices() == ()  # a warning is an error in these tests


# -- the computer --


def pci_device(
    folder: Path, address: str, vendor: str, kind: str, driver: str = ""
) -> None:
    """One device of a sysfs tree."""
    device = folder / "devices" / address
    device.mkdir(parents=True)
    (device / "vendor").write_text(f"{vendor}\n")
    (device / "class").write_text(f"{kind}\n")
    if driver:
        (folder / "drivers" / driver).mkdir(parents=True)
        (device / "driver").symlink_to(folder / "drivers" / driver)


@pytest.mark.skipif(os.name == "nt", reason="sysfs, and links need rights there")
def test_gpus_in_sysfs(tmp_path: Path) -> None:
    pci_device(tmp_path, "0000:00:02.0", "0x8086", "0x030000", "i915")
    pci_device(tmp_path, "0000:00:1f.0", "0x8086", "0x060100")
    pci_device(tmp_path, "0000:01:00.0", "0x10de", "0x030000", "nouveau")
    pci_device(tmp_path, "0000:01:00.1", "0x10de", "0x040300")
    pci_device(tmp_path, "0000:02:00.0", "0x10de", "0x030200")
    pci_device(tmp_path, "0000:03:00.0", "0x1002", "0x038000", "amdgpu")
    pci_device(tmp_path, "0000:04:00.0", "0x1a03", "0x030000", "ast")
    assert host.from_sysfs(tmp_path / "devices") == (
        "0000:00:02.0 Intel (i915)",
        "0000:01:00.0 NVIDIA (nouveau)",
        "0000:02:00.0 NVIDIA (no driver)",
        "0000:03:00.0 AMD (amdgpu)",
    )
    assert host.from_sysfs(tmp_path / "drivers" / "i915") == ()
    assert host.from_sysfs(tmp_path / "nothing") is None


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (
            '{"SPDisplaysDataType": [{"sppci_model": "Apple M3 Pro"}]}',
            ("Apple M3 Pro",),
        ),
        ('{"SPDisplaysDataType": [{}]}', ("GPU",)),
        ('{"SPDisplaysDataType": []}', ()),
        ("", None),
        ("null", None),
        ("{}", None),
    ],
)
def test_gpus_of_a_mac(answer: str, found: tuple[str, ...] | None) -> None:
    assert host._from_system_profiler(answer) == found


def test_gpus_of_windows() -> None:
    answer = "NVIDIA GeForce RTX 4070\r\n\r\nIntel(R) Iris(R) Xe Graphics\r\n"
    assert host._from_lines(answer) == (
        "NVIDIA GeForce RTX 4070",
        "Intel(R) Iris(R) Xe Graphics",
    )
    assert host._from_lines("\r\n") is None


@pytest.mark.parametrize(
    ("battery", "found"),
    [
        (None, None),
        (SimpleNamespace(power_plugged=True), "mains"),
        (SimpleNamespace(power_plugged=False), "battery"),
        (SimpleNamespace(power_plugged=None), None),
    ],
)
def test_power_source(
    monkeypatch: pytest.MonkeyPatch, battery: object, found: str | None
) -> None:
    monkeypatch.setattr(host.psutil, "sensors_battery", lambda: battery, raising=False)
    assert host.power_source() == found


@pytest.mark.parametrize(
    ("version", "variables", "found"),
    [
        ("Linux version 5.15.90.1-microsoft-standard-WSL2 (gcc)", {}, "wsl"),
        ("Linux version 6.8.0", {"COLAB_RELEASE_TAG": "release"}, "colab"),
    ],
)
def test_environment(
    monkeypatch: pytest.MonkeyPatch, version: str, variables: dict[str, str], found: str
) -> None:
    monkeypatch.delenv("COLAB_RELEASE_TAG", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(host, "_read", lambda _path: version)
    assert host.environment() == found


def test_a_tool_that_is_missing_or_hangs_is_no_answer() -> None:
    assert host._output("no-such-program-here") == ""
    hangs = "import time; print('half', flush=True); time.sleep(60)"
    assert host._output(sys.executable, "-c", hangs, limit_s=0.5) == ""


def test_output_in_a_foreign_code_page_is_read() -> None:
    code = r"import sys; sys.stdout.buffer.write(b'Grafik \x81\xff')"
    assert host._output(sys.executable, "-c", code).startswith("Grafik ")


# -- the install command --


def with_card(
    machine: Machine, capability: str | None, *, driver: str | None, system: str
) -> Machine:
    """The machine with one NVIDIA card."""
    card = gpu(0, None, capability=capability)
    return dataclasses.replace(
        machine, devices=(*machine.devices, card), driver_version=driver, system=system
    )


@pytest.mark.parametrize(
    ("capability", "driver", "system", "wanted"),
    [
        ("8.9", "580.95.05", "Linux 6.8", "torch"),
        ("7.5", "580.95.05", "Linux 6.8", "torch"),
        ("6.1", "580.95.05", "Linux 6.8", "torch-cu126"),
        ("7.0", "580.95.05", "Linux 6.8", "torch-cu126"),
        ("8.9", "550.107.02", "Linux 6.8", "torch-cu126"),
        ("12.0", "581.29", "Windows 11", "torch-cu130"),
        (None, None, "Linux 6.8", "torch"),
    ],
)
def test_variant_for_a_card(
    machine: Machine,
    capability: str | None,
    driver: str | None,
    system: str,
    wanted: str,
) -> None:
    found = with_card(machine, capability, driver=driver, system=system)
    assert install.variant(found) == wanted


@pytest.mark.parametrize(
    ("system", "listed", "wanted"),
    [
        ("Linux 6.8", (), "torch-cpu"),
        ("Linux 6.8", None, "torch-cpu"),
        ("Linux 6.8", ("0000:00:02.0 Intel (i915)",), "torch-cpu"),
        ("Linux 6.8", ("0000:01:00.0 NVIDIA (nouveau)",), "torch"),
        ("Linux 6.8", ("0000:03:00.0 AMD (amdgpu)",), "torch-rocm"),
        ("Linux 6.8", ("00:02.0 AMD (amdgpu)", "01:00.0 NVIDIA (nvidia)"), "torch"),
        ("Windows 11", ("Intel(R) Iris(R) Xe Graphics",), "torch"),
        ("Windows 11", ("NVIDIA GeForce RTX 4070",), "torch-cu130"),
        ("Darwin 24.0", ("Apple M3",), "torch"),
    ],
)
def test_variant_without_a_driver(
    machine: Machine, system: str, listed: tuple[str, ...] | None, wanted: str
) -> None:
    plain = dataclasses.replace(machine, system=system)
    assert install.variant(plain, listed=listed) == wanted


@pytest.mark.parametrize("backend", ["rocm", "xpu"])
def test_a_build_that_works_is_not_replaced(machine: Machine, backend: str) -> None:
    card = Device(backend=backend, name="some card")
    found = dataclasses.replace(machine, devices=(*machine.devices, card))
    assert install.variant(found) == f"torch-{backend}"


def test_the_install_command_names_one_file_that_exists(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for folder in (Path(__file__).parent.parent, tmp_path):
        monkeypatch.chdir(folder)
        command = hardware.install_command(machine)
        assert command.startswith("pip install -r ")
        assert Path(command.removeprefix("pip install -r ")).is_file()


# -- architectures of a wheel --

DEFAULT_WHEEL = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"]


@pytest.mark.parametrize(
    ("capability", "archs", "runs"),
    [
        ("8.9", ["sm_86"], True),
        ("8.6", ["sm_89"], False),
        ("8.0", ["sm_80"], True),
        ("9.0", ["sm_90a"], True),
        ("10.0", ["sm_90a"], False),
        ("10.3", ["sm_100a"], False),
        ("12.0", ["compute_90"], True),
        ("8.9", ["compute_90"], False),
        ("12.0", ["compute_90a"], False),
        ("10.0", ["sm_120"], False),
        ("12.1", ["sm_120"], True),
        ("12.0", ["sm_50", "sm_90"], False),
        ("7.0", DEFAULT_WHEEL, False),
        ("7.5", DEFAULT_WHEEL, True),
        ("8.9", DEFAULT_WHEEL, True),
        ("9.0", DEFAULT_WHEEL, True),
        ("12.0", DEFAULT_WHEEL, True),
        ("8.9", [], False),
    ],
)
def test_supports(capability: str, archs: list[str], runs: bool) -> None:
    assert torch_view.supports(capability, archs) is runs


# -- the probe, in this process --


def test_probe_of_a_cpu_says_why_there_is_nothing(
    cpu: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_view, "devices", lambda: ())
    stages = torch_view.probe(cpu)
    assert stages["seen"] is False
    assert "sees no GPU" in stages["seen_evidence"]
    assert not {"wheel", "kernel", "copy"} & set(stages)


def test_probe_of_the_stand_in_is_all_good(stand_in: Device) -> None:
    device = dataclasses.replace(stand_in, capability="9.9")
    stages = torch_view.probe(device)
    answers = [stages[s] for s in ("seen", "wheel", "kernel", "copy")]
    assert answers == [True] * 4
    assert stages["copy_evidence"] == "1 MiB there and back, bit-equal"


def test_probe_of_a_lost_device_is_not_seen(stand_in: Device) -> None:
    stages = torch_view.probe(dataclasses.replace(stand_in, lost="GPU is lost"))
    assert (stages["seen"], stages["seen_evidence"]) == (False, "cuda:0: GPU is lost")
    assert "kernel" not in stages


def test_probe_finds_a_wrong_copy(
    stand_in: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = torch.Tensor.cpu

    def flips_a_bit(tensor: torch.Tensor) -> torch.Tensor:
        found = honest(tensor).clone()
        if found.dtype == torch.uint8:
            found[7] ^= 1
        return found

    monkeypatch.setattr(torch.Tensor, "cpu", flips_a_bit)
    stages = torch_view.probe(dataclasses.replace(stand_in, capability="9.9"))
    assert stages["kernel"] is True
    assert stages["copy"] is False
    assert "CHANGED" in stages["copy_evidence"]


def test_probe_finds_a_wrong_kernel(
    stand_in: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raises(_tensor: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("CUDA error: no kernel image is available\nsecond line")

    monkeypatch.setattr(torch.Tensor, "cpu", raises)
    stages = torch_view.probe(dataclasses.replace(stand_in, capability="9.9"))
    assert stages["kernel"] is False
    wanted = "RuntimeError: CUDA error: no kernel image is available"
    assert stages["kernel_evidence"] == wanted


def test_the_probe_program_does_not_see_what_only_the_driver_lists(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = gpu(0, "0:01:00.0", capability="8.6")
    monkeypatch.setattr(nvidia, "devices", lambda: (listed,))
    monkeypatch.setattr(torch_view, "devices", lambda: ())
    assert hardware.find_devices()[0].label == "cuda:0"
    torch_view.main("cuda:0")
    stages: dict[str, object] = {}
    for line in capsys.readouterr().out.splitlines():
        stages |= json.loads(line)
    assert stages["seen"] is False
