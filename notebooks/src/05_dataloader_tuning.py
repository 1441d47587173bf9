# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown] tags=["slide"]
# # 05 DataLoader tuning: who waits for whom?
#
# Afterwards you can
# - find out whether the loader or the device waits, and predict from two measurements
#   how many workers pay;
# - make a sample cheaper before you add workers, and say what each trick changes;
# - say when the limit is the step, the cores, the disk or the link;
# - let a copy run during a step, and send a quarter of the bytes over a thin link.
#
# No GPU? Loading happens on the CPU anyway and is measured here. What needs a card,
# such as pinned memory, says so; the link is CITED and SIMULATED.

# %% tags=["parameters"]
device: str = "auto"  # auto, cpu, cuda, cuda:1, rocm, xpu, mps
profile: str = "quick"  # quick, class, full
seed: int = 0  # of all random inputs

# %%
import functools
import importlib.util
import multiprocessing
import random
import time

import numpy
import psutil
import torch
from torch import nn
from torch.nn.utils import rnn

from gpu_lab import bench, exercises, facts, fit, hardware
from gpu_lab import plot, show, store, timing, units
from gpu_lab.bench.dataloader import images, link, loading, tuning

# %% [markdown]
# ## Which machine is this?

# %% tags=["nbval-ignore-output"]
plan, lesson = timing.PLANS[profile], exercises.dataloader_tuning
machine = hardware.detect()
gpu = hardware.choose(machine, device)
lab = store.open_session(
    "05_dataloader_tuning", machine, gpu, profile=profile, seed=seed
)
show.passport(machine, gpu, crashed=lab.crashed)

# %% [markdown] tags=["slide"]
# ## Who waits for whom?
#
# A training loop asks for a batch, then makes a step. Without workers one of the two
# always waits. To see the waiting and nothing else, both are **slept** here: a sample
# takes a set time, and so does a step. Sleeping needs no core, so that the finding is
# the same on every machine.

# %%
LOAD_S, STEP_S, BATCHES = 0.040, 0.015, 12
slow = timing.Sleeper(8 * BATCHES, LOAD_S / 8)
asleep = {"step": lambda batch: time.sleep(STEP_S), "batch": 8}
model = tuning.fit_model(slow, **asleep)  # two measurements
found = {"load a batch": model.load_s, "make a step": model.step_s}
rows = [(name, units.milliseconds(time_s)) for name, time_s in found.items()]
show.Table(rows, ("alone", "time (ms)"), "MEASURED")

# %% [markdown]
# Workers are processes that load while the device steps. With w of them a batch comes
# every load / w, and a step can follow every load / w or every step, whichever is
# longer. So there is a **knee**: after it one more worker gains nothing.
#
# **Predict first.** From the two times above, how many workers are enough? Write text
# with its unit, such as "5 workers".

# %% tags=["predict"]
guess = ...
lab.answer(lesson.knee.predict(guess))

# %%
counts = range(5)
with loading.Pool() as pool:
    arms = [
        lab.arm(f"sleep_{w}", pool.arm, slow, workers=w, **asleep)
        for w in counts
    ]
    swept = lab.together(arms, plan=timing.Plan(rounds=3))
rows = [
    (str(w), units.milliseconds(row.median_s / BATCHES), units.milliseconds(s))
    for w, row, s in zip(counts, swept, map(model.batch_s, counts), strict=True)
]
columns = ("workers", "time of a batch (ms)", "model (ms)")
show.Table(rows, columns, "MEASURED; the model is from two measurements")

# %% tags=["nbval-ignore-output"]
knee = lesson.pays([row.median_s for row in swept])
print(f"Workers that pay: {knee} measured, {model.knee} by the model.")
print(f"Workers start by {loading.start_method()} here.")
lab.answer(lesson.knee.predict(guess, knee))

# %% [markdown]
# The measured times lie a little above the model, because the first batch of an epoch
# is always waited for. Now look at the two lanes themselves:

