"""Snapshots of machines: the answer, what damage does to it, and a new recording."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from test_redact import DIRT, HIDDEN, person

from gpu_lab import cli
from gpu_lab.hardware import host, pci, snapshot, texts
from gpu_lab.records import GpuLabError

__all__ = ["person"]  # the fixture: a process of a person with host, user and token
CASES = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))
    for path in sorted((Path(__file__).parent / "fixtures/cases/detect").glob("*.json"))
}
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
SPEEDS = ("pcie_gen_current", "pcie_width_current", "pcie_gen_max", "pcie_width_max")
Tree = dict[str, Any]


# -- the cases: what has to come out --


def same_place(one: Any, other: Any) -> bool:
    """Whether two PCI addresses are one, whatever zeros the domain has in front."""
    short = (re.sub(r"^0+(?=[0-9a-f]{4}:)", "", str(x).lower()) for x in (one, other))
    return len(set(short)) == 1


def fits(wanted: Tree, gpu: Tree) -> bool:
    """Whether an entry of the answer is the GPU that the case describes."""
    text = f"{gpu['name']} {gpu['bus_id']}".lower()
    named = any(name.lower() in text for name in wanted["name"].split("|"))
    place = wanted.get("bus_id")
    return named and (not place or same_place(place, gpu["bus_id"]))


def allowed(wanted: Tree, key: str) -> list[Any]:
    """Values that a case accepts for one field."""
    value = wanted[key]
    if key == "link":
        return list(value.split("|"))
    return value if isinstance(value, list) else [value]


def says(entry: str, text: str) -> bool:
    """Whether a text has an entry: from the start of a word, short ones whole."""
    parts = (
        rf"(?<![a-z0-9]){re.escape(part)}{'(?![a-z0-9])' if len(part) <= 3 else ''}"
        for part in entry.split("|")
    )
    return any(re.search(part, text, re.IGNORECASE) for part in parts)


@each_case
def test_case(case: Tree) -> None:
    answer, expected = snapshot.analyse(case["input"]), case["expected"]
    left = list(answer["gpus"])
    for wanted in expected["gpus"]:
        gpu = next((g for g in left if fits(wanted, g)), None)
        assert gpu, f"not reported: {wanted['name']}"
        left.remove(gpu)
        for key in ("external", "link", *SPEEDS):
            assert gpu[key] in allowed(wanted, key), f"{gpu['name']}: {key}"
        assert gpu["evidence"]
    assert left == []
    for entry in expected.get("note_must_mention", ()):
        assert says(entry, json.dumps(answer, ensure_ascii=False)), entry
    for key in ("interconnect", "mig_devices", "driver_version", "cuda_version"):
        assert answer[key] == expected.get(key, answer[key])


# -- damage: nothing becomes certain that is not so --


def wrong(case: Tree, answer: Tree) -> list[str]:
    """Certainties of an answer that are not those of the case."""
    found = []
    for gpu in answer["gpus"]:
        place, wishes = gpu["bus_id"], case["expected"]["gpus"]
        mine = [w for w in wishes if not place or not w.get("bus_id") or fits(w, gpu)]
        mine = mine or [w for w in wishes if same_place(w.get("bus_id"), place)]
        faults = [
            [
                f"{gpu['name']}: {key} is {gpu[key]}"
                for key in ("external", *SPEEDS)
                if gpu[key] is not None and gpu[key] not in allowed(wanted, key)
            ]
            for wanted in mine
        ]
        found += min(faults, key=len, default=[f"{gpu['name']}: no such GPU"])
    return found


def cuts(case: Tree, step: int) -> Iterator[Tree]:
    """The snapshot with one of its texts ended early, at every place in turn."""
    for key, text in case["input"].items():
        for place in range(0, len(text), step):
            yield {**case["input"], key: text[:place]}


@each_case
def test_a_text_that_ends_early(case: Tree) -> None:
    for number, cut in enumerate(cuts(case, 1)):
        assert wrong(case, snapshot.analyse(cut)) == [], number


@each_case
@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace(" ", "\t"),
        lambda text: f"\ufeff{text}",
        lambda text: f"{text}\n\n",
        lambda text: f"\x1b[4m{text}\x1b[0m",
    ],
    ids=["crlf", "tabs", "bom", "line end", "colours"],
)
def test_another_way_to_write_the_same(
    case: Tree, change: Callable[[str], str]
) -> None:
    changed = {key: change(text) for key, text in case["input"].items()}
    # In a file below /sys the value is all there is: colours have no place there.
    assert snapshot.analyse(changed) == snapshot.analyse(case["input"])


def noise(size: int, seed: int) -> str:
    """Lines of all lengths and letters, with pieces that parsers look for."""
    draw = random.Random(seed)
    pieces = [
        "[0000:",
        "GPU ",
        "NV",
        "| ",
        "01:0",
        "Speed ",
        "x1",
        "\\-",
        " : ",
        "é\x00",
    ]
    line = "".join(draw.choice([*pieces, "a", "7", ":", "."]) for _ in range(400))
    lines = (line[: draw.randrange(400)] for _ in range(size // 500))
    return "\n".join([*lines, "y" * (size // 2)])


@each_case
def test_noise_around_every_text(case: Tree) -> None:
    for seed in range(3):
        dirt = noise(20_000, seed)
        dirty = {k: f"{dirt}\n{t}\n{dirt}" for k, t in case["input"].items()}
        assert wrong(case, snapshot.analyse(dirty)) == []


@pytest.mark.parametrize("name", ["d-004-egpu-thunderbolt3", "d-016-server-nvlink"])
def test_ten_megabytes_of_noise_take_seconds(name: str) -> None:
    case, dirt = CASES[name], noise(10_000_000, 1)
    key, text = next(iter(case["input"].items()))
    answer = snapshot.analyse({**case["input"], key: f"{dirt}\n{text}\n{dirt}"})
    assert wrong(case, answer) == []
    assert len(answer["gpus"]) == len(case["expected"]["gpus"])


@pytest.mark.parametrize("filler", [" ", "\t", "-", "|", "0", ":", "a ", "GPU ", "[0"])
def test_long_runs_of_one_sign_are_read_in_linear_time(filler: str) -> None:
    text = "\n".join([filler * (1900 // len(filler))] * 500)
    for key in ("lspci -vv", "nvidia-smi", "dmesg", "boltctl list"):
        assert snapshot.analyse({key: text})["gpus"] == []


@pytest.mark.parametrize("text", ["", "{", "[1]", "7", '"x"', "null", "[" * 5000])
def test_a_file_that_is_no_snapshot(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text)
    with pytest.raises(GpuLabError, match=r"broken\.json: wanted a snapshot"):
        snapshot.load(path)


def test_every_cut_of_a_snapshot_file_is_an_error_in_one_line(tmp_path: Path) -> None:
    whole = json.dumps(CASES["d-007-egpu-usb4-tb5"]["input"]).encode()
    path = tmp_path / "cut.json"
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        with pytest.raises(GpuLabError):
            snapshot.load(path)
    path.write_bytes(b"\xef\xbb\xbf" + whole)
    assert len(snapshot.load(path)) == 3
    with pytest.raises(GpuLabError, match="not a file"):
        snapshot.load(tmp_path)


# -- other machines than those of the cases --

NAVI = """\
22:00.0 PCI bridge: AMD/ATI Navi 10 XL Upstream Port of PCI Express Switch (rev c1)
\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM L1
\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x4 (downgraded)
23:00.0 PCI bridge: AMD/ATI Navi 10 XL Downstream Port of PCI Express Switch
24:00.0 VGA compatible controller: AMD/ATI Navi 21 [Radeon RX 6800] (rev c1)
\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM L1
\tLnkSta:\tSpeed 16GT/s, Width x16
"""
NAVI_TREE = (
    "-[0000:00]---07.0-[20-49]----00.0-[21-49]----01.0-[22-24]----00.0-[23-24]"
    "----00.0-[24]----00.0\n"
)
DOCK = """\
20:00.0 PCI bridge: Intel Corporation JHL7440 Thunderbolt 3 Bridge [Titan Ridge DD 2018]
21:01.0 PCI bridge: Intel Corporation JHL7440 Thunderbolt 3 Bridge [Titan Ridge DD 2018]
"""
ARC = """\
01:00.0 PCI bridge: Intel Corporation Device 4fa0 (rev 01)
\tLnkCap:\tPort #0, Speed 16GT/s, Width x16
\tLnkSta:\tSpeed 16GT/s, Width x8 (downgraded)
02:01.0 PCI bridge: Intel Corporation Device 4fa4
03:00.0 VGA compatible controller: Intel Corporation DG2 [Arc A770] (rev 08)
\tLnkCap:\tPort #0, Speed 2.5GT/s, Width x1
\tLnkSta:\tSpeed 2.5GT/s, Width x1
"""
USB4 = """\
00:03.1 PCI bridge: AMD Family 19h USB4/Thunderbolt PCIe tunnel
\tBus: primary=00, secondary=03, subordinate=61, sec-latency=0
03:00.0 PCI bridge: Intel Corporation Thunderbolt 4 Bridge [Goshen Ridge 2020] (rev 02)
\tBus: primary=03, secondary=04, subordinate=61, sec-latency=0
04:01.0 PCI bridge: Intel Corporation Thunderbolt 4 Bridge [Goshen Ridge 2020]
\tBus: primary=04, secondary=05, subordinate=05, sec-latency=0
05:00.0 VGA compatible controller: NVIDIA Corporation AD104 [GeForce RTX 4070] (rev a1)
\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM L1
\t\tLnkSta:\tSpeed 8GT/s (downgraded), Width x4 (downgraded)
"""
PATH = "/sys/devices/pci0000:00/0000:00:07.0/0000:2a:00.0/0000:2b:01.0/0000:2c:00.0"
CARD = {"class": "0x030000", "vendor": "0x10de", "current_link_width": "4"}
BOARD = "GPU 0: NVIDIA Graphics Device (UUID: x)\n"
ROWS = "".join(
    f"GPU{i}\t" + "\t".join(" X " if i == j else "NV12" for j in range(4)) + "\t0-9\n"
    for i in range(4)
)
TOPOLOGY = "\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\n" + ROWS
PAIR = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV4\t0-31\nGPU1\tNV4\t X \t0-31\n"
T4 = "00:1e.0 3D controller [0302]: NVIDIA Corporation TU104GL [Tesla T4] [10de:1eb8]"
A40 = "".join(
    f"41:{slot} 3D controller [0302]: NVIDIA Corporation GA102GL [A40] [10de:2235]\n"
    for slot in ("00.0", "00.4", "01.0")
)
QUERY = "nvidia-smi --query-gpu=name,pcie.link.gen.current,pcie.link.width.current"
APPLE = '      "sppci_model" : "Apple M3 Pro",\n'
MAC = """\
    Radeon RX 580:

      Chipset Model: AMD Radeon RX 580
      Type: External GPU
      Bus: PCIe
