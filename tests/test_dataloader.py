"""Loaders: the stated batches, faults with remedies, nothing left behind."""

from __future__ import annotations

import errno
import importlib.util
import itertools
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import loader_scenes
import numpy as np
import psutil
import pytest
import torch
from PIL import Image

from gpu_lab import bench, facts, timing
from gpu_lab.bench.dataloader import images, link, loading, tune, tuning
from gpu_lab.bench.dataloader.loading import LoaderFault
from gpu_lab.fit import LoaderModel
from gpu_lab.records import Device, GpuLabError, Source

VARIANTS = facts.settings("dataloader")["variants"]
COUNT, MARK = 24, "GPU_LAB_TEST_MARK"
LEVELS = 255 * torch.tensor(images.STD).view(3, 1, 1)
ONCE = timing.Plan(rounds=2, sample_s=1e-3)
linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux only")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> images.ImageSet:
    return images.write(tmp_path_factory.mktemp("set"), count=COUNT, seed=1)


def batches(pictures: images.ImageSet, kind: str, **knobs: Any) -> list[Any]:
    with loading.Pool() as pool:
        loader = pool.loader(images.Pictures(pictures, kind), batch=8, **knobs)
        return [images.ready(batch) for batch in loader]


def equal(some: list[Any], others: list[Any]) -> bool:
    pairs = zip(some, others, strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


# The image set


def test_the_set_is_real_seeded_and_written_once(
    pictures: images.ImageSet, tmp_path: Path
) -> None:
    again = images.write(tmp_path, count=2, seed=1)
    for index in range(2):
        assert again.file(index).read_bytes() == pictures.file(index).read_bytes()
    with Image.open(pictures.file(0)) as large:
        assert (large.format, large.size) == ("JPEG", (images.SIDE, images.SIDE))
    stamp = again.file(0).stat().st_mtime_ns
    assert images.write(tmp_path, count=2, seed=1) == again
    assert again.file(0).stat().st_mtime_ns == stamp
    other = images.write(tmp_path, count=2, seed=2)
    assert other.file(0).read_bytes() != again.file(0).read_bytes()


def test_its_size_is_said_before(pictures: images.ImageSet) -> None:
    files = [f for f in pictures.folder.rglob("*") if f.is_file()]
    size = sum(f.stat().st_size for f in files)
    assert 0.5 * COUNT * images.PICTURE_BYTES < size < COUNT * images.PICTURE_BYTES


def test_a_full_disk_is_one_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, written = Image.Image.save, []

    def save(picture: Any, path: Path, **given: Any) -> None:
        if len(written) == 5:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written.append(path)
        honest(picture, path, **given)

    monkeypatch.setattr(Image.Image, "save", save)
    with pytest.raises(GpuLabError, match=r"No space left.*GPU_LAB_OUT") as raised:
        images.write(tmp_path / "run", count=8)
    assert len(written) == 5
    assert "\n" not in str(raised.value)
    assert list((tmp_path / "run").iterdir()) == []


def test_too_little_room_is_said_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr(images.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(GpuLabError, match=r"wanted 1.6 MiB, found 1000 B free"):
        images.write(tmp_path, count=8)
    assert list(tmp_path.iterdir()) == []


# The variants


@pytest.mark.parametrize("name", VARIANTS)
def test_each_variant_gives_the_stated_batches(
    pictures: images.ImageSet, name: str
) -> None:
    way = VARIANTS[name]
    if not importlib.util.find_spec(way.get("needs", "torch")):
        pytest.skip(way["missing"])
    knobs = {"workers": way["workers"]}
    found = batches(pictures, way["kind"], **knobs)
    for batch, other in zip(found, batches(pictures, way["as"]), strict=True):
        assert batch.shape == (8, 3, images.CROP, images.CROP)
        levels = (batch - other).abs() * LEVELS
        assert levels.max() <= way["most"]
        assert levels.mean() <= way["mean"]
    assert float(found[0].std()) > 0.5  # pictures, not zeros


def test_a_batch_in_one_access_and_in_memory_are_the_same_bits(
    pictures: images.ImageSet,
) -> None:
    several = images.BatchedPictures(pictures, "memmap")
    at_once = [images.ready(b) for b in loading.Loader(several, batch=8)]
    assert equal(at_once, batches(pictures, "uint8"))
    assert equal(batches(pictures, "memory"), at_once)


@pytest.mark.parametrize("start", ["fork", "spawn", "forkserver"])
def test_workers_of_each_kind_give_the_same_bits(
    pictures: images.ImageSet, start: str
) -> None:
    there = batches(pictures, "memmap", workers=2, start=start)
    assert equal(there, batches(pictures, "memmap"))


@pytest.mark.parametrize(
    "sharing", sorted(torch.multiprocessing.get_all_sharing_strategies())
)
def test_sharing_prefetch_and_fresh_workers_change_no_bit(
    pictures: images.ImageSet, sharing: str
) -> None:
    knobs = {"sharing": sharing, "prefetch": 1, "persistent": False, "workers": 1}
    assert equal(batches(pictures, "small", **knobs), batches(pictures, "small"))


def test_samples_are_cut_and_mirrored_in_many_ways() -> None:
    places = [images._place(index) for index in range(500)]
    assert {mirrored for *_, mirrored in places} == {False, True}
    for axis in (0, 1):
        assert {place[axis] for place in places} == set(range(17))


# Epochs and settings


def test_an_epoch_is_an_arm_with_its_settings(
    pictures: images.ImageSet, cpu: Device
) -> None:
    seen: list[Any] = []
    threads = torch.get_num_threads()
    with loading.Pool() as pool:
        assert torch.get_num_threads() == 1
        data = images.Pictures(pictures, "memmap", 16)
        arm = pool.arm(data, step=seen.append, batch=8, workers=1, prefetch=4)
        row = bench.measured(arm, device=cpu, plan=ONCE)
    assert torch.get_num_threads() == threads
    assert {len(batch) for batch in seen} == {8}
    assert (row.work, row.work_unit, row.source) == (16.0, "sample", Source.MEASURED)
    known = {"kind": "memmap", "batch": 8, "workers": 1, "prefetch": 4, "pin": False}
    assert known.items() <= row.settings.items()
    assert row.decided_by == "wall"


def test_where_workers_help_the_wall_clock_decides(
    cpu: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpu_lab.timing.flags.decides", lambda *_: "cpu")
    arm = timing.Arm(name="a", calls=(list,), helpers=True)
    assert bench.measured(arm, device=cpu, plan=ONCE).decided_by == "wall"


def test_what_a_machine_cannot_do_has_a_reason(cpu: Device) -> None:
    data = timing.Sleeper(4, 0.0)
    with loading.Pool() as pool:
        assert "needs a GPU" in pool.arm(data, pin=True, device=cpu).reason
        assert "no thread on" in pool.arm(data, start="thread").reason


def test_more_workers_than_cores_are_silent() -> None:
    with warnings.catch_warnings(), loading.Pool() as pool:
        warnings.simplefilter("error")
        count = (os.cpu_count() or 1) + 1
        loader = pool.loader(timing.Sleeper(8, 0.0), batch=1, workers=count)
        assert len(list(loader)) == 8


def test_workers_outlive_an_epoch_only_when_asked() -> None:
    me = psutil.Process()
    data, before = timing.Sleeper(8, 0.0), set(me.children())
    for persistent in (True, False):
        with loading.Pool() as pool:
            loader = pool.loader(data, workers=1, persistent=persistent, start="fork")
            for _ in range(2):
                assert len(list(loader)) == 1
            assert (set(me.children()) > before) == persistent
        assert set(me.children()) <= before


def test_a_loop_that_is_left_ends_its_workers() -> None:
    before = set(psutil.Process().children())
    loader = loading.Loader(timing.Sleeper(64, 0.0), batch=1, workers=1, start="fork")
    for _ in loader:
        break
    assert set(psutil.Process().children()) <= before
    assert len(list(loader)) == 64  # and it can be used again
    loader.close()


def test_a_sleeper_says_who_loaded_when() -> None:
    with loading.Pool() as pool:
        for workers in (0, 2):
            loader = pool.loader(timing.Sleeper(8, 0.002), batch=2, workers=workers)
            told = [timing.loaded(batch) for batch in loader]
            assert [who for who, *_ in told] == [0, 1, 0, 1] if workers else [0] * 4
            assert all(stop - start >= 0.004 for _, start, stop in told)


# Faults: one line that names the remedy


@pytest.mark.parametrize("workers", [0, 1])
def test_a_broken_picture_is_named(
    pictures: images.ImageSet, tmp_path: Path, workers: int
) -> None:
    broken = images.write(tmp_path, count=4)
    for damage in (b"no JPEG", broken.file(2).read_bytes()[:9000]):
        broken.file(2).write_bytes(damage)
        with loading.Pool() as pool, pytest.raises(LoaderFault) as raised:
            list(pool.loader(images.Pictures(broken), workers=workers))
        text = str(raised.value)
        assert "images-4-0/large/00002.jpg is not a whole JPEG; remove" in text
        assert "\n" not in text


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("OSError: [Errno 24] Too many open files", "ulimit -n"),
        ("received 0 items of ancdata", 'sharing="file_system"'),
        (
            "DataLoader worker (pid 7) is killed by signal: Bus error. It is possible "
            "that dataloader's workers are out of shared memory",
            "--shm-size",
        ),
        ("unable to write to file </torch_1>: No space left on device (28)", "--shm-"),
        ("DataLoader worker (pid(s) 7) exited unexpectedly", "want of memory"),
        ("DataLoader worker (pid 7) is killed by signal: Killed.", "want of memory"),
        ("Can't get attribute 'Mine' on <module '__main__'>", "not in a notebook"),
        ("DataLoader timed out after 60 seconds", "workers=0"),
    ],
)
def test_known_faults_have_a_remedy(text: str, remedy: str) -> None:
    found = loading.named(RuntimeError(f"Caught it in worker 0.\nTraceback\n{text}"))
    assert isinstance(found, LoaderFault)
    assert remedy in str(found)
    assert "\n" not in str(found)


def test_other_errors_stay_what_they_are() -> None:
    error = ValueError("mine")
    assert loading.named(error) is error


# Nothing is left behind


def scene(name: str, folder: Path, start: str, *, prefix: tuple[str, ...] = ()) -> Any:
    """A scene in a process of its own, with a folder for what is temporary."""
    (folder / "tmp").mkdir()
    names = {MARK: str(folder), "TMPDIR": str(folder / "tmp"), "START": start}
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    return subprocess.Popen(
        [*prefix, sys.executable, "-m", "loader_scenes", name, str(folder / "set")],
        env=os.environ | names | {"PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: Any) -> tuple[int, str]:
    """Exit code and last line; nothing may be said on stderr."""
    out, err = process.communicate(timeout=120)
    assert err == ""
    return process.returncode, out.strip().splitlines()[-1]


def shared_memory() -> set[str]:
    """Segments whose maker is gone."""
    names = [path.name for path in Path("/dev/shm").glob("torch_*")]
    return {n for n in names if not psutil.pid_exists(int(n.split("_")[1]))}


def marked(folder: Path) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == str(folder):
                yield process
        except psutil.Error:
            continue


def require_nothing_left(folder: Path, before: set[str]) -> None:
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline and list(marked(folder)):
        time.sleep(0.1)
    assert list(marked(folder)) == []
    assert shared_memory() <= before
    assert list((folder / "tmp").iterdir()) == []


@linux
@pytest.mark.parametrize("start", ["fork", "spawn"])
@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("success", 0, "64 batches"),
        ("failure", 2, "sample 40 is broken"),
        ("killed", 2, "often the system ended it for want of memory"),
    ],
)
def test_nothing_is_left_after(
    tmp_path: Path, start: str, name: str, code: int, words: str
) -> None:
    before = shared_memory()
    found, last = ended(scene(name, tmp_path, start))
    assert found == code
    assert words in last
    require_nothing_left(tmp_path, before)


@linux
@pytest.mark.parametrize("name", ["ctrl_c", "writing"])
def test_nothing_is_left_after_interrupt(tmp_path: Path, name: str) -> None:
    before = shared_memory()
    process = scene(name, tmp_path, "fork")
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "")
    require_nothing_left(tmp_path, before)
    assert not (tmp_path / "set").exists() or not list((tmp_path / "set").iterdir())


