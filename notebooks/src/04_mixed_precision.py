# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown] tags=["slide"]
# # 04 Mixed precision: fewer bits, and what they cost
#
# Afterwards you can
# - say what float16, bfloat16 and TF32 keep of a number, and what they lose;
# - write a training step with autocast and a scaler, in the right order;
# - predict whether *your* device gains from it, and check the prediction;
# - keep three answers apart: speed, memory and numerics.
#
# No GPU? All of the numerics are exact and the same everywhere. The speed is measured
# on your CPU: one with units for bfloat16 gains as a GPU with tensor cores does, one
# without them loses, and that is the same lesson.

# %% tags=["parameters"]
device: str = "auto"  # auto, cpu, cuda, cuda:1, rocm, xpu, mps
profile: str = "quick"  # quick, class, full
seed: int = 0  # of all random inputs

# %%
import math
import operator
import warnings
from dataclasses import replace

import torch

from gpu_lab import bench, exercises, facts, fit, hardware
from gpu_lab import plot, show, store, timing, units
from gpu_lab.bench import amp, amp_numerics
from gpu_lab.compare import paired

plan = timing.PLANS[profile]
lesson = exercises.mixed_precision
torch.set_num_threads(1)  # on a busy CPU more of them wait for each other

# %% [markdown]
# ## Which machine is this?

# %% tags=["nbval-ignore-output"]
machine = hardware.detect()
gpu = hardware.choose(machine, device)
lab = store.open_session(
    "04_mixed_precision", machine, gpu, profile=profile, seed=seed
)
show.passport(machine, gpu, crashed=lab.crashed)

# %% [markdown] tags=["slide"]
# ## What a format keeps
#
# A number is a sign, a power of two and some bits behind the first 1. A format has two
# limits: the powers that it reaches, and the step from 1 to the next number.
#
# **Guess**: bfloat16 and float16 have as many bits. Which one reaches further, and
# which one has the smaller step?

# %% tags=["slide"]
formats = ("float32", "bfloat16", "float16", "float8_e5m2", "float8_e4m3fn")
rows = []
for name in formats:
    info = torch.finfo(getattr(torch, name))
    limits = (info.max, info.smallest_normal, info.eps)
    rows.append((name, str(info.bits), *(f"{v:.2e}" for v in limits)))
columns = ("format", "bits", "largest", "smallest normal", "step at 1")
show.Table(rows, columns)

# %% [markdown]
# TF32 is no format to store: a tensor core reads float32 numbers and looks at 10 bits
# behind the first 1. So it has the range of float32 and the step of float16. By hand:

# %%
numbers = torch.tensor([1e-8, 1.001, 70_000.0])


def tf32(values):
    bits = values.view(torch.int32)
    bits = bits + 0xFFF + (bits >> 13 & 1)
    return (bits & ~0x1FFF).view(torch.float32)


kept = {"tf32": tf32(numbers)}
kept |= {k: numbers.to(getattr(torch, k)).float() for k in formats}
rows = [(k, *(f"{v:.6g}" for v in row.tolist())) for k, row in kept.items()]
show.Table(rows, ("format", "0.00000001", "1.001", "70000"))

# %% [markdown]
# float16 loses both ends and keeps the middle; bfloat16 keeps both ends and is coarse
# everywhere. The 8-bit formats repeat that choice. NVFP4 has eight sizes of number, so
# sixteen neighbours share a scale, which is a float8 itself. By hand:

# %%
generator = torch.Generator().manual_seed(seed)
normal = torch.randn(4096, generator=generator)
casts = {k: normal.to(getattr(torch, k)).float() for k in formats[1:]}
casts["tf32"] = tf32(normal)


# %%
def nvfp4(values):
    blocks = values.reshape(-1, 16)
    largest = blocks.abs().amax(1, keepdim=True) / 6
    scale = largest.to(torch.float8_e4m3fn).float()
    sizes = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    nearest = ((blocks / scale).abs()[..., None] - sizes).abs().argmin(-1)
    return (sizes[nearest] * scale * blocks.sign()).flatten()


casts["nvfp4"] = nvfp4(normal)