"""
ELSEWHERE: dict[str, tuple[Tree, tuple[Any, ...]]] = {
    "a Radeon with its switch in a Thunderbolt box": (
        {"lspci -vv": DOCK + NAVI, "lspci -t": NAVI_TREE},
        ("thunderbolt3", True, 1, 4, 4, 16),
    ),
    "the same without the tree": ({"lspci -vv": NAVI}, ("unknown", None, 1, 4, 4, 16)),
    "only the function of a Radeon": (
        {"lspci -vv": NAVI[NAVI.index("24:") :]},
        ("unknown", None, None, None, None, None),
    ),
    "an Arc in a slot": ({"lspci -vv": ARC}, ("pcie-slot", False, 4, 8, 4, 16)),
    "the slowest of two tunnels": ({"lspci -vv": USB4}, ("usb4", True, 3, 4, 4, 16)),
    "bridges named in the path": (
        {f"{PATH}/{name}": value for name, value in CARD.items()}
        | {"/sys/bus/pci/devices/0000:2b:01.0/vendor": "0x8086\n"}
        | {"/sys/bus/pci/devices/0000:2b:01.0/device": "0x0b26\n"},
        ("thunderbolt4", True, None, 4, None, None),
    ),
    "where a link of sysfs leads": (
        {f"/sys/bus/pci/devices/0000:2c:00.0/{k}": v for k, v in CARD.items()}
        | {"readlink": f"../../..{PATH.removeprefix('/sys')}"}
        | {"lspci -n": "2b:01.0 0604: 8086:15da (rev 02)\n"},
        ("thunderbolt3", True, None, 4, None, None),
    ),
    "removable, says the kernel": (
        {f"{PATH}/{name}": value for name, value in CARD.items()}
        | {f"{PATH}/removable": "removable\n"},
        ("unknown", True, None, 4, None, None),
    ),
    "NVLink between all of four": (
        {"nvidia-smi -L": BOARD, "nvidia-smi topo -m": TOPOLOGY},
        ("sxm", False, None, None, None, None),
    ),
    "NVLink bridge between two cards": (
        {"nvidia-smi -L": BOARD, "nvidia-smi topo -m": PAIR},
        ("unknown", None, None, None, None, None),
    ),
    "a cloud guest that nobody names": (
        {"lspci -nn": T4, f"{QUERY} --format=csv": "name, x, y\nTesla T4, 3, 8\n"},
        ("virtual", None, 3, 8, None, None),
    ),
    "a rented whole machine": (
        {
            "/sys/class/dmi/id/sys_vendor": "Amazon EC2\n",
            "systemd-detect-virt": "none\n",
            f"{QUERY} --format=csv,noheader": "Tesla T4, 3, 16\n",
        },
        ("pcie-slot", False, 3, 16, None, None),
    ),
    "a laptop that Microsoft sells is no guest": (
        {
            "/sys/class/dmi/id/sys_vendor": "Microsoft Corporation\n",
            "lspci": "01:00.0 3D controller: NVIDIA Corporation AD107M [RTX 4050]",
            "lspci -t": "-[0000:00]---01.0-[01]----00.0",
        },
        ("laptop-internal", False, None, None, None, None),
    ),
    "a virtual GPU": (
        {"nvidia-smi -L": "GPU 0: NVIDIA A10-8Q (UUID: x)\n"},
        ("virtual", None, None, None, None, None),
    ),
    "virtual functions are no cards": (
        {"lspci -nn": A40},
        ("unknown", None, None, None, None, None),
    ),
    "an OCuLink slot": (
        {
            "lspci -vv": "05:00.0 VGA compatible controller: NVIDIA Corporation GP104\n"
            "\tPhysical Slot: OCuLink1\n"
        },
        ("oculink", True, None, None, None, None),
    ),
    "a Mac with a box": (
        {"system_profiler SPDisplaysDataType": MAC},
        ("thunderbolt3", True, None, None, None, None),
    ),
    "a Mac with Apple silicon": (
        {"system_profiler -json SPDisplaysDataType": APPLE},
        ("integrated", False, None, None, None, None),
    ),
    "a name of Windows": (
        {"wmic path Win32_VideoController": "Name\r\nAMD Radeon(TM) Graphics\r\n"},
        ("integrated", False, None, None, None, None),
    ),
}


@pytest.mark.parametrize(("given", "wanted"), ELSEWHERE.values(), ids=ELSEWHERE)
def test_other_machines(given: Tree, wanted: tuple[Any, ...]) -> None:
    (gpu,) = {str(g): g for g in snapshot.analyse(given)["gpus"]}.values()
    assert tuple(gpu[key] for key in ("link", "external", *SPEEDS)) == wanted


def test_cards_without_address_find_their_place() -> None:
    listed = "\n".join(
        f"0{n}:00.0 VGA compatible controller: NVIDIA Corporation {name} (rev a1)"
        for n, name in (
            (1, "GA102 [GeForce RTX 3090]"),
            (2, "AD102 [GeForce RTX 4090]"),
        )
    )
    given = {"lspci": listed, QUERY: "NVIDIA GeForce RTX 4090, 4, 16\n"}
    one, other = snapshot.analyse(given)["gpus"]
    assert (one["pcie_width_current"], other["pcie_width_current"]) == (None, 16)
    assert "does not" in one["note"]  # the driver lists it not
    both = "NVIDIA GeForce RTX 3090, 3, 8\nNVIDIA GeForce RTX 4090, 4, 16\n"
    one, other = snapshot.analyse({"lspci": listed, QUERY: both})["gpus"]
    assert (one["pcie_width_current"], other["pcie_width_current"]) == (8, 16)


def test_what_windows_names_beside_the_driver() -> None:
    names = "NVIDIA GeForce RTX 4070\r\nIntel(R) Iris(R) Xe Graphics\r\n"
    answer = snapshot.analyse(
        {
            "nvidia-smi -L": "GPU 0: NVIDIA GeForce RTX 4070 (UUID: x)\n",
            "powershell (Get-CimInstance Win32_VideoController).Name": names,
        }
    )
    assert [gpu["link"] for gpu in answer["gpus"]] == ["unknown", "integrated"]


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("authorized", "no GPU is visible"),
        ("connected", "not authorised"),
        ("disconnected", ""),
    ],
)
def test_an_enclosure_without_a_card(state: str, words: str) -> None:
    text = CASES["d-006-enclosure-without-gpu"]["input"]["boltctl list"]
    given = {
        "boltctl list": text.replace("status:        authorized", f"status: {state}"),
        "lspci": "00:02.0 VGA compatible controller: Intel Corporation UHD 620",
    }
    notes = " ".join(snapshot.analyse(given)["notes"])
    assert (words in notes) if words else notes == ""


def test_an_enclosure_of_the_kernel_log() -> None:
    log = (
        "[ 9.1] thunderbolt 0-1: new device found, vendor=0x127 device=0x3\n"
        "[ 9.2] thunderbolt 0-1: Razer Core X\n"
    )
    (nothing, note) = snapshot.analyse({"dmesg": log})["notes"]
    assert "No GPU" in nothing
    assert "Razer Core X is attached" in note
    gone = f"{log}[ 99.9] thunderbolt 0-1: device disconnected\n"
    assert snapshot.analyse({"dmesg": gone})["notes"] == [nothing]


def test_links_between_gpus_are_all_listed() -> None:
    mixed = "GPU0\t X \tSYS\tNV4\nGPU1\tSYS\t X \tPHB\nGPU2\tNV4\tPHB\t X \n"
    answer = snapshot.analyse({"nvidia-smi topo -m": mixed})
    assert answer["interconnect"] == "NV4, PHB, SYS"
    assert len(answer["gpus"]) == 3


# -- this machine --


def sysfs(folder: Path, *places: str, **values: str) -> None:
    """One function of a sysfs tree: its real folder and the link to it."""
    real = folder.joinpath("sys", "devices", "pci0000:00", *places)
    real.mkdir(parents=True, exist_ok=True)
    for name, value in values.items():
        (real / name).write_text(f"{value}\n")
    links = folder / "sys" / "bus" / "pci" / "devices"
    links.mkdir(parents=True, exist_ok=True)
    (links / places[-1]).symlink_to(real)


@pytest.fixture
def computer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A computer with a card in a box, of which tools say these texts."""
    tunnel = ("0000:00:07.0", "0000:2a:00.0", "0000:2b:01.0")
    for depth in (1, 2, 3):
        ids = {"vendor": "0x8086", "device": "0x15ef", "class": "0x060400"}
        sysfs(tmp_path, *tunnel[:depth], **ids)
    card = {"vendor": "0x10de", "device": "0x2684", "class": "0x030000"}
    link = {"current_link_speed": "8.0 GT/s PCIe", "current_link_width": "4"}
    sysfs(tmp_path, *tunnel, "0000:2c:00.0", **card, **link)
    sysfs(tmp_path, "0000:00:1f.0", **{"class": "0x060100", "vendor": "0x8086"})
    monkeypatch.setattr(host, "ROOT", tmp_path)
    told = {"uname -r": "6.8.0"}
    monkeypatch.setattr(
        host, "_output", lambda *line, limit_s: told.get(" ".join(line), "")
    )
    return told