# %%
clock, watched = timing.clock_for(machine.device("cpu")), []
with loading.Pool() as pool:
    for w in (0, 1, 3):
        loader = pool.loader(timing.Sleeper(64, LOAD_S / 8), batch=8, workers=w)
        _ = list(loader)  # the workers have started
        given = {"clock": clock, "loaded": timing.loaded}
        lanes = timing.stages(f"{w} workers", loader, asleep["step"], **given)
        watched.append(lanes)

# %% tags=["slide"]
plot.loader_lanes(watched)

# %%
rows = [(lanes.name, units.percent(lanes.waiting)) for lanes in watched]
show.Table(rows, ("loader", "the device waits"), "MEASURED")

# %% [markdown]
# Gaps in the blue lane are paid for and unused. They close as workers are added, until
# the blue lane itself is the limit. Watch this share in your own training first: if it
# is near zero, nothing in this notebook will make you faster.
#
# ### Prefetch: how far ahead?
# `prefetch_factor` is the number of batches that each worker may be ahead. If all
# batches take equally long it hardly matters; if some take long, batches in store
# bridge the gap. SIMULATED, one batch in nine takes twelve times as long:

# %%
loads_s = [0.12 if i % 9 == 8 else 0.01 for i in range(90)]
table = []
for ahead in (1, 2, 4, 8):
    given = {"workers": 2, "prefetch": ahead}
    steady = timing.simulated_stages("", [0.022] * 90, 0.02, **given)
    uneven = timing.simulated_stages("", loads_s, 0.02, **given)
    kinds = (units.percent(steady.waiting), units.percent(uneven.waiting))
    table.append((str(ahead), *kinds))
columns = ("prefetch_factor", "device waits, all alike", "some take long")
show.Table(table, columns, "SIMULATED")

# %%
default = torch.utils.data.DataLoader(slow, num_workers=1).prefetch_factor
print(f"prefetch_factor with workers: {default}")
show.claims("C115")

# %% [markdown] tags=["slide"]
# ## Exercise 1: how many workers?
#
# From the measured table above (`swept`): the **fewest** workers that are as fast as
# the fastest, within a twentieth.

# %% tags=["exercise"]
times_s = [row.median_s for row in swept]
answer = ...  # a number of workers
lab.answer(lesson.workers(answer, times_s=times_s))

# %% tags=["solution"]
times_s = [row.median_s for row in swept]
enough_s = 1.05 * min(times_s)
answer = min(w for w, time_s in enumerate(times_s) if time_s <= enough_s)
lab.answer(lesson.workers(answer, times_s=times_s))

# %% [markdown] tags=["slide"]
# ## Real pictures
#
# Now something that needs a core: JPEG files. They are made from the seed and written
# once into the run folder.

# %%
count = 256 if profile == "quick" else 2048
room = units.memory(count * images.PICTURE_BYTES)
print(f"{count} pictures of {images.SIDE} pixels, at most {room} on disk")

# %%
bar = functools.partial(show.progress, what="pictures")
pictures = images.write(
    store.out_folder(), count=count, seed=seed, progress=bar
)
sizes = [pictures.file(i).stat().st_size for i in range(count)]
sample = 3 * images.CROP**2
per_sample = {
    "JPEG file": sum(sizes) / count,
    "uint8, as the model sees it": sample,
    "float32, as the model sees it": 4 * sample,
}
rows = [(k, units.memory(v)) for k, v in per_sample.items()]
show.Table(rows, ("one picture as", "size"))

# %%
show.claims("C069")

# %% [markdown]
# A file is small, but it is decoded **before** it crosses the link: then its size on
# disk saves nothing. What crosses is the last line, or the one above it.
#
# ### Make a sample cheaper, before you add workers
# The reference converts everything to float32 at once, normalises all pixels and then
# throws most of them away. Each variant below changes one thing; `agrees` says how far
# its batches are from those of the row it is compared with.
#
# **Guess**: which gains more, two workers or files that were resized beforehand?

# %%
ways = facts.settings("dataloader")["variants"]
ready = functools.partial(images.ready, device=gpu.torch_name)
data, levels = {}, {}
for name, way in ways.items():
    several = name.endswith("batched")
    kind = images.BatchedPictures if several else images.Pictures
    if importlib.util.find_spec(way.get("needs", "torch")):
        data[name] = kind(pictures, way["kind"], 96)