# %%
units_for = {"tf32": "tf32", "nvfp4": "nvfp4"}
units_for |= dict.fromkeys(formats[3:], "float8")
rows = []
for name, cast in casts.items():
    error = float((cast - normal).norm() / normal.norm())
    here = "measured below"
    if name in units_for:
        here = amp.missing(gpu, units_for[name]) or "yes"
    rows.append((name, f"{error:.1e}", here))
show.Table(rows, ("format", "relative error", "units in this device"))

# %% [markdown] tags=["slide"]
# ### Sums are another matter than products
#
# **Guess**: what is the sum of 4096 ones in float16, and in bfloat16?

# %% tags=["slide"]
sums = {}
for name in ("float32", "bfloat16", "float16"):
    kind = getattr(torch, name)
    total, weight = torch.zeros((), dtype=kind), torch.ones((), dtype=kind)
    for _ in range(4096):
        total += 1
    for _ in range(1000):
        weight += 1e-4
    sums[name] = (total.item(), weight.item())
rows = [(k, f"{a:g}", f"{b:.3f}") for k, (a, b) in sums.items()]
show.Table(rows, ("format", "4096 times 1", "1 + 1000 times 0.0001"))

# %% [markdown]
# Where the step is larger than what is added, nothing happens any more. A weight plus
# its small update is such a sum. So autocast leaves the weights in float32, tensor
# cores sum in float32, and only what goes into products is short.

# %% [markdown] tags=["slide"]
# ## Gradients that become zero
#
# The same small network is trained from the same weights. Its loss has a small weight,
# as one of several terms of a loss may have.
#
# **Guess**: which share of its gradients becomes zero in float16? And in bfloat16?

# %% tags=["slide"]
runs = {
    "float32": {},
    "bfloat16": {"dtype": "bfloat16"},
    "float16": {"dtype": "float16"},
    "float16 + scaler": {"dtype": "float16", "scaled": True},
    "float16, loss of usual size": {"dtype": "float16", "weight": 1.0},
}
given = {"device": gpu, "seed": seed}
outcomes = {k: amp_numerics.train(**v, **given) for k, v in runs.items()}
rows = []
for name, x in outcomes.items():
    shares = map(units.percent, (x.zero_share, x.accuracy))
    rows.append((name, *shares, "yes" if x.moved else "no"))
columns = ("training", "became zero", "right answers", "weights moved")
show.Table(rows, columns)

# %% [markdown]
# In float16 alone nothing is learned, and nothing complains: the loss is finite, the
# gradients are zero, the weights stay. The scaler multiplies the *loss* by a power of
# two, and so every gradient, and divides before the optimizer looks. With a loss of
# usual size float16 may do without: you do not need the scaler until you do.
#
# ### The picture: a window that does not move, and gradients that do

# %% tags=["slide"]
exponents = outcomes["float32"].exponents
plot.gradients(exponents, scale=amp_numerics.SCALE)

# %%
show.claims("C070")

# %% tags=["nbval-ignore-output"]
for name in ("float32", "bfloat16", "float16 + scaler"):
    print(f"{name}: {units.percent(outcomes[name].accuracy)} right here")

# %% [markdown] tags=["slide"]
# ## The scaler: up until it hurts, then back
#
# How large may the scale be? As large as possible, and nobody knows how large that is.
# So `GradScaler` tries: an overflow halves the scale and skips the step, a row of good
# steps doubles it. This one grows after three good steps; two overflows are planted.
#
# **Guess**: where does the weight stand still?

# %% tags=["slide"]
good, overflow = 1.0, float("inf")
planted = [good] * 4 + [overflow] * 2 + [good] * 6
trace = amp_numerics.scaler_trace(planted, device=gpu)
rows = [
    (str(i), f"{g:g}", f"2**{math.log2(scale):.0f}", f"{weight:g}")
    for i, (g, (scale, weight)) in enumerate(
        zip(planted, trace, strict=True), 1
    )
]
show.Table(rows, ("step", "gradient", "scale after it", "weight after it"))

# %% [markdown]
# "Gradient overflow, skipping step" now and then is this search at work. At every step,
# with a scale on its way to 1, it is a real inf or NaN in your loss.

