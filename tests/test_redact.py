from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest

from gpu_lab import redact, store
from gpu_lab.records import (
    Answer,
    Device,
    DeviceState,
    Ladder,
    Link,
    Machine,
    Measurement,
    Rung,
    Session,
    Source,
)

HOST, USER, HOME = "zeb-tower.example.org", "zebulon", "/srv/people/zebulon"
KEY = "AAAAC3NzaC1lZDI1NTE5AAAAIHc3Q9sXbq1example0key0text0of0no0one"
SECRET = "correct-horse-battery"
UUID = "8a7d4c2e-91b3-4f60-a5d8-3c2b1a09f8e7"
# What is planted, and the parts of it that must not be found afterwards.
PLANTED = {
    "host": (f"on {HOST} and on ZEB-TOWER", ("zeb-tower",)),
    "user": (f"started by {USER}", (USER,)),
    "home": (f"in {HOME}/course", (HOME,)),
    "serial": ("Serial Number            : 1325623012345", ("1325623012345",)),
    "uuid": (f"UUID: {UUID}", (UUID,)),
    "gpu uuid": (f"GPU 0 (UUID: GPU-{UUID})", (UUID,)),
    "mig uuid": (f"MIG-{UUID} or MIG-GPU-{UUID}/7/0", (UUID,)),
    "mac": ("link/ether 3c:fd:fe:a1:b2:c3 brd", ("fe:a1:b2",)),
    "ipv4": ("at 192.168.178.31.", ("192.168.178.31",)),
    "ipv6": ("at 2001:db8:85a3::8a2e:370:7334", ("85a3", "7334")),
    "e-mail": ("ask jane.doe@mail.example.com", ("jane.doe", "mail.example")),
    "ssh key": (f"ssh-ed25519 {KEY} jane@box", (KEY, "jane")),
    "token": (f"pip --token {SECRET}", (SECRET,)),
}
DIRT = "; ".join(text for text, _ in PLANTED.values())
HIDDEN = [part for _, parts in PLANTED.values() for part in parts]


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make this process that of a person: host, user, home, a secret."""

    def become(host: str = HOST, user: str = USER, home: str = HOME) -> None:
        monkeypatch.setattr("platform.node", lambda: host)
        monkeypatch.setattr("getpass.getuser", lambda: user)
        monkeypatch.setattr(Path, "home", lambda: PurePosixPath(home))
        for names in redact.NAME_VARIABLES.values():
            for name in names:
                monkeypatch.delenv(name, raising=False)
        redact._names_of_machine.cache_clear()

    monkeypatch.setenv("LAB_ACCESS_TOKEN", SECRET)
    become()
    return become


def dirty_session() -> Session:
    """A session with all that is planted in each field that takes free text."""
    link = Link(kind="unknown", note=DIRT, evidence=(DIRT, "NVML"))
    gpu = Device(
        backend="cuda",
        name=f"NVIDIA RTX {DIRT}",
        capability=DIRT,
        bus_id=f"00000000:01:00.0 {DIRT}",
        lost=DIRT,
        link=link,
        state=DeviceState(power_w=10.0),
    )
    machine = Machine(
        system=f"Linux 6.8.0 {DIRT}",
        python="3.11.7",
        cpu_name=DIRT,
        cpu_cores=2,
        cpu_threads=4,
        memory_bytes=2**33,
        environment=DIRT,
        power_source=DIRT,
        driver_version=DIRT,
        cuda_driver_version=DIRT,
        versions={"torch": "2.14.1+cu130", "own": DIRT},
        devices=(Device(backend="cpu", name=DIRT), gpu),
        notes=(DIRT,),
    )
    reason = Measurement.not_measurable("launch", device=gpu, reason=DIRT)
    rung = Rung(name="driver lists it", question=DIRT, answer="no", evidence=DIRT)
    return Session(
        suite="core",
        created="2026-01-02T03:04:05+00:00",
        profile="quick",
        device="cuda:0",
        seed=0,
        machine=machine,
        measurements=(dataclasses.replace(reason, settings={"note": DIRT}),),
        answers=(Answer(exercise="a", kind="V", verdict="PASS", detail=DIRT),),
        ladder=Ladder(rungs=(rung,), device="cuda:0", remedy=DIRT),
        stated={"dock": DIRT, "cable": DIRT},
    )


@pytest.mark.usefixtures("person")
def test_nothing_planted_is_found_in_a_saved_session(tmp_path: Path) -> None:
    path = store.save(dirty_session(), tmp_path / "s.json")
    text = path.read_text(encoding="utf-8").lower()
    assert [part for part in HIDDEN if part.lower() in text] == []
    store.load(path)


@pytest.mark.usefixtures("person")
def test_redacting_twice_changes_nothing(tmp_path: Path) -> None:
    once = json.loads(store.save(dirty_session(), tmp_path / "s.json").read_text())
    assert redact.tree(once) == once


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (r"C:\Users\zebulon\course", r"C:\Users\<user>\course"),
        (r"C:\Users\Jane Doe\course", r"C:\Users\<user>\course"),
        (r"'C:\\Users\\jane\\x.py'", r"'C:\\Users\\<user>\\x.py'"),
        (r"D:\users\jane", r"D:\users\<user>"),
        ("C:/Users/jane/x", "C:/Users/<user>/x"),
        ("/Users/jane/x", "/Users/<user>/x"),
        ("/home/jane", "/home/<user>"),
        ("/var/home/jane/x and more", "/var/home/<user>/x and more"),
        ("/mnt/c/Users/jane/x", "/mnt/c/Users/<user>/x"),
        ("/run/media/jane/disk", "/run/media/<user>/disk"),
        (f"{HOME}/x", "~/x"),
    ],
)
@pytest.mark.usefixtures("person")
def test_home_folders(given: str, wanted: str) -> None:
    assert redact.text(given) == wanted


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("zeb-tower", "<host>"),
        ("Zeb-Tower:8888", "<host>:8888"),
        ("http://zeb-tower.example.org/lab", "http://<host>/lab"),
        ("zeb-tower_2", "<host>_2"),
        ("zebulon@zeb-tower:~$", "<user>@<host>:~$"),
        ("bob@zeb-tower.example.org", "<e-mail>"),
        ("zebulons", "zebulons"),
        ("my-zeb-towers", "my-zeb-towers"),
    ],
)
@pytest.mark.usefixtures("person")
def test_names(given: str, wanted: str) -> None:
    assert redact.text(given) == wanted


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        # nvidia-smi -q, its XML, dmidecode, lspci, lsusb, ioreg, JSON
        ("Serial Number          : 0323716012345", "Serial Number          : <serial>"),
        ("Serial Number          : N/A", "Serial Number          : N/A"),
        ("<serial>0323716012345</serial>", "<serial><serial></serial>"),
        ("\tSerial Number: PF3ABCDE", "\tSerial Number: <serial>"),
        (
            "Device Serial Number 48-b0-2d-ff-ff-1a-2b-3c",
            "Device Serial Number <serial>",
        ),
        (
            "  iSerial                 3 5000ABCDEF",
            "  iSerial                 3 <serial>",
        ),
        ('"IOPlatformSerialNumber" = "C02XL0GTJGH5"', None),
        ("Serial Number (system): C02XL0GTJGH5", "Serial Number (system): <serial>"),
        ('{"serial": "0323716012345"}', '{"serial": "<serial>"}'),
        ("S/N: A1B2C3D4", "S/N: <serial>"),
        ("Razer Core X, serial ABC123456", "Razer Core X, serial <serial>"),
        # addresses of cards
        ("3c:fd:fe:a1:b2:c3", "<mac>"),
        ("3C-FD-FE-A1-B2-C3", "<mac>"),
        ("HWaddr:3c:fd:fe:a1:b2:c3:", "HWaddr:<mac>:"),
        ("mac=3c:fd:fe:a1:b2:c3,", "mac=<mac>,"),
        ("80:00:02:08:fe:80:00:00:00:00:00:00:e4:1d:2d:03:00:ca:fe:01", "<mac>"),
        ("wlx3cfdfea1b2c3: up", "wlx<mac>: up"),
        # addresses of hosts
        ("10.0.0.5:29500", "<ipv4>:29500"),
        ("MASTER_ADDR=10.0.0.5", "MASTER_ADDR=<ipv4>"),
        ("tcp://10.0.0.5:23456", "tcp://<ipv4>:23456"),
        ("10.0.0.5/24, 10.0.0.6.", "<ipv4>/24, <ipv4>."),
        ("10.0.0.5-10.0.0.9", "<ipv4>-<ipv4>"),
        ("addr:2001:db8::1 x", "addr:<ipv6> x"),
        ("[2001:db8::1]:8080", "[<ipv6>]:8080"),
        ("2001:db8::1: unreachable", "<ipv6>: unreachable"),
        ("fe80::1ff:fe23:4567:890a%eth0", "<ipv6>"),
        ("fe80::1%25en0.", "<ipv6>"),
        ("fd12:3456:789a::/48", "<ipv6>/48"),
        ("2001:0db8:85a3:0000:0000:8a2e:0370:7334", "<ipv6>"),
        ("::ffff:192.168.1.5", "::ffff:<ipv4>"),
        # people and their keys
        ("a.b+c@mail.example.co.uk,", "<e-mail>,"),
        ("git@github.com:x/y", "<e-mail>:x/y"),
        ("bob@192.168.1.5", "<e-mail>"),
        ("https://jane:s3cr3t@example.org/x", "https://<secret>@example.org/x"),
        ("http://jane:pw@localhost:8080", "http://<secret>@localhost:8080"),
        (f"ssh-rsa {KEY}== jane@box", "<ssh-key>"),
        (f"sk-ssh-ed25519@openssh.com {KEY}", "<ssh-key>"),
        (f"found {KEY} here", "found <ssh-key> here"),
        (
            "-----BEGIN EC PRIVATE KEY-----\nb3Bl\n-----END EC PRIVATE KEY-----",
            "<ssh-key>",
        ),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE cut", "<ssh-key>"),
        # tokens
        ("hf_aBcDeFgHiJkLmNoP1234567890", "<secret>"),
        ("ghp_aBcDeFgHiJkLmNoP1234567890", "<secret>"),
        ("sk-proj-aBcDeFgHiJkLmNoP1234567890", "<secret>"),
        ("Authorization: Bearer abc123.def456", "Authorization: Bearer <secret>"),
        ("Authorization: Basic amFuZTpwdw==", "Authorization: Basic <secret>"),
        ("sent bearer abc123.def456", "sent bearer <secret>"),
        ("http://x/lab?token=0123abcdef0123", "http://x/lab?token=<secret>"),
        ("password: hunter2", "password: <secret>"),
        ('{"api_key": "abcdef123"}', '{"api_key": "<secret>"}'),
        # nvidia-smi -L
        (f"MIG-{UUID}", "MIG-<uuid>"),
        (f"MIG-GPU-{UUID}/7/0)", "MIG-GPU-<uuid>)"),
        (UUID.upper(), "<uuid>"),
    ],
)
def test_what_gives_itself_away_by_its_form(given: str, wanted: str | None) -> None:
    found = redact.patterns(given)
    if wanted is None:
        assert "C02XL0GTJGH5" not in found
    else:
        assert found == wanted


@pytest.mark.parametrize(
    "text",
    [
        "00000000:01:00.0",
        "0000:65:00.0 NVIDIA (nvidia)",
        "0000:00:01.1/0000:2f:00.0",
        "PCI:0000:2f:00",
        "580.95.05",
        "NVIDIA driver 580.95.05: NVIDIA GeForce RTX 4090",
        "cudnn==9.24.0.43",
        "nvidia-cudnn-cu13 9.24.0.43",
        "nvidia_cublas-13.1.1.3-py3-none-manylinux.whl",
        "libcudnn.so.9.24.0.43",
        "torch>=2.14.1.0",
        "2.14.1+cu130",
        "Linux 5.15.90.1-microsoft-standard-WSL2 x86_64",
        "Windows 11 10.0.26100",
        "32.0.15.8142",
        "std::vector<int>",
        "at c10::Error::Error(c10::SourceLocation)",
        "c10::cuda::CUDACachingAllocator",
        "a::b and gpu::thing",
        "12:34:56",
        "2026-01-02T03:04:05+00:00",
        "2026-01-02_03-04-05",
        "127.0.0.1:8888",
        "0.0.0.0",
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "9c1f0c6f1a7b0c2d3e4f5a6b7c8d9e0f1a2b3c4d",
        "Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.",
        "channel state: 0x0000c67e:6:0:0x0000000f",
        "serial: 12.5 s, parallel: 1.5 s",
        "serial part 3",
        "3.2 ms per token: 12.5 ms",
        "pad_token=<pad>",
        "npm install left-pad@1.2.3",
        "sk-learn and scikit-learn-contrib",
        "1 MiB there and back, bit-equal",
        "NVIDIA GeForce RTX 4060 Ti [not usable]",
        "Serial Number : [N/A]",
    ],
)
@pytest.mark.usefixtures("person")
def test_what_must_survive(text: str) -> None:
    assert redact.text(text) == text


@pytest.mark.parametrize(
    ("host", "user"),
    [
        ("cpu", "cuda"),
        ("quick", "core"),
        ("matmul", "measured"),
        ("host", "user"),
        ("float32", "bytes"),
        ("nvidia", "torch"),
        ("gpu_lab", "session"),
        ("byte", "auto"),
    ],
)
def test_a_host_or_user_called_like_our_words(
    person: Callable[..., None], tmp_path: Path, session: Session, host: str, user: str
) -> None:
    person(host, user, f"/srv/people/{user}")
    row = dataclasses.replace(
        session.measurements[0],
        name="matmul_float32_256",
        settings={"dtype": "float32", "counted": "bytes read + bytes written"},
    )
    given = dataclasses.replace(
        session,
        measurements=(row,),
        answers=(Answer(exercise="matmul_ratio", kind="P", verdict="PASS"),),
    )
    found = store.load(store.save(given, tmp_path / "s.json"))
    assert found.measurements == given.measurements
    assert found.measurements[0].source is Source.MEASURED
    assert found.answers == given.answers
    assert found.machine.versions == given.machine.versions
    for name in ("format", "schema", "suite", "profile", "device", "created"):
        assert getattr(found, name) == getattr(given, name)
    assert [d.label for d in found.machine.devices] == ["cpu"]


def test_versions_with_four_numbers_are_no_addresses() -> None:
    tree = {"versions": {"nvidia-cudnn-cu13": "9.24.0.43", "torch": "2.14.1+cpu"}}
    assert redact.tree(tree) == tree
    assert redact.tree({"note": "10.0.0.5"}) == {"note": "<ipv4>"}


@pytest.mark.parametrize(
    ("name", "hidden"),
    [
        ("HF_TOKEN", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("MYSQL_PWD", True),
        ("WANDB_API_KEY", True),
        ("PWD", False),
        ("KEYBOARD", False),
    ],
)
def test_secrets_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, name: str, hidden: bool
) -> None:
    monkeypatch.setenv(name, "plain-words-here")
    found = redact.text("it said plain-words-here.")
    assert ("<secret>" in found) is hidden


def test_names_shorter_than_three_letters_stay(person: Callable[..., None]) -> None:
    person("pc", "x", "/")
    assert redact.text("pc x / of 3") == "pc x / of 3"


def test_a_user_without_entry_and_home(
    person: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody() -> str:
        raise KeyError("uid not found")

    def homeless() -> Path:
        raise RuntimeError("could not determine home directory")

    person()
    monkeypatch.setattr("getpass.getuser", nobody)
    monkeypatch.setattr(Path, "home", homeless)
    redact._names_of_machine.cache_clear()
    assert redact.text("on zeb-tower") == "on <host>"


def test_numbers_and_keys_are_left_alone() -> None:
    tree = {"a": 1, "b": [1.5, None, True], "c": {"d": "10.0.0.5"}}
    assert redact.tree(tree) == {"a": 1, "b": [1.5, None, True], "c": {"d": "<ipv4>"}}