# %%
batches = {
    name: images.ready(next(iter(loading.Loader(several))))
    for name, several in data.items()
}
scale, stated = 255 * torch.tensor(images.STD).view(3, 1, 1), []
for name, batch in batches.items():
    way = ways[name]
    levels[name] = (batch - batches[way["as"]]).abs() * scale
    near = levels[name].mean() <= way["mean"], levels[name].max() <= way["most"]
    stated.append(bool(all(near)))

# %%
rows = []
for name, way in ways.items():
    texts = ("n/a", "n/a")
    if name in levels:
        exact = bool((levels[name] == 0).all())
        mean, most = levels[name].mean(), levels[name].max()
        texts = [units.number(float(x), 2) for x in (mean, most)]
        texts = ("bit for bit", "0.0") if exact else texts
    rows.append((name, way["changes"], way["as"], *texts))
columns = ("variant", "what it changes", "against", "mean", "most")
show.Table(rows, columns, "mean, most: difference in levels of 255")

# %%
with loading.Pool() as pool:
    arms = []
    for name, way in ways.items():
        missing = timing.Arm(name=name, reason=way.get("missing", ""))
        given = {"step": ready, "workers": way["workers"]}
        known = data.get(name)
        arm = lab.arm(name, pool.arm, known, **given) if known else missing
        arms.append(arm)
    read = lab.together(arms, plan=timing.Plan(rounds=5))

# %%
gains = {row.name: read[0].time_ratio(row) for row in read}
rows = []
for row in read:
    gain = units.ratio(gains[row.name])
    rows.append((row.name, str(row.source), show.rate(row), gain))
show.Table(rows, ("variant", "source", "rate", "speedup over naive"))

# %% tags=["nbval-ignore-output"]
best = max(read, key=lambda row: row.rate or 0)
workers, small = (units.ratio(gains[k]) for k in ("uint8_workers", "small"))
print(f"Same pixels, two workers: {workers}; resized beforehand: {small}.")
print(f"Best: {best.name}, {units.ratio(gains[best.name])}.")
show.claims("C117")

# %% [markdown]
# So a gain such as that of C117 needs no secret: it needs less work for each sample.
# Say what you changed with every such number. **Bit for bit** means that training
# sees the same; a resized file or a smaller decoder does not give quite the same
# picture, and that is your decision, not the loader's.
#
# ### Memory maps
# A mapped array is read from disk page by page as it is touched, and all workers share
# the pages. There are two ways to get one, and `Dataset` has nothing to do with it:

# %%
try:
    torch.utils.data.Dataset(mmap_mode="r")
except TypeError as error:
    print(f"TypeError: {error}")
mapped = numpy.load(pictures.folder / "pixels.npy", mmap_mode="r")
saved = torch.load(pictures.folder / "pixels.pt", mmap=True)
equal = torch.equal(torch.tensor(mapped[:16]), saved[:16])
print(f"{type(mapped).__name__} and torch.load(mmap=True) agree: {equal}")
show.claims("C113")

# %% [markdown] tags=["slide"]
# ## Workers compete for cores
#
# Slept loading could be spread over any number of workers. Decoding needs a core, and
# there are only so many. The knobs, each moved alone, in random order:
#
# **Guess**: on this machine, how many workers are enough for `uint8`?

# %%
decode = images.Pictures(pictures, "uint8", 96)
knobs = {f"decode_{w}": {"workers": w} for w in (0, 1, 2, 4)}
knobs |= {f"prefetch_{p}": {"workers": 2, "prefetch": p} for p in (1, 4)}
knobs["new_worker"] = {"workers": 1, "persistent": False}
knobs["pinned"] = {"workers": 2, "pin": True}
with loading.Pool() as pool:
    given = {"step": ready, "device": gpu}
    arms = [
        lab.arm(name, pool.arm, decode, **given, **knob)
        for name, knob in knobs.items()
    ]
    decoded = lab.together(arms, plan=timing.Plan(rounds=3))
show.measurements(decoded)

