"""A seeded set of real JPEG files, and the ways in which a loader can read it.

Loaded when asked for: nothing else needs numpy and Pillow so early.
"""

from __future__ import annotations

import errno
import functools
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from gpu_lab import units
from gpu_lab.records import GpuLabError

SIDE, SMALL, CROP = 512, 128, 112  # pixels of a file, of its small copy, of a sample
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet
NOISE, QUALITY, SMALL_QUALITY, BILINEAR = 12, 85, 95, 2
PICTURE_BYTES = 210_000  # of one picture in all its forms, at most
ARRAYS = ("memmap", "memory", "torch_mmap")  # kinds without JPEG


@dataclass(frozen=True)
class ImageSet:
    """A folder with the same pictures as large and small JPEG files and as arrays."""

    folder: Path
    count: int

    def file(self, index: int, size: str = "large") -> Path:
        """The JPEG file of one picture, "large" or "small"."""
        return self.folder / size / f"{index:05d}.jpg"


def write(
    folder: Path, *, count: int = 2048, seed: int = 0, progress: Any = iter
) -> ImageSet:
    """The image set in `folder`, written on the first call; whole or not there.

    Args:
        progress: wraps the numbers while files are written, such as a progress bar.

    Raises:
        GpuLabError: no room on the disk; nothing is left behind.
    """
    found = ImageSet(folder / f"images-{count}-{seed}", count)
    if found.folder.is_dir():
        return found
    needed = count * PICTURE_BYTES
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(dir=folder) as partial:
            if shutil.disk_usage(folder).free < needed:
                raise OSError(errno.ENOSPC, "too little room")
            _write(ImageSet(Path(partial) / "new", count), seed, progress)
            (Path(partial) / "new").rename(found.folder)
    except (OSError, RuntimeError) as error:  # torch.save says RuntimeError
        raise GpuLabError(
            f"no image set was written ({error}): wanted {units.memory(needed)}, found "
            f"{units.memory(shutil.disk_usage(folder).free)} free; make room, or name "
            "another place with GPU_LAB_OUT"
        ) from error
    return found


def _write(into: ImageSet, seed: int, progress: Any) -> None:
    import torch

    pixels = np.empty((into.count, SMALL, SMALL, 3), dtype=np.uint8)
    for size in ("large", "small"):
        (into.folder / size).mkdir(parents=True)
    for index in progress(range(into.count)):
        _picture(seed, index).save(into.file(index), quality=QUALITY)
        small = _decoded(into.file(index)).resize((SMALL, SMALL), BILINEAR)
        small.save(into.file(index, "small"), quality=SMALL_QUALITY)
        pixels[index] = np.asarray(small)
    np.save(into.folder / "pixels.npy", pixels)
    torch.save(torch.from_numpy(pixels), into.folder / "pixels.pt")


def _picture(seed: int, index: int) -> Any:
    """Smooth colours and noise: as much work for a decoder as a photograph."""
    random = np.random.default_rng((seed, index))
    coarse = Image.fromarray(random.integers(0, 256, (8, 8, 3), dtype=np.uint8))
    noise = random.integers(-NOISE, NOISE + 1, (SIDE, SIDE, 1), dtype=np.int16)
    smooth = np.asarray(coarse.resize((SIDE, SIDE), Image.Resampling.BICUBIC))
    return Image.fromarray((smooth + noise).clip(0, 255).astype(np.uint8))


@dataclass(frozen=True)
class Pictures:
    """Dataset of samples of CROP x CROP pixels, read in one of several ways.

    Each sample is cut and mirrored by its number alone: all ways can be compared.
    "naive" gives float32 tensors that are normalised, the others uint8 pixels.
    """

    images: ImageSet
    kind: str = "uint8"
    count: int = 0  # how many of them; 0 = all

    def __len__(self) -> int:
        return self.count or self.images.count

    def __getitem__(self, index: int) -> Any:
        if self.kind in ARRAYS:
            return _cut(_pixels(self.images.folder, self.kind)[index], index)
        path = self.images.file(index, "small" if self.kind == "small" else "large")
        if self.kind == "naive":
            return _naive(path, index)
        most = SMALL if self.kind == "draft" else SIDE
        codec = self.kind == "torchcodec"
        picture = _torchcodec(path) if codec else _decoded(path, most=most)
        return _cut(np.asarray(picture.resize((SMALL, SMALL), BILINEAR)), index)


class BatchedPictures(Pictures):
    """The same for kinds of one array, a whole batch in one access."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        """The samples of one batch."""
        pixels = _pixels(self.images.folder, self.kind)[indices]
        return [_cut(p, i) for p, i in zip(pixels, indices, strict=True)]


def _naive(path: Path, index: int) -> Any:
    """Everything on all pixels, in float32, one sample at a time."""
    import torch
    from torchvision.transforms.v2 import functional as f

    picture = f.to_dtype(f.pil_to_tensor(_decoded(path)), torch.float32, scale=True)
    picture = f.normalize(picture, list(MEAN), list(STD))
    picture = f.resize(picture, [SMALL, SMALL], antialias=True)
    return _cut(picture.permute(1, 2, 0).numpy(), index)


def _decoded(path: Path, *, most: int = SIDE) -> Any:
    """The picture of a file, from a decoder that may give no more pixels than that."""
    try:
        with Image.open(path) as picture:
            picture.draft("RGB", (most, most))
            picture.load()
            return picture
    except OSError as error:
        if error.errno:  # the system's, not the picture's
            raise
        where = path.parts[-3]
        raise GpuLabError(
            f"{where}/{path.parent.name}/{path.name} is not a whole JPEG; remove the "
            f"folder {where} and run again: it is written anew"
        ) from error


def _torchcodec(path: Path) -> Any:
    from torchcodec.decoders import decode_image

    return Image.fromarray(decode_image(path).permute(1, 2, 0).numpy())


def _place(index: int) -> tuple[int, int, bool]:
    """Left, top, mirrored: as good as random, and the same in every process."""
    mixed = (index + 1) * 2654435761 & 0xFFFFFFFF  # Knuth's multiplicative hash
    room = SMALL - CROP + 1
    return (mixed >> 8) % room, (mixed >> 16) % room, bool(mixed >> 27 & 1)


def _cut(pixels: Any, index: int) -> Any:
    left, top, mirrored = _place(index)
    cut = pixels[top : top + CROP, left : left + CROP]
    return cut[:, ::-1] if mirrored else cut


@functools.lru_cache(maxsize=8)
def _pixels(folder: Path, kind: str) -> Any:
    """The array of all pictures: opened once in each process, never sent to one."""
    import torch

    if kind == "torch_mmap":
        return torch.load(folder / "pixels.pt", mmap=True, weights_only=True).numpy()
    mapped = np.load(folder / "pixels.npy", mmap_mode="r").view(np.ndarray)
    return mapped if kind == "memmap" else mapped.copy()


def ready(batch: Any, *, device: str = "cpu") -> Any:
    """Normalised float32 pictures on the device; uint8 crosses the link as it is."""
    there = batch.to(device, non_blocking=True).permute(0, 3, 1, 2)
    if there.is_floating_point():
        return there
    mean, std = _statistics(device)
    return there.float().div_(255).sub_(mean).div_(std)


@functools.cache
def _statistics(device: str) -> Any:
    import torch

    return torch.tensor([MEAN, STD], device=device).view(2, 3, 1, 1)