# %%
show.claims("C132")

# %% [markdown] tags=["slide"]
# ## What autocast does, seen by hooks
#
# `torch.autocast(device_type)` has a list: products go in short, what is delicate goes
# in float32, everything else takes what it gets. The list of a CPU is not that of a
# GPU. Hooks on each layer saw this:

# %% tags=["slide"]
ops = amp_numerics.op_table(device=gpu)
rows = [(k, *dtypes) for k, dtypes in ops.items()]
show.Table(rows, ("layer", "came in", "went out"), f"autocast on {gpu.label}")

# %% [markdown]
# The loss comes out in float32, when it is computed *inside*. The backward pass runs
# *outside*: each gradient takes the dtype of its forward pass by itself. So the step is
#
# ```python
# optimizer.zero_grad()
# with torch.autocast(device_type, dtype):
#     loss = loss_of(model(x), y)
# scaler.scale(loss).backward()
# scaler.unscale_(optimizer)       # once, and before the clipping
# torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
# scaler.step(optimizer)           # leaves the step out after an overflow
# scaler.update()
# ```
#
# In bfloat16 the four lines with the scaler shrink to `loss.backward()` and
# `optimizer.step()`. When gradients are accumulated, unscale, clip, step and update
# belong to the last part only.

# %% [markdown] tags=["slide"]
# ### What replaced what
#
# Most articles show older names. Both were called here; this is what torch said.

# %% tags=["slide"]
said = {}
for row in facts.settings("mixed_precision")["replaced"]:
    for when in ("old", "new"):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call = operator.attrgetter(row[when])(torch)
            call(*row[f"{when}_arguments"])
        words = sorted({w.category.__name__ for w in caught})
        said[f"torch.{row[when]}"] = (when, ", ".join(words) or "silent")
show.Table([(k, *v) for k, v in said.items()], ("name", "", "torch says"))

# %%
show.claims("C013", "C072", "C111")

# %% [markdown]
# One popular snippet lacks a line: nobody clears the gradients. The same input three
# times, with and without `zero_grad`:

# %%
norms = {}
for clears in (True, False):
    layer, norms[clears] = torch.nn.Linear(4, 1), []
    for _ in range(3):
        if clears:
            layer.zero_grad()
        layer(torch.ones(1, 4)).sum().backward()
        norms[clears].append(layer.weight.grad.norm().item())
rows = [
    ("with zero_grad" if k else "without", *map(str, v))
    for k, v in norms.items()
]
show.Table(rows, ("norm of the gradient", "step 1", "step 2", "step 3"))

# %%
show.claims("C071")

# %% [markdown] tags=["slide"]
# ## Does your device gain?
#
# **Predict first.** The same product in float32 and in a half type, for three shapes.
# How many times faster is the half type? Text with its unit: "1x" is no gain, "0.5x"
# is half as fast.

# %%
on_gpu = gpu.is_gpu and not gpu.simulated
sizes = (128, 1024, 8192) if on_gpu else (16, 128, 256)
shapes = dict(zip(lesson.SHAPES, sizes, strict=True))
# Before 8.0 bfloat16 is emulated, whatever is_bf16_supported() says.
old = gpu.backend == "cuda" and float(gpu.capability or 8) < 8
half = "float16" if old else "bfloat16"
print(f"{half} against float32, rows and columns: {shapes}")

# %% tags=["predict"]
guess = {"small": ..., "middle": ..., "large": ...}
[lab.answer(e.predict(guess[k])) for k, e in lesson.gains.items()]

# %% tags=["slide"]
dtypes = ("float32", "tf32", "float16", "bfloat16", "float8")
arms = [
    lab.arm(f"{shape}_{dtype}", bench.matmul_arm, n, dtype=dtype, **given)
    for shape, n in shapes.items()
    for dtype in dtypes
]
steps = replace(plan, budget_s=3 * plan.budget_s)
products = {row.name: row for row in lab.together(arms, plan=steps)}
show.measurements(products.values())