# %% tags=["nbval-ignore-output"]
cores = hardware.host.threads()
times_s = [row.median_s for row in decoded[:4]]
fewest = (0, 1, 2, 4)[lesson.pays(times_s)]
speedup = units.ratio(max(times_s) / min(times_s))
print(f"{cores} cores: {fewest} workers are enough, worth {speedup}.")
show.claims("C114", "C026")

# %% [markdown]
# `num_workers` is for each loader, so for each process of a training on several GPUs,
# and the best value follows from cores and cost of a sample, not from GPUs. Prefetch
# costs memory: workers x prefetch x batch. Without `persistent_workers` each epoch
# starts its workers anew; what that costs depends on how they start:

# %%
tiny = images.Pictures(pictures, "memory", 16)
with loading.Pool() as pool:
    started = [
        lab.measure(
            f"start_{way}",
            bench.measured,
            lab.arm(
                way, pool.arm, tiny, workers=1, persistent=False, start=way
            ),
            device=machine.device("cpu"),
            plan=timing.Plan(budget_s=0.001),  # once
        )
        for way in ("fork", "spawn", "forkserver")
    ]
show.measurements(started)

# %% [markdown]
# `fork` copies the running process: quick, and not allowed once CUDA is in use. `spawn`
# and `forkserver` start an empty Python, which imports torch again. Windows and macOS
# spawn; Linux forks up to Python 3.13. What a worker gets is **sent** to it: its class
# must be found by `import`, which nothing in a notebook cell is.
#
# ### How batches come back
# Through shared memory. There are two ways to name it, and one of them holds an open
# file for each batch that you keep:

# %% tags=["nbval-ignore-output"]
me = psutil.Process()
files = getattr(me, "num_fds", lambda: 0)
for way in sorted(torch.multiprocessing.get_all_sharing_strategies()):
    with loading.Pool() as pool:
        batches = iter(pool.loader(decode, workers=1, sharing=way))
        kept = [next(batches)]
        before = files()
        kept += batches
        held = files() - before
        print(f"{way}: {held} files held by {len(kept) - 1} more batches")
        del batches, kept
show.claims("C116")

# %% [markdown] tags=["slide"]
# ## Exercise 2: a dataset that a worker can get
#
# Make a dataset of sixteen samples that also works where workers are spawned. The
# class below does not; `gpu_lab` has some that do.

# %%
ways_here = ", ".join(multiprocessing.get_all_start_methods())
print(f"Python can start workers here by {ways_here}")


# %% tags=["exercise"]
class Mine:
    def __len__(self):
        return 16

    def __getitem__(self, index):
        return index


answer = ...  # a dataset
lab.answer(lesson.sendable(answer))

# %% tags=["solution"]
answer = timing.Sleeper(16, 0.001)  # its class lives in a module
lab.answer(lesson.sendable(answer))

# %% [markdown] tags=["slide"]
# ## The link
#
# Behind a thin link the limit is soon neither loader nor step: bytes of a sample x
# samples a second must fit. **Guess**: how many of our pictures can Thunderbolt 3 carry
# in a second as float32, and how many as uint8?

# %%
LINKS = (
    "PCIe 4.0 x16",
    "OCuLink PCIe 4.0 x4",
    "Thunderbolt 4",
    "Thunderbolt 3",
)
cited = {name: fit.cited_link(name, start_s=0.0) for name in LINKS}
rows = []
for name, line in cited.items():
    most = [line.bytes_per_s / size for size in (4 * sample, sample)]
    texts = [units.pace(rate, "sample") for rate in most]
    rows.append((name, units.bandwidth(line.bytes_per_s), *texts))
columns = ("link", "rate", "float32, at most", "uint8, at most")
show.Table(rows, columns, "CITED")

# %% [markdown]
# The same pictures as uint8 are a quarter of the bytes; converting on the device costs
# next to nothing. That is why `images.ready` normalises after the copy.
#
# ### Small copies
# Each copy pays a fixed start. Fitted as t = t0 + n / B, over the link where there is
# one, else between two places in the cache of the processor:

