# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown] tags=["slide"]
# # 01 Hardware basics: what limits an operation?
#
# Afterwards you can
# - place an operation on a roofline and name its limit;
# - say what crosses the link, how long that takes, and when it matters;
# - compute the size from which a GPU behind a link beats the CPU;
# - recompute a data sheet's figure and find the trap in it.
#
# No GPU? The roofline is measured on your CPU and is just as true. The link is then
# CITED from published measurements and SIMULATED, and every picture says so.

# %% tags=["parameters"]
device: str = "auto"  # auto, cpu, cuda, cuda:1, rocm, xpu, mps
profile: str = "quick"  # quick, class, full
seed: int = 0  # of all random inputs

# %%
import itertools
from dataclasses import replace

import torch

from gpu_lab import bench, exercises, facts, fit, hardware
from gpu_lab import plot, show, store, timing, units

plan = timing.PLANS[profile]
lesson = exercises.hardware_basics

# %% [markdown]
# ## Which machine is this?

# %% tags=["nbval-ignore-output"]
machine = hardware.detect()
gpu = hardware.choose(machine, device)
lab = store.open_session(
    "01_hardware_basics", machine, gpu, profile=profile, seed=seed
)
show.passport(machine, gpu, crashed=lab.crashed)

# %% [markdown] tags=["slide"]
# ## The peak: arithmetic of a data sheet
#
# How fast can a card be at most? Multiply what works at once by how often: number of
# SMs x FLOP per clock and SM x clock. One multiply and one add are two FLOP.
#
# **Guess**: by which factor do float32 and float16 differ on the card below?

# %%
card = "NVIDIA GeForce RTX 3080"  # any name in data/gpus.csv
row = bench.ceiling.card(card)
sms, clock_mhz = int(row["sm_or_cu_count"]), float(row["boost_clock_mhz"])
by_hand = sms * 128 * 2 * clock_mhz * 1e6  # 128 float32 units, 2 FLOP each
print(f"{card}: {units.flops(by_hand)}")

# %% tags=["slide"]
kinds = [(d, "float32") for d in ("float32", "tf32", "float16", "bfloat16")]
kinds.append(("float16", "float16"))
peaks = [
    (dtype, sums, bench.ceiling.peak(card, dtype=dtype, accumulate=sums))
    for dtype, sums in kinds
]
show.Table(
    [(d, sums, p.how, units.flops(p.value)) for d, sums, p in peaks],
    ("inputs", "sums in", "arithmetic", "dense peak"),
)

# %% [markdown]
# PyTorch sums float16 products in float32, so the line with sums in float16 is not
# yours. On this kind of card that halves the figure of the advertisement.
#
# Two more doublings hide in such figures: float8 inputs, and *sparse* matrices of
# which half must be zero. Watch one card climb without getting any faster:

# %%
half = bench.ceiling.peak("NVIDIA GeForce RTX 4090", dtype="float16").value
climb = {"float16, sums in float32 (PyTorch)": 1, "sums in float16": 2}
climb |= {"float8, sums in float16": 4, "and half of them zero (sparse)": 8}
show.Table(
    [(k, f"{v} times", units.flops(v * half)) for k, v in climb.items()],
    ("figure", "factor", "RTX 4090"),
)

# %%
show.claims("C017", "C054")

# %% [markdown]
# ### Who has tensor cores?
#
# The units for small matrix products came with Volta, and each generation reads more
# number formats. The name of a card does not tell; the table does.

# %%
names = ("Tesla V100-SXM2-16GB", "Tesla T4", "NVIDIA GeForce GTX 1660 Ti")
names += ("NVIDIA A100-SXM4-40GB", "NVIDIA A100 80GB PCIe")
names += ("NVIDIA GeForce RTX 4090",)
columns = ("name", "compute_capability", "tensor_core_gen", "memory_gb")
cards = [bench.ceiling.card(name) for name in names]
show.Table([[c[k] or "none" for k in columns] for c in cards], columns)

# %%
show.claims("C091", "C092", "C093", "C051")

# %% [markdown]
# Does *your* device have units for bfloat16? Ask it: the same product in both formats,
# timed in the same rounds.