# %% tags=["nbval-ignore-output", "slide"]
pairs = {
    shape: [products[f"{shape}_{dtype}"] for dtype in ("float32", half)]
    for shape in shapes
}
for pair in pairs.values():
    print(show.paired_sentence(*pair))

# %% [markdown]
# ### How far off were your guesses?

# %% tags=["nbval-ignore-output"]
[
    lab.answer(e.predict(guess[k], pairs[k][0].time_ratio(pairs[k][1])))
    for k, e in lesson.gains.items()
]

# %% [markdown]
# **Faster** needs units for the format *and* enough work to keep them busy. A format
# without units is emulated: the product is **slower** then, on some CPUs a hundred
# times. TF32 is float32 with shorter products: PyTorch uses it in convolutions by
# itself, in matrix products only if you allow it
# (`torch.set_float32_matmul_precision`).

# %%
show.claims("C014", "C006")

# %%
cards = ("Tesla V100-SXM2-16GB", "NVIDIA GeForce RTX 2080")
cards += ("NVIDIA A100-SXM4-40GB",)
rows = []
for name in cards:
    kinds = [
        bench.ceiling.peak(name, dtype="float16", accumulate=sums_in)
        for sums_in in ("float32", "float16")
    ]
    rows.append((name, *(units.flops(p.value) for p in kinds)))
show.Table(rows, ("float16, dense peak", "sums in float32", "in float16"))

# %% tags=["nbval-ignore-output"]
print(f"This device, large float16: {show.rate(products['large_float16'])}")

# %% [markdown] tags=["slide"]
# ## A training step is more than a product
#
# Batch norm, softmax, the optimizer and all the casts take part as well. A small CNN,
# with both orders of an image in memory: `channels_last` is what tensor cores read.
#
# **Guess**: how much of the gain of the product is left? And what does `channels_last`
# change?

# %% tags=["nbval-ignore-output"]
sized = {"device": gpu, "plan": steps, "seed": seed}
batch = {m: amp.fitting_batch(m, **sized) for m in ("cnn", "transformer")}
print(f"batches with which all formats end in time: {batch}")

# %% tags=["slide"]
given = {"batch": batch["cnn"], "device": gpu, "seed": seed}
arms = []
for last in (False, True):
    for mode in amp.MODES:
        name = f"cnn_{mode}{'_channels_last' * last}"
        how = {"mode": mode, "channels_last": last, **given}
        arms.append(lab.arm(name, amp.step_arm, "cnn", **how))
cnn = lab.together(arms, plan=steps)
show.measurements(cnn)

# %% tags=["nbval-ignore-output"]
print(show.flags(cnn))
for row in cnn[1:]:
    if row.available:
        print(show.paired_sentence(cnn[0], row))

# %%
show.claims("C002")

# %% [markdown]
# A small transformer: linear layers and attention.

# %% tags=["slide"]
given |= {"batch": batch["transformer"]}
arms = [
    lab.arm(f"transformer_{m}", amp.step_arm, "transformer", mode=m, **given)
    for m in amp.MODES
]
transformer = lab.together(arms, plan=steps)
show.measurements(transformer)

# %% tags=["nbval-ignore-output"]
print(show.flags(transformer))
for row in transformer[1:]:
    if row.available:
        print(show.paired_sentence(transformer[0], row))

# %% [markdown] tags=["slide"]
# ## Negative control: bound by launches
#
# A chain of tiny layers. Its arithmetic is next to nothing; what takes time is to
# start each operation, and autocast adds some more of them: the casts. If the
# measurement is right, no format may be **faster** here.

# %% tags=["slide"]
arms = [
    lab.arm(f"toy_{m}", amp.step_arm, "toy", mode=m, device=gpu, seed=seed)
    for m in amp.MODES
]
toy = lab.together(arms, plan=steps)
show.measurements(toy)

# %% tags=["nbval-ignore-output"]
print(show.flags(toy))
for row in toy[1:]:
    if row.available:
        print(show.paired_sentence(toy[0], row))
faster = [r.name for r in toy[1:] if paired(toy[0], r).verdict == "faster"]
doubt = f"do not trust this run: {', '.join(faster)} cannot be faster"
print(doubt if faster else "No format is faster here, as it must be.")