# %%
sizes = [256 * 16**k for k in range(4)]
on_gpu = gpu.is_gpu and not gpu.simulated
given, arms = {"device": gpu, "seed": seed}, []
for size in sizes:
    here, there = torch.ones(2, size, dtype=torch.uint8)
    call = functools.partial(there.copy_, here)
    work = {"work": float(size), "work_unit": "byte", "hot": True}
    arm = timing.Arm(name=f"copy_{size}", calls=(call,), **work)
    if on_gpu:
        make = bench.transfer_arm
        arm = lab.arm(f"copy_{size}", make, "h2d", size, **given)
    arms.append(arm)
copies = lab.together(arms, plan=plan)
show.measurements(copies)

# %% tags=["nbval-ignore-output"]
line = bench.fit_link(sizes, [row.median_s for row in copies])
start, half = units.seconds(line.start_s), units.memory(line.half_size_bytes)
print(f"A copy starts in {start}; half of the rate is reached with {half}.")
show.claims("C027", "C079")

# %% [markdown]
# A larger batch is one larger copy: the starts become fewer, the bytes of a sample stay
# the same. Where the bytes are the limit, a larger batch gains nothing.

# %%
mapped = images.Pictures(pictures, "memmap", 256)
with loading.Pool() as pool:
    given = {"step": ready, "device": gpu}
    arms = [
        lab.arm(f"batch_{n}", pool.arm, mapped, batch=n, **given)
        for n in (1, 4, 16, 64, 256)
    ]
    batched = lab.together(arms, plan=timing.Plan(rounds=12))
show.measurements(batched)

# %% tags=["nbval-ignore-output"]
rates = [row.rate for row in batched]
enough = next(r for r in batched if r.rate >= 0.95 * max(rates))
print(f"Within a twentieth of the best from {enough.name} on.")
show.claims("C028")

# %% [markdown] tags=["slide"]
# ### Pinned memory, and a copy that nobody waits for
#
# A copy can run while the device computes if three things come together: the batch lies
# in **pinned** memory, the copy is **non-blocking**, and it stands on **a stream of its
# own**. One missing, and host or device waits.

# %%
size = 16 * 4 * sample
given = {"device": gpu, "seed": seed}
arms = [
    lab.arm(f"h2d_{k}", bench.transfer_arm, "h2d", size, pinned=p, **given)
    for k, p in (("pageable", False), ("pinned", True))
]
h2d = lab.together(arms, plan=plan)
show.measurements(h2d)

# %%
torch.manual_seed(seed)
first, second = nn.Conv2d(3, 16, 5, stride=4), nn.Conv2d(16, 32, 3)
net = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Flatten(2))
net = net.to(gpu.torch_name)


# %%
def train(batch):
    net.zero_grad()
    loss = net(images.ready(batch, device=gpu.torch_name)).square().mean()
    loss.backward()


# %%
uint8 = [torch.from_numpy(numpy.stack([mapped[i] for i in range(16)]))] * 8
streams = gpu.backend in ("cuda", "rocm") and not gpu.simulated
over = link.StreamLink(gpu) if streams else None
arms = link.copy_arms(uint8, train, link=over)
ahead = lab.together(arms, plan=plan)
show.measurements(ahead)

# %% [markdown]
# The same loop over a throttled link, SIMULATED: a thread sleeps as long as the bytes
# would take. **Guess**: which saves more, copying ahead or sending uint8?

# %%
rows = []
for kind, factor in (("float32", 4), ("uint8", 1)):
    batch = torch.zeros(16 * sample * factor, dtype=torch.uint8)
    throttled = link.ThrottledLink(0.24e9)
    arms = link.copy_arms(
        [batch] * 8, lambda copied: time.sleep(0.008), link=throttled
    )
    given = {"device": timing.SIMULATED, "clock": timing.StandInClock(1.0)}
    with throttled.copier:
        pair = bench.together(arms, plan=timing.Plan(rounds=3), **given)
    times = [units.milliseconds(row.median_s / 8) for row in pair]
    rows.append((kind, units.memory(batch.nbytes), *times))
columns = ("batch as", "its bytes", "one by one (ms)", "one ahead (ms)")
show.Table(rows, columns, "SIMULATED; time of a step")