@pytest.mark.skipif(sys.platform != "linux", reason="sysfs")
@pytest.mark.usefixtures("computer")
def test_a_live_machine_is_read_through_its_snapshot() -> None:
    given = host.texts()
    assert not any("1f.0" in key for key in given)
    (gpu,) = snapshot.here()["gpus"]
    assert (gpu["bus_id"], gpu["link"], gpu["external"]) == (
        "0000:2c:00.0",
        "thunderbolt3",
        True,
    )
    assert (gpu["pcie_gen_current"], gpu["pcie_width_current"]) == (3, 4)


@pytest.mark.skipif(sys.platform != "linux", reason="sysfs")
@pytest.mark.usefixtures("person")
def test_a_recorded_machine_answers_like_the_live_one(
    computer: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    computer["nvidia-smi"] = f"NVIDIA-SMI has failed. {DIRT}"
    computer["boltctl list"] = DIRT.replace("; ", "\n")
    path = tmp_path / "out.json"
    assert cli.main(["snapshot", str(path)]) == 0
    text = path.read_text(encoding="utf-8")
    assert [part for part in HIDDEN if part.lower() in text.lower()] == []
    assert "0000:2c:00.0" in text
    capsys.readouterr()
    answers: list[Tree] = []
    for given in ([], ["--from", str(path)]):
        assert cli.main(["detect", "--json", *given]) == 0
        answers.append(json.loads(capsys.readouterr().out))
    assert answers[0] == answers[1]
    assert answers[0]["gpus"][0]["external"] is True


def test_a_program_that_is_absent_is_asked_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def nothing(*line: str, limit_s: float) -> str:
        asked.append(line[0])
        return ""

    monkeypatch.setattr(host, "_output", nothing)
    host.texts()
    assert asked
    assert len(asked) == len(set(asked))


def test_detect_does_not_import_torch_and_is_one_page() -> None:
    code = (
        "import sys; from gpu_lab import cli; code = cli.main(['detect']);"
        "print([m for m in ('torch', 'numpy', 'pynvml') if m in sys.modules], code)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.endswith("[] 0\n")
    assert len(ended.stdout.splitlines()) < 25
    assert ended.stderr == ""


def test_detect_prints_a_recorded_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "s.json"
    path.write_text(json.dumps(CASES["d-004-egpu-thunderbolt3"]["input"]))
    assert cli.main(["detect", "--from", str(path)]) == 0
    out = capsys.readouterr().out
    assert "thunderbolt3, external" in out
    assert "memory" not in out  # that would be this machine's


# -- small parts --


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("01:00.0", "0000:01:00.0"),
        ("00000000:DD:00.0", "0000:dd:00.0"),
        ("0004:01:1f.7", "0004:01:1f.7"),
        ("8c1b:00:00.0", "8c1b:00:00.0"),
        ("10000:e1:00.0", "10000:e1:00.0"),
    ],
)
def test_addresses_in_one_form(text: str, wanted: str) -> None:
    assert texts.address(text) == wanted


