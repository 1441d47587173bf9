"""The set-up files agree with each other, and the installer says what it should."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements"
KINDS = ("", "-cpu", "-cu126", "-cu130", "-rocm", "-xpu")
VARIANTS = [f"torch{kind}.txt" for kind in KINDS]
# CI's own lanes: other versions on purpose.
LANES = ["torch-floor.txt", "torch-newest.txt", "torch-rc.txt"]
DOORS = ["run", "test", "lab", "check", "notebooks", "reference", "bench"]
DOORS += ["gpu-wheels", "gpu-check", "clean"]


def call(
    *command: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )


needs_make = pytest.mark.skipif(not shutil.which("make"), reason="no make here")
needs_posix = pytest.mark.skipif(os.name == "nt", reason="Windows has no such bits")


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def direct_dependencies() -> list[Requirement]:
    extras = project()["optional-dependencies"].values()
    lines = project()["dependencies"] + [line for extra in extras for line in extra]
    named = [Requirement(line) for line in lines]
    return [r for r in named if canonicalize_name(r.name) != project()["name"]]


def requirements_of(name: str) -> list[Requirement]:
    lines = (REQUIREMENTS / name).read_text("utf-8").splitlines()
    return [Requirement(line) for line in lines if line and line[0] not in "#-"]


def pins(name: str) -> dict[str, Version]:
    """Exact versions in a requirements file, without labels such as +cpu."""
    found = {}
    for requirement in requirements_of(name):
        (specifier,) = requirement.specifier
        assert specifier.operator == "==", f"{name}: {requirement} is not exact"
        version = Version(Version(specifier.version).public)
        assert found.setdefault(canonicalize_name(requirement.name), version) == version
    return found


def conda() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "environment.yml").read_text("utf-8"))


def conda_pip_lines() -> list[str]:
    (section,) = [d["pip"] for d in conda()["dependencies"] if isinstance(d, dict)]
    return section


@pytest.fixture(scope="module")
def installer() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "install", REQUIREMENTS / "install.py"
    )
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --- versions in step


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_has_the_same_pair(name: str) -> None:
    assert pins(name) == pins("torch.txt")
    assert set(pins(name)) == {"torch", "torchvision"}


@pytest.mark.parametrize("name", VARIANTS[1:])
def test_a_variant_cannot_silently_become_the_default_build(name: str) -> None:
    label = name.removeprefix("torch-").removesuffix(".txt")
    text = (REQUIREMENTS / name).read_text("utf-8")
    index = re.search(rf"whl/({label}[\d.]*)\n", text)
    assert index, "the index of that build"
    assert f"torch=={pins(name)['torch']}+{index[1]}" in text
    assert f"--extra-index-url https://download.pytorch.org/whl/{index[1]}\n" in text


def test_every_torch_file_is_known() -> None:
    assert sorted(p.name for p in REQUIREMENTS.glob("torch*.txt")) == sorted(
        VARIANTS + LANES
    )


def test_floor_lane_is_the_floor_of_pyproject() -> None:
    floor = {r.name: r.specifier for r in direct_dependencies()}
    for name, version in pins("torch-floor.txt").items():
        lowest = min(Version(s.version) for s in floor[name] if s.operator == ">=")
        assert (version.major, version.minor) == (lowest.major, lowest.minor)


def test_constraints_hold_the_torch_pair() -> None:
    assert pins("torch.txt").items() <= pins("constraints.txt").items()


@pytest.mark.parametrize("requirement", direct_dependencies(), ids=str)
def test_constraints_pin_every_direct_dependency(requirement: Requirement) -> None:
    pinned = pins("constraints.txt")[canonicalize_name(requirement.name)]
    assert pinned in requirement.specifier


def test_constraints_leave_cuda_to_torch() -> None:
    names = [n for n in pins("constraints.txt") if n.startswith(("nvidia", "cuda"))]
    assert names == ["nvidia-ml-py"]
    assert "triton" not in pins("constraints.txt")


def test_constraints_are_sorted() -> None:
    assert list(pins("constraints.txt")) == sorted(pins("constraints.txt"))


def test_the_deprecated_pynvml_is_never_named() -> None:
    names = {canonicalize_name(r.name) for r in direct_dependencies()}
    assert "pynvml" not in names | set(pins("constraints.txt"))


# --- conda


def test_conda_python_lies_in_the_supported_range() -> None:
    (line,) = [d for d in conda()["dependencies"] if str(d).startswith("python")]
    conda_range = SpecifierSet(line.removeprefix("python"))
    supported = SpecifierSet(project()["requires-python"])
    offered = [f"3.{minor}" for minor in range(30) if f"3.{minor}" in conda_range]
    assert offered == ["3.11", "3.12", "3.13"]
    assert all(version in supported for version in offered)


def test_conda_takes_the_torch_pair_and_this_package_from_here() -> None:
    named = [d for d in conda()["dependencies"] if isinstance(d, str)]
    assert [n for n in named if not n.startswith("python>")] == ["pip"]
    assert conda_pip_lines() == [
        "-r requirements/torch.txt",
        "-c requirements/constraints.txt",
        "-e .[notebooks]",
    ]
    assert conda()["name"] == project()["name"]
    assert "notebooks" in project()["optional-dependencies"]


@pytest.mark.parametrize("name", VARIANTS)
def test_conda_comment_names_every_variant(name: str) -> None:
    assert name in (ROOT / "environment.yml").read_text("utf-8")


# --- addresses and paths that must not be in the repository

# Brackets, so that this file does not match itself.
FORBIDDEN = re.compile(
    r"pypi[.]org|pythonhoste[d]|deb[.]debian[.]org|npmj[s]|(?<![\w.])/wor[k]/"
)
TEMPORARY = re.compile(
    r"(?<![\w.])/tm[p]/"
)  # stored texts of other machines may say so
TORCH_INDEX = re.compile(r"download[.]pytorch[.]org")


def repository_texts() -> list[tuple[str, str]]:
    listed = call("git", "ls-files", "-co", "--exclude-standard")
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    texts = []
    for name in sorted(set(listed.stdout.splitlines())):
        path = ROOT / name
        if path.is_file() and b"\0" not in (content := path.read_bytes()):
            texts.append((name, content.decode("utf-8")))
    return texts


def matches(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{name}: {found.group()}"
        for name, text in repository_texts()
        for found in pattern.finditer(text)
    ]


def test_no_registry_address_or_machine_path() -> None:
    assert matches(FORBIDDEN) == []


def test_no_temporary_path_outside_tests() -> None:
    assert [m for m in matches(TEMPORARY) if not m.startswith("tests/")] == []


def test_torch_index_only_where_it_belongs() -> None:
    homes = ("requirements/torch-", "README.md:", "tests/test_setup.py:")
    assert [m for m in matches(TORCH_INDEX) if not m.startswith(homes)] == []


# --- the installer: what it says


def test_an_old_python_can_read_the_installer() -> None:
    source = (REQUIREMENTS / "install.py").read_text("utf-8")
    ast.parse(source, feature_version=(3, 6))


@pytest.mark.parametrize("version", [(3, 6, 9), (3, 10, 14), (2, 7, 18)])
def test_old_python_is_named_in_one_line(
    installer: ModuleType, version: tuple[int, ...]
) -> None:
    line = installer.python_problem(version)
    assert ".".join(map(str, version)) in line
    assert "3.11" in line
    assert "try:" in line
    assert "\n" not in line


def test_new_python_is_fine(installer: ModuleType) -> None:
    assert installer.python_problem((3, 11, 0)) is None
    assert installer.python_problem((3, 14, 1)) is None


def test_missing_venv_module_names_the_debian_package(installer: ModuleType) -> None:
    line = installer.venv_problem(lambda name: name != "ensurepip", (3, 12, 3))
    assert "no ensurepip" in line
    assert "python3.12-venv" in line
    assert installer.venv_problem(lambda _: True, (3, 12, 3)) is None


def test_intel_mac_is_refused(installer: ModuleType) -> None:
    assert "Intel" in installer.platform_problem("Darwin", "x86_64")
    assert installer.platform_problem("Darwin", "arm64") is None
    assert installer.platform_problem("Linux", "x86_64") is None


def test_small_disk_is_refused_with_both_figures(installer: ModuleType) -> None:
    line = installer.disk_problem(2.04, 6.1, ".venv")
    assert "6.1 GB free for .venv" in line
    assert "found: 2.0 GB" in line
    assert installer.disk_problem(6.2, 6.1, ".venv") is None


def pci_device(folder: Path, vendor: str, kind: str) -> Path:
    folder.mkdir()
    (folder / "vendor").write_text(f"{vendor}\n")
    (folder / "class").write_text(f"{kind}\n")
    return folder


@pytest.mark.parametrize(
    ("vendor", "kind", "seen"),
    [
        ("0x10de", "0x030000", True),
        ("0x10de", "0x030200", True),  # 3D controller: data centre and laptop cards
        ("0x10de", "0x040300", False),  # the card's sound output
        ("0x8086", "0x030000", False),
    ],
)
def test_nvidia_card_on_the_bus(
    installer: ModuleType, tmp_path: Path, vendor: str, kind: str, seen: bool
) -> None:
    device = pci_device(tmp_path / "0000:01:00.0", vendor, kind)
    gone = tmp_path / "0000:02:00.0"
    assert installer.nvidia_card([gone, device], False) is seen


def test_driver_tool_counts_where_there_is_no_bus_to_read(
    installer: ModuleType,
) -> None:
    assert installer.nvidia_card([], True)
    assert not installer.nvidia_card([], False)


def test_linux_without_card_learns_size_and_the_small_way(
    installer: ModuleType,
) -> None:
    size, hint = installer.announcement("Linux", "default", False)
    assert "3.1 GB to download" in size
    assert "6.1 GB on disk" in size
    assert "make run TORCH=cpu" in hint


@pytest.mark.parametrize(
    ("system", "variant", "card_seen", "download"),
    [
        ("Linux", "default", True, "3.1 GB"),
        ("Linux", "cpu", False, "0.3 GB"),
        ("Linux", "cu126", True, "3.1 GB"),
        ("Darwin", "default", False, "0.3 GB"),
        ("Windows", "default", False, "0.3 GB"),
    ],
)
def test_otherwise_one_line_about_the_size(
    installer: ModuleType, system: str, variant: str, card_seen: bool, download: str
) -> None:
    (line,) = installer.announcement(system, variant, card_seen)
    assert f"about {download} to download" in line


def test_windows_with_card_learns_that_the_default_cannot_use_it(
    installer: ModuleType,
) -> None:
    assert "--variant cu130" in installer.announcement("Windows", "default", True)[1]


# --- the installer: when it works


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "torch.txt").write_text("torch==1\n")
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    return tmp_path


@pytest.mark.parametrize(
    ("held", "asked", "current"),
    [
        ("dev", "dev", True),
        ("dev", "notebooks", True),
        ("notebooks", "notebooks", True),
        ("notebooks", "dev", False),
    ],
)
def test_dev_contains_notebooks(
    installer: ModuleType, root: Path, held: str, asked: str, current: bool
) -> None:
    stamp = installer.wanted_stamp("default", held, root)
    wanted = installer.wanted_stamp("default", asked, root)
    assert installer.is_current(stamp, wanted) is current
    assert not installer.must_start_anew(stamp, wanted)


@pytest.mark.parametrize(
    ("asked", "held", "chosen"),
    [
        (None, {}, "default"),
        (None, {"variant": "cpu"}, "cpu"),
        (None, {"variant": "unknown"}, "default"),
        ("cu126", {"variant": "cpu"}, "cu126"),
        ("default", {"variant": "cpu"}, "default"),
    ],
)
def test_the_build_that_is_there_is_kept_unless_another_is_asked_for(
    installer: ModuleType, asked: str | None, held: dict[str, str], chosen: str
) -> None:
    assert installer.chosen_variant(asked, held) == chosen


@pytest.mark.parametrize("name", ["pyproject.toml", "requirements/torch.txt"])
def test_changed_input_installs_again_in_place(
    installer: ModuleType, root: Path, name: str
) -> None:
    stamp = installer.wanted_stamp("default", "dev", root)
    (root / name).write_text("# changed\n")
    wanted = installer.wanted_stamp("default", "dev", root)
    assert not installer.is_current(stamp, wanted)
    assert not installer.must_start_anew(stamp, wanted)


@pytest.mark.parametrize(
    "change",
    [{"variant": "cpu"}, {"python": "3.10"}, {"root": "moved"}, {"phase": "busy"}],
    ids=str,
)
def test_what_pip_cannot_repair_starts_anew(
    installer: ModuleType, root: Path, change: dict[str, str]
) -> None:
    wanted = installer.wanted_stamp("default", "dev", root)
    assert not installer.is_current(wanted | change, wanted)
    assert installer.must_start_anew(wanted | change, wanted)


def test_failed_download_goes_on_where_it_stopped(
    installer: ModuleType, root: Path
) -> None:
    wanted = installer.wanted_stamp("default", "dev", root)
    failed = wanted | {"phase": "failed"}
    assert not installer.is_current(failed, wanted)
    assert not installer.must_start_anew(failed, wanted)


def test_a_venv_without_stamp_is_never_emptied(
    installer: ModuleType, root: Path
) -> None:
    wanted = installer.wanted_stamp("default", "dev", root)
    assert not installer.is_current({}, wanted)
    assert not installer.must_start_anew({}, wanted)


@pytest.mark.parametrize("text", ["", "{", "[]", "null"])
def test_a_damaged_stamp_counts_as_none(
    installer: ModuleType, tmp_path: Path, text: str
) -> None:
    path = tmp_path / "stamp.json"
    path.write_text(text)
    assert installer.read_stamp(path) == {}


def test_stamp_survives_the_disk(installer: ModuleType, root: Path) -> None:
    wanted = installer.wanted_stamp("cpu", "dev", root)
    installer.write_stamp(root / "stamp.json", wanted)
    assert installer.read_stamp(root / "stamp.json") == wanted
    assert not (root / "stamp.json.part").exists()


def test_torch_comes_first_and_both_calls_are_constrained(
    installer: ModuleType,
) -> None:
    calls = [c for _, c in installer.pip_commands("cu126", "dev", Path("v"))]
    assert "requirements/torch-cu126.txt" in calls[0]
    assert ".[dev]" in calls[1]
    assert all("requirements/constraints.txt" in call for call in calls)


def test_every_variant_of_the_installer_has_its_file(installer: ModuleType) -> None:
    assert list(installer.TORCH_FILES.values()) == VARIANTS
    assert set(installer.EXTRAS) == set(project()["optional-dependencies"])


# --- front doors


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    # Without the variables of a `make test` that may be running these tests.
    outer = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "GPU_LAB_REQUIRE_BROWSER")
    env = {k: v for k, v in os.environ.items() if k not in outer}
    return call("make", *arguments, env=env)


@needs_make
def test_help_lists_the_front_doors() -> None:
    listed = re.findall(r"^  make ([a-z-]+) ", make("help").stdout, re.MULTILINE)
    assert listed == ["help", *DOORS]
    assert make().stdout == make("help").stdout


@needs_make
@pytest.mark.parametrize("door", DOORS)
def test_front_door_opens(door: str) -> None:
    plan = make("-n", door)
    assert plan.returncode == 0, plan.stderr
    assert plan.stderr == ""


@needs_make
def test_run_passes_its_variables_on() -> None:
    plan = make("-n", "run", "PROFILE=class", "DEVICE=cuda", "TORCH=cu126", "OUT=there")
    assert "--variant cu126 --extras notebooks" in plan.stdout
    assert 'gpu-lab run --profile class --device cuda --out "there"' in plan.stdout
    assert "--out" not in make("-n", "run").stdout


@needs_make
def test_one_notebook_skips_the_unit_tests() -> None:
    plan = make("-n", "test", "NB=05").stdout
    assert "gpu-lab run 05 " in plan
    assert "authoring prepare 05 " in plan
    assert "tests/test_exercises.py" in plan
    assert "pytest tests --ignore" not in plan


@needs_make
def test_missing_python_is_one_line() -> None:
    answer = make("run", "PYTHON=no-such-python")
    assert answer.returncode != 0
    first, *rest = answer.stderr.splitlines()
    assert "found: no no-such-python" in first
    assert all(line.startswith("make") for line in rest)


@needs_make
def test_missing_browser_is_a_failure_where_it_is_a_duty() -> None:
    plan = make("-n", "test-browser", "CHROMIUM=").stdout
    script = plan[plan.rindex("if [ -n ") :]
    for duty, code in (("", 0), ("1", 1)):
        env = os.environ | {"GPU_LAB_REQUIRE_BROWSER": duty}
        answer = call("sh", "-c", script, env=env)
        assert answer.stdout == "browser layer NOT RUN: no chromium\n"
        assert answer.returncode == code


@needs_posix
def test_ci_calls_the_same_front_door() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert "\nGPU_LAB_REQUIRE_BROWSER=1 make test\n" in script.read_text("utf-8")


def test_workflows_follow_the_schema() -> None:
    files = sorted(map(str, (ROOT / ".github" / "workflows").glob("*.yml")))
    assert [Path(f).stem for f in files] == ["cpu", "gpu", "weekly"]
    schema = ["--builtin-schema", "vendor.github-workflows"]
    checked = call(sys.executable, "-m", "check_jsonschema", *schema, *files)
    assert checked.returncode == 0, checked.stdout + checked.stderr


# --- JupyterLab


def test_jupyterlab_finds_our_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read through Jupyter's own door, with the path that `make lab` sets."""
    from jupyter_server.services.config.manager import ConfigManager

    monkeypatch.setenv("JUPYTER_CONFIG_PATH", str(ROOT))
    found = ConfigManager(config_dir_name="labconfig").get("default_setting_overrides")
    news = found["@jupyterlab/apputils-extension:notification"]
    assert news["fetchNews"] == "false"


def test_jupyterlab_knows_every_setting() -> None:
    path = ROOT / "labconfig" / "default_setting_overrides.json"
    schemas = Path(sys.prefix, "share", "jupyter", "lab", "schemas")
    for plugin, settings in json.loads(path.read_text("utf-8")).items():
        schema = schemas / f"{plugin.replace(':', '/')}.json"
        known = json.loads(schema.read_text("utf-8"))["properties"]
        assert set(settings) <= set(known)