# %% [markdown] tags=["slide"]
# ## Memory: the second answer
#
# The forward pass keeps tensors for the backward pass. Hooks count their bytes exactly,
# on any device; a GPU also tells the most that was allocated during a step.
#
# **Guess**: what is left of them in a half type? More or less than half?

# %% tags=["slide"]
models = {"cnn": cnn[:4], "transformer": transformer, "toy": toy}
rows = []
for whole, *others in models.values():
    for row in others:
        shares = []
        for what in ("saved_bytes", "peak_bytes"):
            a, b = (r.observed.get(what) for r in (row, whole))
            shares.append(units.percent(a / b if a and b else None))
        rows.append((row.name, *shares))
columns = ("step", "kept for backward", "most allocated")
show.Table(rows, columns, "Share of what the step in float32 needs.")

# %% tags=["nbval-ignore-output"]
for name, (whole, *_) in models.items():
    kept = units.memory(whole.observed.get("saved_bytes"))
    peak = units.memory(whole.observed.get("peak_bytes"))
    print(f"{name}, float32: {kept} kept, {peak} allocated at most")

# %% [markdown]
# Activations shrink to half; what stays in float32 does not, and autocast keeps a
# short copy of each weight beside it. A model of large weights and small batches can
# need *more*. Speed, memory and numerics are three answers: one can be good while
# another is not.

# %%
show.claims("C112")

# %% tags=["nbval-ignore-output"]
for whole, *_, row in models.values():
    print(show.paired_sentence(whole, row))
    shares = [r.observed.get("saved_bytes", math.nan) for r in (row, whole)]
    print(f"  kept for backward: {units.percent(shares[0] / shares[1])}")

# %% [markdown] tags=["slide"]
# ### On an eGPU the link has its share
#
# A step of forty thousandths of a second that gains three times, and a batch of 64
# images that comes over the link first, without overlap. Arithmetic with CITED links:

# %% tags=["slide"]
whole_s, gain = 0.040, 3.0
batch_bytes = 64 * 3 * 224 * 224 * 4
links = ("PCIe 4.0 x16", "OCuLink PCIe 4.0 x4", "Thunderbolt 3")
rows = []
for name in links:
    copy_s = fit.cited_link(name, start_s=0.0).time_s(batch_bytes)
    left = (copy_s + whole_s) / (copy_s + whole_s / gain)
    rows.append((name, units.milliseconds(copy_s), units.ratio(left, 3)))
show.Table(rows, ("link", "its batch (ms)", "gain that is left"), "CITED")

# %% [markdown]
# The faster the step, the larger the share of the link. Send images as bytes, overlap
# the copy with the step (notebook 05), or keep the data on the card.

# %% [markdown] tags=["slide"]
# ## Exercise 1: wrap a training step
#
# The kit has `model`, `loss`, `x`, `y`, `optimizer`, `scaler`, `clip` and `dtype`, all
# on the CPU. Make this step right for **both** half types: it is called once with a
# kit in float16 and once in bfloat16, and hooks write down what it does. Gradients are
# to be clipped.

# %%
kit = lesson.Kit("bfloat16")
kit.model, kit.dtype


# %% tags=["exercise"]
def my_step(kit):
    kit.optimizer.zero_grad()
    loss = kit.loss(kit.model(kit.x), kit.y)
    loss.backward()
    kit.clip(kit.model.parameters(), 1.0)
    kit.optimizer.step()


answer = ...  # my_step, when it is wrapped
lab.answer(lesson.wrap_step(answer))


# %% tags=["solution"]
def my_step(kit):
    off = torch.amp.GradScaler("cpu", enabled=False)
    scaler = kit.scaler if kit.dtype == torch.float16 else off
    kit.optimizer.zero_grad()
    with torch.autocast("cpu", kit.dtype):
        loss = kit.loss(kit.model(kit.x), kit.y)
    scaler.scale(loss).backward()
    scaler.unscale_(kit.optimizer)
    kit.clip(kit.model.parameters(), 1.0)
    scaler.step(kit.optimizer)
    scaler.update()


lab.answer(lesson.wrap_step(my_step))