# %%
on_gpu = gpu.is_gpu and not gpu.simulated
given = {"device": gpu, "seed": seed}
n = 4096 if on_gpu else 256
halves = [
    lab.arm(f"product_{kind}", bench.matmul_arm, n, dtype=kind, **given)
    for kind in ("float32", "bfloat16")
]
formats = lab.together(halves, plan=plan)
show.measurements(formats)

# %% tags=["nbval-ignore-output"]
print(show.paired_sentence(*formats))

# %% [markdown]
# **Faster** means units for bfloat16, on a CPU as on a GPU. **Slower** means that the
# format is emulated: it saves memory here, and no time.

# %% [markdown] tags=["slide"]
# ## The roofline: two ceilings over every operation
#
# Each operation moves bytes and computes. Whichever takes longer is its limit. So one
# number decides: how many FLOP does it do for each byte of memory it touches?
#
# - `triad`, a = b + s c: 2 FLOP for 12 bytes, whatever the size;
# - a product of n rows: 2 n³ FLOP for three matrices of 4 n² bytes, n / 6 a byte.
#
# **Guess**: which of the two comes nearer to the peak of this machine?

# %%
size = (256 if on_gpu else 64) * 2**20
there = {"on_host": not gpu.is_gpu, **given}
passes = [
    lab.arm(kind, bench.memory_arm, kind, size, **there)
    for kind in ("copy", "triad")
]
moved = lab.together(passes, plan=plan)
show.measurements(moved)