# %%
show.claims("C067", "C068", "C047")

# %% [markdown]
# Read the rows: copying ahead hides a copy behind the step, as long as it is the shorter
# one. It moves no byte less. If the copy is longer, only fewer bytes help. The best
# copy is the one that is not made: data that fit on the card go there once.
#
# ### How much of a step is the link?

# %%
stepping = timing.Arm(
    name="net", calls=(functools.partial(train, uint8[0]),), queued=False
)
net_step = lab.measure(
    "net_step", bench.measured, stepping, device=gpu, plan=plan
)
rows = []
for name, line in cited.items():
    shares = []
    for size in (4 * 16 * sample, 16 * sample, 16 * 512 * 8):
        copy_s = line.time_s(size)
        shares.append(units.percent(copy_s / (copy_s + net_step.median_s)))
    rows.append((name, *shares))
columns = ("link", "pictures, float32", "pictures, uint8", "tokens, int64")
show.Table(rows, columns, "share of copy + step: link CITED, step MEASURED")

# %%
show.claims("C049")

# %% [markdown] tags=["slide"]
# ## Exercise 3: make the copy overlap
#
# A simulated GPU with two queues writes down what your loop does. `copy(batch)` takes
# `non_blocking=True` and `side=True` (a queue of its own), `batch.pin_memory()` gives
# the batch in locked pages, `step(copy)` queues the work, `wait()` stops the host. The
# answer is judged by its trace, not by seconds.

# %%
watched_gpu, host_batch = lesson.WatchedGpu(), lesson.WatchedBatch(0)
watched_gpu.step(watched_gpu.copy(host_batch.pin_memory()))
watched_gpu.log


# %% tags=["exercise"]
def my_loop(gpu, batches):
    for batch in batches:
        copied = gpu.copy(batch)
        gpu.step(copied)
        gpu.wait()


answer = ...  # my_loop, when it is repaired
lab.answer(lesson.overlap(answer))


# %% tags=["solution"]
def my_loop(gpu, batches):
    for batch in batches:
        pinned = batch.pin_memory()
        copied = gpu.copy(pinned, non_blocking=True, side=True)
        gpu.step(copied)


lab.answer(lesson.overlap(my_loop))

# %% [markdown] tags=["slide"]
# ## Exercise 4: a quarter of the bytes
#
# `link.copy(tensor)` brings a tensor to the other side and counts its bytes. Give back
# the same numbers as below, and let fewer bytes cross.

# %%
counted = lesson.CountedLink()
_ = counted.copy(images.ready(uint8[0]))
print(f"{units.size(counted.size_bytes)} crossed")


# %% tags=["exercise"]
def my_transfer(pictures, link):
    return link.copy(images.ready(pictures))


answer = ...  # my_transfer, when it is better
lab.answer(lesson.fewer_bytes(answer))


# %% tags=["solution"]
def my_transfer(pictures, link):
    return images.ready(link.copy(pictures))


lab.answer(lesson.fewer_bytes(my_transfer))

# %% [markdown] tags=["slide"]
# ## Sequences: padding is work too
#
# Texts of a batch must be equally long, so short ones are padded and the padding is
# computed like everything else. `pad_sequence` does that. **Dynamic batching** is
# something else: texts of like length into one batch, and as many as fit a budget of
# tokens. **Guess**: what share of a batch in random order is padding?

# %%
numbers = [random.Random(i).lognormvariate(3.5, 0.8) for i in range(512)]
lengths = [int(number) + 1 for number in numbers]
order = random.Random(seed).sample(range(512), 512)
fixed = [order[i : i + 32] for i in range(0, 512, 32)]
buckets = link.bucket_batches(lengths, tokens=2048, seed=seed)
shares, total = {}, sum(lengths)
for name, found in (("fixed", fixed), ("buckets", buckets)):
    padded = sum(len(b) * max(lengths[i] for i in b) for b in found)
    shares[name] = (str(len(found)), units.percent(1 - total / padded))
rows = [(name, *texts) for name, texts in shares.items()]
show.Table(rows, ("way", "batches", "padding"))