# %% [markdown]
# ## Exercise 2: the smallest safe scale
#
# Where the gradients of three networks lie. Safe means: in float16 fewer than 1 in 1000
# become zero, and none overflows. Write the smallest scale that is a power of two
# (1 = none is needed), or "bf16" where no scale is safe.

# %%
nets = facts.settings("mixed_precision")["nets"]
places = ("smallest", "thousandth", "half", "largest")
rows = [(k, *(f"2**{net[p]}" for p in places)) for k, net in nets.items()]
columns = ("smallest", "1 in 1000 is below", "half are below", "largest")
show.Table(rows, ("network", *columns), "float16: from 2**-24 to below 2**16")

# %% tags=["exercise"]
answer = {"a": ..., "b": ..., "c": ...}
lab.answer(lesson.safe_scale(answer))

# %% tags=["solution"]
answer = {
    "a": 2**13,  # 2**-37 has to come up to 2**-24
    "b": 1,  # all of it is inside
    "c": "bf16",  # 2**12 would be needed, and the largest bear only 2**6
}
lab.answer(lesson.safe_scale(answer))

# %% [markdown]
# ## Exercise 3: who gains?
#
# From the sentences below the table of products: which shapes gain from the half type
# on this machine? "yes" only where the verdict is **faster**.

# %% tags=["exercise"]
answer = {"small": ..., "middle": ..., "large": ...}
lab.answer(lesson.who_gains(answer, pairs=pairs))

# %% tags=["solution"]
answer = lesson.right_gains(pairs)
lab.answer(lesson.who_gains(answer, pairs=pairs))

# %% [markdown] tags=["slide"]
# ## Summary
#
# - bfloat16 has the range of float32, float16 a smaller step, TF32 that range and that
#   step; sums and weights stay in float32.
# - float16 needs a scaler, bfloat16 does not. Unscale, then clip, then step.
# - Loss inside autocast, backward outside, `zero_grad` every time.
# - A gain needs units for the format and enough work. Measure yours.
# - Speed, memory and numerics are three answers.

# %% tags=["nbval-ignore-output"]
path = lab.close()
print(f"Your record: {'/'.join(path.absolute().parts[-4:])}")

# %% tags=["verdict", "nbval-check-output"]
record = store.load(path)
saved = record.measurements
checks = {
    "31 experiments are on record": len(saved) == 31,
    "each row is timed or says why": all(m.times_s or m.reason for m in saved),
    "nothing simulated is called measured": not record.mislabelled(),
    "old names warn, new ones are silent": all(
        ("FutureWarning" in word) == (when == "old")
        for when, word in said.values()
    ),
    "autocast takes linear layers down": "bfloat16" in ops["Linear"],
    "autocast takes losses up": ops["CrossEntropyLoss"][1] == "float32",
    "without zero_grad gradients add up": norms[False] == [2, 4, 6],
}
show.verdict("04_mixed_precision, the record", checks)

# %% tags=["verdict", "nbval-check-output"]
zero = {k: x.zero_share for k, x in outcomes.items()}
moved = {k: x.moved for k, x in outcomes.items()}
scales = [math.log2(scale) for scale, _ in trace]
exact = {
    "4096 ones in float16 are 2048": sums["float16"][0] == 2048,
    "4096 ones in bfloat16 are 256": sums["bfloat16"][0] == 256,
    "float16 alone: over 99 in 100 gradients are zero": zero["float16"] > 0.99,
    "scaled: under 1 in 100": zero["float16 + scaler"] < 0.01,
    "bfloat16: under 1 in 1000": zero["bfloat16"] < 0.001,
    "float16 alone: no weight moved": not moved["float16"],
    "with the scaler they moved": moved["float16 + scaler"],
    "the scale backs off twice and grows again": scales
    == [16, 16, 17, 17, 16, 15, 15, 15, 16, 16, 16, 17],
}
show.verdict("04_mixed_precision, exact numbers", exact)

# %% [markdown]
# ## On your eGPU, check
# - the table of products with the enclosure closed: short formats heat as well;
# - that the gain of your own step survives when its data come over the link;
# - the scale in your log: on its way to 1, it is a bug and not the card.