def test_a_tree_with_two_domains_and_names() -> None:
    tree = (
        "-+-[0001:40]---02.0-[41]----00.0  NVIDIA Corporation\n"
        " \\-[0000:00]-+-00.0  Some Host Bridge\n"
        "             +-01.0-[01]--+-00.0  NVIDIA [more]\n"
        "             |            \\-00.1  Audio\n"
        "             \\-1c.0-[02-04]----00.0-[03-04]----01.0-[04]----00.0\n"
    )
    functions: pci.Functions = {}
    pci.read_tree(functions, tree)
    assert pci.chain(functions, "0001:41:00.0") == ["0001:40:02.0"]
    assert pci.chain(functions, "0000:01:00.1") == ["0000:00:01.0"]
    assert pci.chain(functions, "0000:04:00.0") == [
        "0000:03:01.0",
        "0000:02:00.0",
        "0000:00:1c.0",
    ]


def test_bridges_in_a_ring_end() -> None:
    functions = {
        "0000:01:00.0": {"secondary": "02"},
        "0000:02:00.0": {"secondary": "01"},
    }
    assert len(pci.chain(functions, "0000:02:00.0")) <= 2


def test_a_data_centre_card_in_a_thunderbolt_box_is_outside() -> None:
    """The bridges above decide, not the form that its name belongs to."""
    lspci = """\
05:00.0 PCI bridge [0604]: Intel Corporation JHL7440 Thunderbolt 3 Bridge [8086:15ef]
06:01.0 PCI bridge [0604]: Intel Corporation JHL7440 Thunderbolt 3 Bridge [8086:15ef]
07:00.0 3D controller [0302]: NVIDIA Corporation GV100GL [Tesla V100 SXM2] [10de:1db1]
"""
    tree = "-[0000:00]-+-00.0\n           \\-1d.0-[05-07]----00.0-[06-07]--"
    tree += "--01.0-[07]----00.0"
    found = snapshot.analyse({"lspci -nn": lspci, "lspci -t": tree})["gpus"]
    assert [(g["external"], g["link"]) for g in found] == [(True, "thunderbolt3")]


@pytest.mark.parametrize("text", ["{}", "[]", '{"a": {"b": "c"}}', '{"a": 1}'])
def test_what_is_no_snapshot_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(GpuLabError, match="wanted a snapshot"):
        snapshot.load(path)


def test_a_shipped_machine_is_a_snapshot(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"title": "x", "snapshot": {"nvidia-smi -L": "no"}}))
    assert snapshot.load(path) == {"nvidia-smi -L": "no"}


def test_a_card_behind_an_emulated_bridge_is_in_a_guest() -> None:
    text = """\
00:02.0 PCI bridge: Red Hat, Inc. QEMU PCIe Root port
01:00.0 VGA compatible controller: NVIDIA Corporation AD102 [GeForce RTX 4090] (rev a1)
"""
    tree = "-[0000:00]-+-00.0\n           \\-02.0-[01]----00.0"
    (found,) = snapshot.analyse({"lspci": text, "lspci -t": tree})["gpus"]
    assert (found["external"], found["link"]) == (None, "virtual")