@linux
def test_a_limit_of_64_open_files_is_named(tmp_path: Path) -> None:
    before = shared_memory()
    code, last = ended(scene("files", tmp_path, "fork"))
    assert code == 2
    assert "too many open files" in last
    assert "ulimit -n" in last
    require_nothing_left(tmp_path, before)


@linux
def test_a_small_shared_memory_is_named(tmp_path: Path) -> None:
    mount = "mount -t tmpfs -o size=16m tmpfs /dev/shm"
    shell = ("unshare", "-rm", "sh", "-c", f'{mount} && exec "$@"', "sh")
    if subprocess.run([*shell, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs a mount namespace")
    code, last = ended(scene("shm", tmp_path, "fork", prefix=shell))
    assert code == 2
    assert "--shm-size" in last


# The model and the tuner


def test_the_model_is_the_slowest_part() -> None:
    model = LoaderModel(0.04, 0.015)
    assert model.batch_s(0) == pytest.approx(0.055)
    assert [model.batch_s(w) for w in (1, 2, 4)] == [0.04, 0.02, 0.015]
    assert model.knee == 3
    assert LoaderModel(0.0001, 0.015).knee == 0
    busy = LoaderModel(0.04, 0.01, busy_s=0.05, load_busy=1.0, cores=2)
    assert busy.batch_s(8) == 0.025
    assert busy.knee == 2
    assert LoaderModel(0.09, 0.01, busy_s=0.05, load_busy=0.6, cores=2).knee == 2


def test_the_limit_is_named() -> None:
    assert LoaderModel(0.04, 0.02).limit(2) == "step"
    assert LoaderModel(0.04, 0.01).limit(2) == "workers"
    assert LoaderModel(0.04, 0.01).limit(0) == "disk"
    assert LoaderModel(0.04, 0.01).limit(4, link_s=0.03) == "link"
    busy = LoaderModel(0.04, 0.01, busy_s=0.05, load_busy=1.0, cores=2)
    assert busy.limit(2) == busy.limit(0) == "cores"


@pytest.mark.parametrize("load_s", [0.004, 0.013, 0.03, 0.061])
@pytest.mark.parametrize("step_s", [0.007, 0.01, 0.02])
def test_the_model_agrees_with_the_epoch_event_by_event(
    load_s: float, step_s: float
) -> None:
    model, count, paces = LoaderModel(load_s, step_s), 600, []
    for workers in range(9):
        epoch = timing.simulated_stages("", [load_s] * count, step_s, workers=workers)
        paces.append(epoch.device_s[-1][1] / count)
        assert paces[-1] == pytest.approx(model.batch_s(workers), rel=0.02)
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(epoch.device_s))
        assert sum(map(len, epoch.loader_s)) == count
        assert epoch.source is Source.SIMULATED
    fastest = min(paces)
    knee = next(w for w, pace in enumerate(paces) if pace <= 1.05 * fastest)
    assert abs(knee - model.knee) <= 1


def test_prefetch_bridges_a_long_batch() -> None:
    loads_s = [0.12 if i % 9 == 8 else 0.01 for i in range(90)]
    waits = [
        timing.simulated_stages("", loads_s, 0.02, workers=2, prefetch=p).waiting
        for p in (1, 2, 4)
    ]
    assert waits[0] > waits[1] > waits[2]


def test_two_measurements_give_the_model() -> None:
    data = timing.Sleeper(64, 0.002)
    model = tuning.fit_model(data, lambda _: time.sleep(0.005), batch=8)
    assert model.load_s >= 0.016
    assert model.step_s >= 0.005
    assert model.load_busy < 0.5
    assert model.busy_s < model.load_s


def test_the_tuner_tries_the_knee_and_takes_what_it_tried() -> None:
    data = timing.Sleeper(96, 0.002)
    tuned = tune(data, lambda _: time.sleep(0.004), batch=8, budget_s=1.0)
    tried = [row.settings["workers"] for row in tuned.tried]
    assert {0, 1, tuned.model.knee} <= set(tried)
    assert tuned.setting.workers in tried
    assert tuned.gain > 0
    assert tuned.samples_per_s > 0
    assert tuned.limit in ("step", "link", "cores", "disk", "workers")
    assert not tuned.setting.pin


def test_stages_on_a_clock_of_the_test() -> None:
    class Ticking:
        source, wall_per_s, now = Source.MEASURED, 1.0, 0.0

        def wall(self) -> float:
            return self.now

        cpu = wall

        def synchronize(self) -> None:
            self.now += 1.0

        def anchor(self) -> None: ...

    clock = Ticking()

    def slow() -> Iterator[int]:
        for number in range(3):
            clock.now += 3.0
            yield number

    told = timing.stages(
        "x", slow(), id, clock=clock, loaded=lambda n: (n % 2, 0.0, 1.0)
    )
    assert told.device_s == ((3.0, 4.0), (7.0, 8.0), (11.0, 12.0))
    assert told.waiting == pytest.approx(0.75)
    assert [len(lane) for lane in told.loader_s] == [2, 1]


# The link


class Noted:
    """A link that notes the order of its calls."""

    def __init__(self) -> None:
        self.log: list[tuple[str, int]] = []

    def start(self, batch: int) -> int:
        self.log.append(("start", batch))
        return batch

    def finish(self, started: int) -> int:
        self.log.append(("finish", started))
        return started


@pytest.mark.parametrize(("ahead", "second"), [(0, "finish"), (1, "start")])
def test_the_next_copy_starts_before_this_one_is_used(ahead: int, second: str) -> None:
    noted = Noted()
    assert list(link.arriving(range(4), noted, ahead=ahead)) == [0, 1, 2, 3]
    assert noted.log[1][0] == second
    assert len(noted.log) == 8


def test_a_throttled_link_copies_and_ends() -> None:
    throttled, data = link.ThrottledLink(1e9), [torch.rand(1000) for _ in range(3)]
    with throttled.copier:
        found = list(link.arriving(data, throttled))
    assert all(torch.equal(a, b) for a, b in zip(found, data, strict=True))
    assert all(a.data_ptr() != b.data_ptr() for a, b in zip(found, data, strict=True))


def test_copies_over_a_throttled_link_are_simulated() -> None:
    throttled, data = link.ThrottledLink(1e9), [torch.rand(1000) for _ in range(3)]
    clock = timing.StandInClock(1.0)
    with throttled.copier:
        arms = link.copy_arms(data, id, link=throttled)
        found = bench.together(arms, device=timing.SIMULATED, plan=ONCE, clock=clock)
    assert [row.name for row in found] == ["copy_one_by_one", "copy_one_ahead"]
    assert {row.source for row in found} == {Source.SIMULATED}
    assert {row.work for row in found} == {12000.0}


def test_without_a_stream_there_is_a_reason() -> None:
    arms = link.copy_arms([torch.rand(4)], id, link=None)
    assert {arm.reason for arm in arms} == {link.ONLY_STREAMS}


@pytest.mark.parametrize("seed", range(3))
def test_buckets_hold_every_text_once_within_the_budget(seed: int) -> None:
    random = np.random.default_rng(seed)
    lengths = [int(n) for n in random.lognormal(3.5, 0.8, 300) + 1]
    found = link.bucket_batches(lengths, tokens=512, seed=seed)
    assert sorted(i for batch in found for i in batch) == list(range(300))
    for batch in found:
        longest = max(lengths[i] for i in batch)
        assert longest * len(batch) <= 512 or len(batch) == 1
    again = link.bucket_batches(lengths, tokens=512, seed=seed)
    assert again == found
    assert found != sorted(found)  # not from short to long
    padded = sum(max(lengths[i] for i in b) * len(b) for b in found)
    assert sum(lengths) / padded > 0.8


def test_the_fault_datasets_are_what_they_say() -> None:
    assert loader_scenes.Large()[3].nbytes == 2**20