# %%
texts = [torch.full((n,), 1, device=gpu.torch_name) for n in lengths]
words = torch.randn(100, 128, device=gpu.torch_name)
weight = torch.randn(128, 128, device=gpu.torch_name)


# %%
def epoch(batches):
    for batch in batches:
        padded = rnn.pad_sequence([texts[i] for i in batch], batch_first=True)
        torch.relu(words[padded] @ weight)


# %%
work = {"work": float(total), "work_unit": "token", "queued": False}
arms = [
    timing.Arm(name=name, calls=(functools.partial(epoch, found),), **work)
    for name, found in (("fixed", fixed), ("buckets", buckets))
]
tokens = lab.together(arms, plan=timing.Plan(rounds=12))
show.measurements(tokens)

# %% tags=["nbval-ignore-output"]
print(show.paired_sentence(*tokens))
show.claims("C130")

# %% [markdown] tags=["slide"]
# ## Let it be tuned
#
# `tune` does what you have just done: two measurements, the model's knee, a check of it
# and of its neighbours in the same rounds, the fewest workers that pay.

# %% tags=["nbval-ignore-output"]
budget_s = 8.0 if profile == "quick" else 60.0
given = {"device": gpu, "budget_s": budget_s}
tuned = tuning.tune(images.Pictures(pictures, "uint8"), train, **given)
chosen = tuned.setting
print(f"workers {chosen.workers}, prefetch {chosen.prefetch}, pin {chosen.pin}")
print(f"worth {units.ratio(tuned.gain)}; the limit is now: {tuned.limit}")
show.measurements(tuned.tried)

# %% [markdown]
# The limit tells what to do next: **workers**: take more; **cores**: make a sample
# cheaper; **disk**: a faster one, or memory; **link**: fewer bytes; **step**: nothing,
# the loader is done.

# %% [markdown] tags=["slide"]
# ## Negative control: data already there
#
# Pictures that lie in memory as an array cost next to nothing to get. Workers must not
# help here: handing a batch over costs more than making it.

# %%
there = images.Pictures(pictures, "memory", 256)
with loading.Pool() as pool:
    arms = [
        lab.arm(f"memory_{w}", pool.arm, there, workers=w, device=gpu)
        for w in (0, 2)
    ]
    control = lab.together(arms, plan=timing.Plan(rounds=24))
show.measurements(control)

# %% tags=["nbval-ignore-output"]
print(show.paired_sentence(*control))

# %% [markdown]
# The right answers are **slower**, **equivalent** and **no difference shown**. On a GPU
# the same is true of pinning data that already lie on the card.

# %% [markdown] tags=["slide"]
# ## Summary
#
# - First ask who waits: a device that never waits needs no better loader.
# - Two measurements give the knee: load / step, as far as there are cores.
# - Less work for a sample gains more than workers; say what it changes.
# - Over a thin link count bytes: uint8 across, convert there, the next copy during the
#   step.
# - Data in memory want no workers at all.

# %% tags=["nbval-ignore-output"]
path = lab.close()
print(f"Your record: {'/'.join(path.absolute().parts[-4:])}")

# %% tags=["verdict", "nbval-check-output"]
record = store.load(path)
saved = record.measurements
checks = {
    "43 experiments are on record": len(saved) == 43,
    "each row is timed or says why": all(m.times_s or m.reason for m in saved),
    "each variant gives the stated batches": all(stated),
    "3 epochs of 8 steps": [len(e.device_s) for e in watched] == [8] * 3,
    "both ways of batching hold all 512 texts": all(
        len(set().union(*found)) == 512 for found in (fixed, buckets)
    ),
    "no worker is left": not multiprocessing.active_children(),
    "nothing simulated is called measured": not record.mislabelled(),
}
show.verdict("05_dataloader_tuning", checks)

# %% [markdown]
# ## On your eGPU, check
# - the rows `h2d_pageable` and `h2d_pinned`: pageable copies lose most over a tunnel;
# - the table of shares with your own link: where it is large, send uint8;
# - whether the device still waits after `tune`: then the cable is the limit.