# %%
largest = 8192 if on_gpu else 1024
sizes = [largest // 2**k for k in (4, 3, 2, 1, 0)]
arms = [
    lab.arm(f"matmul_{n}", bench.matmul_arm, n, **given)
    for n in show.progress(sizes, what="matmul")
]
products = lab.together(arms, plan=plan)
show.measurements(products)

# %% [markdown]
# The best of several tries is partly luck. So the winners are measured again, by
# themselves: that second result is the one to quote.

# %%
best = max(moved, key=lambda row: row.rate or 0.0)
top = max(products, key=lambda row: row.rate or 0.0)
n = top.settings.get("n", largest)
again = [
    lab.measure(
        "best_memory", bench.memory, best.name, size, plan=plan, **there
    ),
    lab.measure("best_product", bench.matmul, n, plan=plan, **given),
]
show.measurements(again)

# %% [markdown]
# A **derived** ceiling follows from what the driver tells, a **datasheet** one from a
# table, a **measured** one from this machine. A CPU's peak is not known: its clock
# cannot be read reliably. There the ceiling is the highest rate that this machine has
# shown, and it says so.

# %%
clocks = [s.clock_sm_mhz for s in top.states if s.clock_sm_mhz]
how = "the highest rate shown here"
won = zip(again, (best, top), strict=True)
shown = [max(a.rate or 0, b.rate or 0) for a, b in won]
memory = bench.ceiling.memory(gpu)
if not memory.value:
    memory = bench.ceiling.measured_best(shown[0], how=how)
clock = {"clock_mhz": max(clocks, default=None)}
peak = bench.ceiling.arithmetic(gpu, dtype="float32", **clock)
if not peak.value:
    peak = bench.ceiling.measured_best(shown[1], how=how)

# %%
found = {
    "memory": (units.bandwidth(memory.value), str(memory.kind), memory.how),
    "arithmetic": (units.flops(peak.value), str(peak.kind), peak.how),
}
show.Table([(k, *v) for k, v in found.items()], ("ceiling", "", "kind", "how"))

# %% tags=["slide"]
points = [moved[1], *products]
plot.roofline(points, memory=memory, peak=peak)

# %% tags=["nbval-ignore-output"]
lines = []
for row in points:
    bound = fit.bound(fit.intensity(row), memory=memory, peak=peak)
    share = bench.ceiling.share(fit.flop_per_s(row), bound)
    at = units.number(fit.intensity(row))
    lines.append((row.name, at, units.flops(bound.value), share))
columns = ("experiment", "FLOP per byte", "its bound", "share of it")
show.Table(lines, columns, show.flags([*points, *again]))

# %% [markdown]
# On the slope more arithmetic would be free; on the flat part less memory traffic
# would change nothing. No point can lie above the line: where the table says "ceiling
# or measurement wrong", it is one of the two, and you find out which.
#
# ### What follows for buying
#
# Writing text reads every weight once for each token: about one FLOP a byte, far down
# the slope. There a card is as fast as its memory. Upper bounds for a model of seven
# billion weights in float16:

# %%
weights_bytes = 7e9 * 2
names = ("NVIDIA GeForce RTX 3060", "NVIDIA GeForce RTX 4090", "NVIDIA H200")
gb_per_s = [bench.ceiling.card(n)["memory_bandwidth_gb_s"] for n in names]
rates = {n: float(r) * 1e9 for n, r in zip(names, gb_per_s, strict=True)}
rates["this device"] = memory.value or 0.0
show.Table(
    [
        (name, units.bandwidth(r), units.number(r / weights_bytes))
        for name, r in rates.items()
    ],
    ("device", "memory", "tokens a second, at most"),
)

# %%
show.claims("C063")

# %% [markdown]
# More units do not multiply without end either. If a share of the work cannot be
# spread, that share remains (Amdahl's law):

# %%
workers, serial = (2, 16, 1024, 10**9), (0.0, 0.01, 0.1)
show.Table(
    [
        (str(k), *(units.ratio(1 / (s + (1 - s) / k)) for s in serial))
        for k in workers
    ],
    ("workers", "all spread", "1 in 100 serial", "1 in 10 serial"),
)

# %%
show.claims("C086")

# %% [markdown] tags=["slide"]
# ## Traps of units
#
# A link is sold in bits, counted both ways, before its own overhead. You get bytes,
# one way, after it. **Guess**: what is left of the claim of 64 for PCIe 4.0 x16?

# %%
bits = 16e9 * 16  # 16 GT/s on each of 16 lanes, one bit a transfer
raw = bits * 128 / 130 / 8
steps = {
    "both directions added": 2 * bits / 8,
    "one direction": bits / 8,
    "line code taken off: 128 of 130 bits": raw,
    "headers of packets too": bench.ceiling.pcie(4, 16).value,
    "4 lanes instead of 16 (OCuLink)": bench.ceiling.pcie(4, 4).value,
}
columns = ("PCIe 4.0 x16", "a second")
show.Table([(k, units.bandwidth(v)) for k, v in steps.items()], columns)

# %%
traps = {
    "bits taken for bytes": 8,
    "GiB taken for GB": 2**30 / 1e9,
    "both ways taken for one": 2,
    "sparse taken for dense": 2,
    "sums in float16 taken for float32": peaks[-1][2].value / peaks[2][2].value,
}
show.Table(
    [(k, units.ratio(v, 3)) for k, v in traps.items()], ("trap", "off by")
)

# %%
pcie = [
    (g, *(bench.ceiling.pcie(g, k).value for k in (4, 8, 16)))
    for g in (3, 4, 5)
]
show.Table(
    [(f"PCIe {g}.0", *map(units.bandwidth, rates)) for g, *rates in pcie],
    ("link, one direction", "x4", "x8", "x16"),
)

# %%
show.claims("C007", "C008")

# %% [markdown] tags=["slide"]
# ## What crosses the link
#
# Weights once, every batch, every result that you look at. The numbers below are
# CITED: published measurements of other people's machines.
#
# **Guess**: which is faster, Thunderbolt 3 or Thunderbolt 4?

# %%
LINKS = (
    "PCIe 4.0 x16",
    "OCuLink PCIe 4.0 x4",
    "Thunderbolt 4",
    "Thunderbolt 3",
)
columns = ("link", "raw_gbit_s_per_direction", "pcie_tunnel_nominal_gbit_s")
columns += ("h2d_gb_s_min", "h2d_gb_s_max", "d2h_gb_s_max")
shown = (*LINKS, "USB4 v1 40G (Gen3x2)", "Thunderbolt 5")
published = [r for r in facts.table("links") if r["link"] in shown]
show.Table(
    [[r[k] or "n/a" for k in columns] for r in published], columns, "CITED"
)

# %%
show.claims("C021", "C048", "C056", "C077", "C078", "C060")

# %% [markdown]
# Both are the same link: the newer name promises more of it. And whatever hangs on one
# tunnel shares it:

# %%
tunnel = fit.cited_link("Thunderbolt 4", start_s=0.0).bytes_per_s
show.Table(
    [(str(k), units.bandwidth(tunnel / k)) for k in (1, 2, 3)],
    ("cards busy on one tunnel", "left for each"),
    "CITED: Thunderbolt 4, lowest published rate",
)

# %%
show.claims("C059", "C076")

# %% [markdown]
# ### Your link, or the simulated one
#
# The time of a copy is a start and a part for each byte: t = t0 + size / B. Small
# copies pay mostly the start. *Pinned* memory does not move, so the device fetches it
# by itself; from *pageable* memory the driver copies first.

# %%
ways = {"H2D pinned": ("h2d", True), "D2H pinned": ("d2h", True)}
ways["H2D pageable"] = ("h2d", False)
copies = [4 * 2**10 * 4**k for k in range(8)]  # 4 KiB to 64 MiB
curves = {}
for name, (way, pinned) in ways.items():
    how = {"pinned": pinned, **given}
    arms = [
        lab.arm(f"{name} {units.size(s)}", bench.transfer_arm, way, s, **how)
        for s in copies
    ]
    curves[name] = lab.together(arms, plan=plan)
show.measurements(curves["H2D pinned"])

# %%
simulated = bench.simulated_curve("link", copies, seed=seed)
show.measurements(simulated)

# %% tags=["slide"]
shown = curves if gpu.is_gpu else {"H2D": simulated}
plot.link_curves(shown, cited=LINKS)


# %%
def line(rows):
    """The fit t0 + size / B of rows of several sizes; None without times."""
    pairs = [(r.settings["size_bytes"], t) for r in rows for t in r.times_s]
    return bench.fit_link(*zip(*pairs, strict=True)) if pairs else None


fits = {k: line(v) for k, v in curves.items()} | {"SIMULATED": line(simulated)}
found = [
    (units.milliseconds(f.start_s), units.bandwidth(f.bytes_per_s))
    if f
    else ("n/a", "n/a")
    for f in fits.values()
]
lines = [(k, *v) for k, v in zip(fits, found, strict=True)]
show.Table(lines, ("way", "t0 (ms)", "B"))

# %%
planted = fits["SIMULATED"]
small = (1, 4 * 2**10, 64 * 2**10, 2**20)
show.Table(
    [
        (units.size(s), units.percent(planted.start_s / planted.time_s(s)))
        for s in small
    ],
    ("size of the copy", "of its time is only the start"),
    "SIMULATED",
)

# %%
show.claims("C022")

# %% [markdown]
# Wherever t0 is most of the time, no wider link helps, only fewer and larger copies.
# That is why a latency "in percent" says nothing without a size.
#
# ### Idle and under load
# A card at rest may let its link fall to a slower generation. Only the state during a
# copy tells what the link can do.

# %% tags=["nbval-ignore-output"]
states = bench.link_under_load(device=gpu, seed=seed)
before, during = states or (None, None)
print(f"idle: {show.link(before)}; during copies: {show.link(during)}")

# %% [markdown] tags=["slide"]
# ## Break-even: copy, compute, copy back
#
# Your data lies on the host. Two matrices must cross, one comes back: 12 n² bytes for
# 2 n³ FLOP. With rates C of the CPU, F of the GPU and B of the link, and no start, the
# lines cross at n = 6 / (B (1/C - 1/F)). By hand, for the simulated pair:

# %%
C, model = lesson.PROCESSOR.flop_per_s, timing.Model()
F, B = model.flop_per_s, model.link_bytes_per_s
print(f"n = {6 / (B * (1 / C - 1 / F)):.0f} without t0 (SIMULATED)")

# %% [markdown]
# **Predict first.** From how many rows on does the simulated GPU (or yours, if you
# have one) beat the CPU of this machine? Write text with its unit: "500 rows".

# %% tags=["predict"]
guess = ...
lab.answer(lesson.break_even_rows.predict(guess))

# %%
cpu = machine.device("cpu")
arms = [
    lab.arm(f"cpu_{n}", bench.matmul_arm, n, device=cpu, seed=seed)
    for n in lesson.SIZES
]
cpu_rows = [lab.add(r) for r in bench.together(arms, device=cpu, plan=plan)]
show.measurements(cpu_rows)

# %%
stand_in = bench.simulated_curve("matmul", lesson.SIZES, seed=seed)
on_device = fit.Curve.of(products if gpu.is_gpu else stand_in)
mine = fits["H2D pinned"]
start_s = (mine or planted).start_s
fan = [
    fit.Offload(
        name=name,
        product=on_device,
        link=fit.cited_link(name, start_s=start_s),
    )
    for name in LINKS
]
print(f"{len(fan)} links CITED, product {on_device.source}")

# %% tags=["slide", "nbval-ignore-output"]
line_cpu = fit.Curve.of(cpu_rows)
print(show.flags(cpu_rows))
plot.break_even(line_cpu, fan)

# %% [markdown]
# Left of a ring the CPU has finished before the matrices have crossed. The narrower
# the link, the further right the ring; where two links carry the same, their lines
# lie on each other whatever their names are.
#
# A CPU line that is flat on the left, with a flag **busy**, is a machine with other
# work: its threads wait for each other. Close that work and run the cells again.
#
# ### The same by experiment
# A model is a promise. On a GPU the next rows keep it: one copy there, the product,
# one copy back, and the wait. Without a GPU they say so, and the simulated pair
# stands in.

# %%
arms = [
    lab.arm(f"offload_{n}", bench.offload_arm, n, **given) for n in lesson.SIZES
]
offloads = lab.together(arms, plan=plan)
show.measurements(offloads)

# %%
pair = (cpu_rows, offloads) if gpu.is_gpu else lesson.simulated_pair(seed)
show.Table(
    [
        (
            str(n),
            units.milliseconds(a.median_s),
            units.milliseconds(b.median_s),
        )
        for n, a, b in zip(lesson.SIZES, *pair, strict=True)
    ],
    ("n", "CPU (ms)", "copy, compute, copy back (ms)"),
    f"CPU {pair[0][0].source}, offload {pair[1][0].source}",
)

# %% [markdown]
# ### How far off was your guess?

# %% tags=["nbval-ignore-output"]
offload = offloads if gpu.is_gpu else pair[1]
known = [row for row in offload if row.available]
crossing = fit.break_even(line_cpu, fit.Curve.of(known)) if known else None
print(f"CPU {line_cpu.source}, GPU {offload[0].source}: from n = {crossing}")
lab.answer(lesson.break_even_rows.predict(guess, crossing))

# %% [markdown]
# So "how many times faster is a GPU" has no answer without a size, a link and a CPU.
# One claim says fifty times and gives the GPU's figures (CITED in its correction).
# What CPU must it have had in mind?

# %%
for kind, images in {"float32": 367, "AMP": 1200}.items():
    print(f"V100, {kind}: a CPU of {units.number(images / 50)} images/s")

# %%
show.claims("C001", "C003", "C087")

# %% [markdown] tags=["slide"]
# ## Negative control: when the link must not matter
#
# If the picture is right, it must also be able to say "no difference". Data that stay
# on the device cross once and are used many times. **Guess**: what happens to the fan
# when each crossing serves ten thousand products?

# %%
product = fit.Curve.of(stand_in)
control = fit.Offload(name="SIMULATED", product=product, link=planted)
uses = (1, 10, 100, 1000, 10_000)
table = [
    (str(k), *(replace(control, uses=k).link_share(n) for n in (256, 4096)))
    for k in uses
]
show.Table(
    [
        (k, units.percent(small), units.percent(large))
        for k, small, large in table
    ],
    ("products for each crossing", "on the link, n = 256", "n = 4096"),
    "SIMULATED",
)

# %% tags=["nbval-ignore-output"]
plot.break_even(line_cpu, [replace(link, uses=10_000) for link in fan])

# %% [markdown]
# The fan closes: with weights that stay, a narrow link costs next to nothing, and that
# is the case for an eGPU. A larger matrix alone helps slowly: its share falls with
# n, while reuse divides it.

# %% [markdown] tags=["slide"]
# ## Will it fit? Parameters times bytes
#
# Training with AdamW keeps for each parameter in float32: the weight, its gradient
# and two running means. In mixed precision a copy in two bytes joins them. **Guess**:
# how many bytes is that?

# %%
layer = torch.nn.Linear(1000, 1000)
optimizer = torch.optim.AdamW(layer.parameters())
layer(torch.ones(1, 1000)).sum().backward()
_ = optimizer.step()
kept = [t for p in layer.parameters() for t in (p, p.grad)]
for state in optimizer.state.values():
    kept += [state["exp_avg"], state["exp_avg_sq"]]
parameters = sum(p.numel() for p in layer.parameters())
per_parameter = sum(t.numel() * t.element_size() for t in kept) / parameters
print(f"{parameters} parameters, {per_parameter:g} bytes each")

# %%
models = {"BERT-base": 0.11e9, "7 billion": 7e9, "GPT-3": 175e9}
show.Table(
    [
        (k, *(units.memory(p * b) for b in (2, 16, 18)))
        for k, p in models.items()
    ],
    ("model", "weights, float16", "AdamW, float32", "AdamW, mixed"),
    "before activations; 18 = 16 + a copy of the weights in 2 bytes (C004)",
)

# %%
rows = [r for r in facts.table("gpus") if r["memory_gb"]]
holds = [r["name"] for r in rows if float(r["memory_gb"]) * 1e9 >= 2 * 175e9]
print(f"cards of {len(rows)} that hold the weights of GPT-3: {len(holds)}")

# %%
show.claims("C004", "C005", "C052")

# %% [markdown]
# "Large models need at least so much" is no rule: between the first and the last line
# lie more than a thousand times. Multiply before you buy.

# %% [markdown] tags=["slide"]
# ## Power: what the box has left for the card
#
# The supply of an enclosure also charges the laptop and feeds the ports. Type in your
# own numbers. **Guess**: which of the cards below may stay?

# %%
supply_w, charging_w, ports_w = 650, 100, 0  # Razer Core X: claim C020
left_w = fit.left_for_card_w(supply_w, charging_w=charging_w, ports_w=ports_w)
names = ("RTX 3060", "RTX 3080", "RTX 4090", "RTX 5090")
needs = {n: bench.ceiling.card(f"NVIDIA GeForce {n}")["tdp_w"] for n in names}
show.Table(
    [
        (n, units.power(float(w)), "yes" if float(w) <= left_w else "no")
        for n, w in needs.items()
    ],
    ("card", "its power", "stays within what is left"),
    f"left for the card: {units.power(left_w)}",
)

# %%
show.claims("C020", "C057")

# %% [markdown] tags=["slide"]
# ## Exercise 1: bytes and FLOP of three layers
#
# For each layer: the **GFLOP** of one forward call, and the **GB** (10⁹ bytes) that
# cross the link when input and weights lie on the host and the output is wanted there.
# Write the arithmetic, not only its result.

# %%
lesson.layers()

# %% tags=["exercise"]
answer = {"linear": ..., "relu": ..., "conv": ...}  # pairs: (GFLOP, GB)
lab.answer(lesson.layer_costs(answer))

# %% tags=["solution"]
x, w, pixels = 256 * 4096, 4096 * 4096, 64 * 64 * 56 * 56
answer = {
    "linear": (2 * 256 * w / 1e9, (x + w + x) * 4 / 1e9),
    "relu": (pixels / 1e9, (pixels + pixels) * 2 / 1e9),
    "conv": (
        2 * pixels * 64 * 9 / 1e9,
        (pixels + 64 * 64 * 9 + pixels) * 2 / 1e9,
    ),
}
lab.answer(lesson.layer_costs(answer))

# %% [markdown]
# ## Exercise 2: the smallest product that pays
#
# From the table "copy, compute, copy back" above: the smallest n from which the detour
# over the link beats the CPU, at this and at all larger sizes.

# %% tags=["exercise"]
answer = ...  # one of the n in the table
lab.answer(lesson.smallest_product(answer, cpu=pair[0], offload=pair[1]))

# %% tags=["solution"]
answer = min(lesson.winners(*pair), default=lesson.SIZES[-1])
lab.answer(lesson.smallest_product(answer, cpu=pair[0], offload=pair[1]))

# %% [markdown]
# ## Exercise 3: what limits these four runs?
#
# Four runs of the simulated device, done one piece after the other. Divide each
# amount by its rate; the largest time is the limit: "link", "memory", "compute" or
# "launch".

# %%
lesson.runs(seed)

# %%
show.Table(
    [
        ("link", units.bandwidth(model.link_bytes_per_s)),
        ("memory", units.bandwidth(model.memory_bytes_per_s)),
        ("compute", units.flops(model.flop_per_s)),
        ("launch", f"{units.milliseconds(model.launch_s)} ms each"),
    ],
    ("limit", "of the simulated device"),
)

# %% tags=["exercise"]
answer = {"a": ..., "b": ..., "c": ..., "d": ...}
lab.answer(lesson.four_limits(answer))

# %% tags=["solution"]
answer = {"a": "memory", "b": "launch", "c": "link", "d": "compute"}
lab.answer(lesson.four_limits(answer))

# %% [markdown] tags=["slide"]
# ## Summary
#
# - FLOP per byte decide whether memory or arithmetic is the limit.
# - A copy costs a start and its bytes. A link is bits, one way, after its overhead.
# - The GPU wins from a size on; a narrower link moves that size up; data that stay on
#   the device make the link unimportant.
# - A ceiling is derived, from a data sheet, measured, or not known. Say which.

# %% tags=["nbval-ignore-output"]
path = lab.close()
print(f"Your record: {'/'.join(path.absolute().parts[-4:])}")

# %%
width = {"server": (26e9, 12e-6), "slow": (1e9, 100e-6)}  # SIMULATED links
reach = {}
host = fit.Curve.of(lesson.simulated_pair(seed)[0])
for name, (rate, start) in width.items():
    link = timing.Model(link_bytes_per_s=rate, link_start_s=start)
    rows = bench.simulated_curve("offload", lesson.SIZES, model=link, seed=seed)
    reach[name] = fit.break_even(host, fit.Curve.of(rows), most=256)
print(f"slow link, up to n = 256: {reach['slow'] or 'no crossing'}")

# %%
whole = lesson.simulated_pair(seed)[1]
off = [abs(control.time_s(r.settings["n"]) / r.median_s - 1) for r in whole]
grows = all(a.median_s < b.median_s for a, b in itertools.pairwise(whole))

# %% tags=["verdict", "nbval-check-output"]
record = store.load(path)
saved, measured = record.measurements, lab.session.measurements
start_off = abs(planted.start_s / (model.link_start_s + model.gap_s) - 1)
rate_off = abs(planted.bytes_per_s / model.link_bytes_per_s - 1)
checks = {
    "every sample on disk is as it was measured": all(
        a.times_s == b.times_s for a, b in zip(saved, measured, strict=True)
    ),
    "47 experiments are on record": len(saved) == 47,
    "each row is timed or says why": all(m.times_s or m.reason for m in saved),
    "nothing simulated is called measured": not record.mislabelled(),
    "triad does 1 FLOP for 6 bytes": fit.intensity(moved[1]) == 1 / 6,
}
show.verdict("01_hardware_basics, the record", checks)

# %% tags=["verdict", "nbval-check-output"]
exact = {
    "RTX 3080, float32, by formula: 29.8": round(by_hand / 1e12, 1) == 29.8,
    "RTX 4090, float16, PyTorch: 165.2": round(half / 1e12, 1) == 165.2,
    "PCIe 4.0 x16, one way, raw: 31.5": round(raw / 1e9, 1) == 31.5,
    "AdamW in float32 keeps 16 bytes a parameter": per_parameter == 16,
    "no card of the table holds GPT-3": not holds,
    "a box with 650 charging 100 leaves 550": left_w == 550,
}
show.verdict("01_hardware_basics, exact numbers", exact)

# %% tags=["verdict", "nbval-check-output"]
seeded = {
    "simulated server link: the GPU wins below n = 256": bool(reach["server"]),
    "simulated slow link: it does not up to n = 256": reach["slow"] is None,
    "simulated times grow with n": grows,
    "the fit finds the planted start and rate": max(start_off, rate_off) < 0.02,
    "the model agrees with the simulated device": off[-1] < 0.02,
    "with 10000 uses the link takes under 1 in 100": table[-1][2] < 0.01,
}
show.verdict("01_hardware_basics, seeded", seeded)

# %% [markdown]
# ## On your eGPU, check
# - that the link during copies shows the generation and width you paid for;
# - that the H2D curve flattens inside the band of your link in `data/links.csv`;
# - where your crossing lies with the cable you use, and again with the shorter one;
# - that supply minus charging and ports covers the card, before a long run does.
