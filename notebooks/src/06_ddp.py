# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown] tags=["slide"]
# # 06 DDP: what does a second device give?
#
# Afterwards you can
# - say what is copied, what is sharded and what is reduced when several devices train;
# - start several processes, and find the rank that failed first when one does;
# - compute the share of communication in a step from bytes and the link;
# - scale the batch honestly, and know when a second GPU on a thin link loses.
#
# No GPU? Two processes on the CPU talk over the same interface (gloo instead of NCCL).
# Values, counts and bytes are the same as on GPUs; links are CITED or SIMULATED.

# %% tags=["parameters"]
device: str = "auto"  # auto, cpu, cuda, cuda:1, rocm, xpu, mps
profile: str = "quick"  # quick, class, full
seed: int = 0  # of all random inputs

# %%
import inspect

import psutil

from gpu_lab import bench, exercises, facts, fit, hardware, plot, show, store
from gpu_lab import units
from gpu_lab.bench import ddp
from gpu_lab.compare import paired

lesson = exercises.ddp

# %% [markdown]
# ## Which machine is this?

# %% tags=["nbval-ignore-output", "slide"]
machine = hardware.detect()
gpu = hardware.choose(machine, device)
lab = store.open_session("06_ddp", machine, gpu, profile=profile, seed=seed)
show.passport(machine, gpu, crashed=lab.crashed)

# %% [markdown] tags=["slide"]
# ## What crosses the link in each step?
#
# DistributedDataParallel (DDP) keeps the **whole model on every device** and gives each
# device another part of the batch. After the backward pass the gradients are averaged
# over all devices, so that all of them make the same step. Nothing else crosses.
#
# This network is trained, in float32:

# %%
lesson.layers()

# %% [markdown]
# **Predict first.** How many MB (10⁶ bytes) of gradients does one step average? Write
# text: the number, then MB.

# %% tags=["predict"]
guess = ...
lab.answer(lesson.message_mb.predict(guess))

# %% [markdown]
# **And a second guess**: two devices, each with its own batch, a step whose gradients
# are sent within about the time of its backward pass. What is left of "twice as fast"?
# Efficiency is speedup over devices. Write text: the number, then %.

# %% tags=["predict"]
guess_two = ...
lab.answer(lesson.second_device.predict(guess_two))

# %% [markdown] tags=["slide"]
# ## One launch
#
# Each device gets a process of its own, a **rank**. `torchrun` starts them, tells each
# one its number, and ends all of them when one fails. From a notebook it runs as a
# process: nothing of this kernel is copied into the ranks, so it does not matter that
# the kernel has used a GPU, and no function of a cell has to be found again.
#
# **Guess**: two ranks start, load PyTorch and do thirteen experiments. How long?

# %%
plan = {k: dict(v) for k, v in facts.settings("ddp")["plan"].items()}
rounds = {"quick": 12, "class": 30, "full": 60}[profile]
for name in ("all_reduce", "scaling"):
    plan[name]["rounds"] = rounds
" ".join(ddp.command({}, ranks=2, device="cpu")[1:-2])

# %% tags=["slide"]
found = ddp.launch(plan, device=gpu, ranks=2, limit_s=110, tell=print)
for experiment in found.values():
    for row in experiment["rows"].values():
        lab.add(row)

# %% [markdown]
# The port is chosen freely, the address is that of this machine itself, and there is a
# hard limit of time. What each rank does first:

# %%
print(inspect.getsource(ddp.join))

# %%
show.claims("C105", "C107", "C106")

# %% [markdown]
# C105: the device is set **before** the group is joined, and torchrun has set the
# variables. C107: `device_ids` names the one device of the module on a GPU, and must be
# left out on a CPU. C106: the whole model is on each rank; the sections on sharding
# show the alternative.

# %% [markdown] tags=["slide"]
# ## All-reduce: everybody gets the sum
#
# First the value, then the time. Two rates are in use, and mixing them up is a factor:
# *algbw* is bytes over time; *busbw* is what each rank has to send, 2 (n - 1) / n times
# as much. The slowest rank counts.
#
# **Guess**: from which size on does the rate hardly grow any more?

# %%
reduced = list(found["all_reduce"]["rows"].values())
factor, gb_s = ddp.bus_factor(2), units.bandwidth
table = [
    (
        units.size(int(r.work)),
        units.milliseconds(r.median_s),
        *(gb_s(r.rate), gb_s(factor * r.rate)),
    )
    for r in reduced
]
columns = ("size", "time (ms)", "algbw", "busbw")
show.Table(table, columns, "2 ranks; the sums were right before timing")

# %% [markdown]
# ### By hand: a ring
# How can n ranks add up without one of them getting everything? Each one owns a piece.

# %% tags=["slide"]
print(inspect.getsource(ddp.ring_all_reduce))

# %%
ring = found["ring"]
wanted = factor * ring["size"]
print(f"bytes sent by each rank: {ring['sent']}, wanted {wanted:.0f}")
print(f"error against dist.all_reduce: {ring['error']:.1f}")

# %%
show.claims("C029")

# %% [markdown]
# Each rank sends 2 (n - 1) / n of the tensor, however many ranks there are: that is
# why the ring scales. It needs 2 (n - 1) messages one after the other, so for small
# tensors NCCL takes a tree instead, by itself. Forcing it is for debugging.

# %% [markdown] tags=["slide"]
# ## Same gradients?
#
# DDP on two halves of a batch against one process with the whole batch. And two ways
# to get it wrong: halves of different sizes, and a loss that is summed.
#
# **Guess**: by which factor is a summed loss off with two ranks?

# %%
same = found["gradients"]
print(f"equal parts of the batch: relative error {same['error']:.1f}")
print(f"summed loss: {same['sum']:.4g} times too small")
uneven_off = same["uneven"] > 0.1
print(f"parts of different sizes: more than 10 % off: {uneven_off}")

# %%
show.claims("C030", "C073", "C011")

# %% [markdown]
# DDP **averages over ranks**, each with the same weight. So the loss must be a mean,
# and the parts must be of one size; the learning rate was made for the whole batch:
# with n ranks and the old batch on each, the batch is n times as large. Batch norm
# sees only its own part, unless it is a `SyncBatchNorm`.

# %% [markdown] tags=["slide"]
# ## Buckets: how often, and how much?
#
# Gradients are sent in buckets while the backward pass still runs. A *communication
# hook* is called for each bucket; ours counts bytes.
#
# **Guess**: four micro-batches and one step. How many times is the model sent?

# %%
sent = found["messages"]
ways = ("one bucket", "small buckets", "static graph", "no_sync", "float16")
show.Table(
    [(way, *(f"{len(m)}: {sum(m)} bytes" for m in sent[way])) for way in ways],
    ("way", "messages of the first step", "messages of the third step"),
    "counted by a hook; small buckets: 1 MiB; no_sync: 4 micro-batches a step",
)

# %% [markdown]
# The first step is special: DDP learns in which order gradients come, and builds its
# buckets again. `no_sync` sends once for four micro-batches. A hook that compresses to
# float16 halves the bytes on the wire, for whoever can spare the bits.
#
# ### A layer that was never asked
# One layer gets no gradient. What does the second step say?

# %%
cures = [(cure, text) for cure, text in sent["unused"].items()]
show.Table(cures, ("cure", "the second step"))

# %% [markdown]
# Mend the model first; `find_unused_parameters` walks the graph in each step, and
# `static_graph` is a promise that every step uses the same layers.
#
# ### How far off was your first guess?

# %%
counted = lesson.counted(sent)
as_predicted = counted == lesson.right_bytes()
once = sent["no_sync"][1] == sent["small buckets"][1]
lab.answer(lesson.message_mb.predict(guess, counted["float32"] / 1e6))

# %% [markdown] tags=["slide"]
# ## Hidden behind the backward pass
#
# A trace of one step: eight layers, each with its bucket. While layer 1 still computes,
# the gradients of layer 8 travel. These layers *sleep* for a set time, so that two
# ranks on few cores do not disturb each other.
#
# **Guess**: how many of the messages start before the last layer has ended?

# %% tags=["nbval-ignore-output"]
spans = found["overlap"]
start, end = spans["backward"][0][0], spans["backward"][-1][1]
hidden = [a for a, _ in spans["all_reduce"] if a < end]
print(f"{len(hidden)} of {len(spans['all_reduce'])} messages start before")
print(f"the backward pass ends, {units.seconds(end - start)} after its start.")

# %% [markdown]
# Only the last bucket has nothing left to hide behind. Nothing can hide behind the
# forward pass: there are no gradients yet. So
#
# **step = forward + max(backward, messages) + what the first bucket cannot hide**.

# %% [markdown] tags=["slide"]
# ## Scaling: measured, and by the law
#
# One rank alone and two under DDP, in the same rounds, with the same batch on each.

# %%
rows, link = found["scaling"]["rows"], fit.link_of(reduced)
alone, whole = rows["first alone"], found["scaling"]["bytes"]
buckets, table = {"one bucket": 1, "small buckets": 8}, []
for way, number in buckets.items():
    pair = paired(alone, rows[way])
    law_s = fit.Step(alone.median_s, whole, whole / number).time_s(link, 2)
    times_s = (alone.median_s, rows[way].median_s, law_s)
    shares = map(units.percent, (pair.speedup, pair.low, pair.high))
    table.append((way, *map(units.milliseconds, times_s), *shares))
columns = ("alone (ms)", "DDP (ms)", "law (ms)", "efficiency", "from", "to")
show.Table(table, ("way", *columns), "MEASURED; law: from all_reduce")

# %% tags=["slide"]
names = ("PCIe 4.0 x16", "OCuLink PCIe 4.0 x4", "Thunderbolt 4")
t0 = link.start_s
links = {f"{k}, CITED": fit.cited_link(k, start_s=t0) for k in names}
for name, rate in {"10 Gb/s": 1.25e9, "1 Gb/s": 0.125e9}.items():
    links[f"{name}, SIMULATED"] = bench.LinkFit(t0, rate)
here = paired(alone, rows["small buckets"])
law = fit.Step(found["scaling"]["compute_s"], whole, whole / 8)
plot.scaling_fan(law, links, here=here)

# %% [markdown]
# Read it from the right: behind a wide link eight devices are nearly eight; behind a
# thin one the lines bend, and below one a second device **loses**. Two docks on one
# computer send through the host's memory, and two cards in one dock share its lanes.
#
# ### How far off was your second guess?

# %% tags=["nbval-ignore-output"]
share = 100 * here.speedup
lab.answer(lesson.second_device.predict(guess_two, share))

# %%
ways = ("small buckets", "float16", "4 micro-batches")
times = {way: rows[way].median_s for way in ways}
times["4 micro-batches"] /= 4  # for one of them
show.Table(
    [(way, units.milliseconds(t)) for way, t in times.items()],
    ("way", "time of one batch on each rank (ms)"),
    "MEASURED. They win on a narrow link; where nothing waits they cannot.",
)

# %% [markdown] tags=["slide"]
# ### "Three times as fast with four laptops"
# A claim without a source. What would its network have to carry? SIMULATED: gradients
# of BERT-base (0.11 billion numbers in float32), half a second of computing, 4 devices.

# %%
bert = fit.Step(0.5, 4 * 0.11e9, 25 * 2**20)
networks = {"1 Gb/s": 0.125e9, "10 Gb/s": 1.25e9, "40 Gb/s": 5e9}
rates = {k: bench.LinkFit(1e-4, v) for k, v in networks.items()}
speedups = {k: bert.speedup(v, 4) for k, v in rates.items()}
show.Table(
    [(k, units.ratio(v)) for k, v in speedups.items()],
    ("network", "speedup of 4"),
    "SIMULATED",
)

# %%
show.claims("C074", "C090", "C055", "C053")

# %%
show.claims("C096", "C097", "C064", "C039")

# %% [markdown]
# Topology in words: cards that can reach each other's memory (NVLink, or a PCIe switch
# with peer access) leave the host out; all others go through host memory; other hosts
# through a network. The narrowest hop on the way sets the rate. Say of every rate
# whether it counts one direction or both.

# %% [markdown] tags=["slide"]
# ## Unequal devices: internal and external
#
# The last rank now computes three times as slowly, like an older card, or one that is
# hot. **Guess**: how long does the step of both take?

# %%
rows = found["unequal"]["rows"]
arms = ("first alone", "last alone", "small buckets")
show.Table(
    [(arm, units.milliseconds(rows[arm].median_s)) for arm in arms],
    ("who", "time of a step (ms)"),
    f"{rows['last alone'].source}; the last row is both under DDP",
)

# %% tags=["nbval-ignore-output"]
slow = rows["small buckets"].time_ratio(rows["last alone"])
print(f"DDP takes {units.ratio(slow)} the time of the slower device alone.")

# %% [markdown]
# The slow one sets the pace, and the fast one waits. DDP does not balance (C030): give
# the slower device a smaller part and weigh the losses, or leave it out.

# %% [markdown]
# ### DataParallel, the older way
# One process, threads, and one card that does everything twice: in each step it sends
# all parameters to the others and collects all gradients.

# %%
show.measurements(found["data_parallel"]["rows"].values())

# %%
ranks = (2, 4, 8)
rows_sent = [
    (str(n), f"{2 * (n - 1)}", f"{ddp.bus_factor(n):g}") for n in ranks
]
columns = ("cards", "DataParallel, first card", "DDP, each card")
show.Table(rows_sent, columns, "sizes of the model sent in one step")

# %% [markdown] tags=["slide"]
# ## Sharding: what need not be copied
#
# Adam keeps four numbers for each parameter. ZeRO shards them in three stages; FSDP2
# (`fully_shard`) does stages 2 and 3. **Guess**: which stage saves most?

# %%
sharded, parameters = found["sharding"], 4 * (256 * 256 + 256)
parts, table, off = ("parameters", "gradients", "optimizer"), [], []
for stage, name in enumerate(ddp.STAGES):
    held = sharded[name][0]
    law = fit.zero_bytes(stage, parameters=parameters, ranks=2)
    off += [abs(held[part] / law[part] - 1) for part in parts]
    total = sum(law.values())
    table.append((name, *(str(held[p]) for p in parts), f"{total:.0f}"))
columns = ("what", *parts, "formula, all three")
show.Table(table, columns, "bytes on rank 0 of 2, counted")

# %%
show.claims("C131", "C134")

# %%
big = {str(n): fit.zero_bytes(3, parameters=175e9, ranks=n) for n in (1, 8, 64)}
show.Table(
    [(n, units.memory(sum(held.values()))) for n, held in big.items()],
    ("cards", "each, stage 3, Adam in float32"),
    "175 billion parameters, before activations",
)

# %% [markdown]
# Sharding divides what lies on a card, not the sum over all cards, and it sends more:
# parameters are collected again in each pass.
#
# ### Split layers and stages, in short
# Tensor parallelism splits the matrices, a pipeline puts layers on different devices.

# %%
split, piped = found["tensor_parallel"], found["pipeline"]
print(f"split layers: error {split['error']:.1f} against the dense ones")
print(f"bytes of weights: dense {split['dense']}, split {split['split']}")
print(f"pipeline: error {piped['error']:.1f}")
print(f"idle share with 4 micro-batches: {units.percent(piped['idle share'])}")

# %%
show.claims("C119")

# %% [markdown]
# Split layers send activations in every layer, so they want the fastest link there is,
# not a cable. A pipeline sends little, and waits at its ends.

# %% [markdown] tags=["slide"]
# ## When a rank fails
#
# One rank raises, all others wait for it, and what you see is usually the *last*
# consequence. **Guess**: which of the two ranks will speak first?

# %%
try:
    ddp.launch({"fault": {}}, device=gpu, ranks=2, limit_s=60)
except ddp.LaunchFailed as error:
    first_cause = str(error)
print(first_cause)

# %% [markdown]
# The launcher collects what every rank says, ends them all, and shows the first cause.
# Two more ways to find the culprit: a barrier that names who is late, and checks of
# every collective (`TORCH_DISTRIBUTED_DEBUG=DETAIL`), here with two shapes.

# %%
named = found["faults_named"]
late_rank = (
    "rank 1" in named["late"].lower() or "ranks 1" in named["late"].lower()
)
shapes = "mismatch" in named["mismatch"].lower()
print(f"the late rank is named: {late_rank}, the shapes are named: {shapes}")

# %%
show.claims("C125", "C110", "C108")

# %% tags=["nbval-ignore-output"]
show.claims("C126")

# %%
variables = facts.settings("ddp")["variables"]
show.Table(
    [(v["name"], v["does"], v["instead_of"] or "-") for v in variables],
    ("variable", "does", "not"),
    "first find the rank that is late; a longer time-out cures nothing else",
)

# %% [markdown] tags=["slide"]
# ## Negative control: one process under DDP
#
# A group of one has nobody to average with. Its losses must be those of plain training,
# to the last bit. **Guess**: are they?

# %%
control = found["control"]
bit_equal = control["plain"] == control["ddp"]
print(f"{len(control['ddp'])} steps, bit-equal losses: {bit_equal}")

# %% [markdown] tags=["slide"]
# ## Exercise 1: bytes of a step
#
# For the network at the top: how many **bytes** are reduced in one step, in float32, and
# with a hook that sends float16; and how many for each micro-batch when four of them
# share a step (float32, `no_sync`)? The check asks the hook.

# %%
lesson.layers()

# %% tags=["exercise"]
answer = {"float32": ..., "float16": ..., "micro-batch": ...}
lab.answer(lesson.step_bytes(answer, messages=sent))

# %% tags=["solution"]
numbers = 2 * (512 * 512 + 512) + 512 * 10 + 10  # layer 0 is frozen
answer = {
    "float32": 4 * numbers,
    "float16": 2 * numbers,
    "micro-batch": 4 * numbers / 4,
}
lab.answer(lesson.step_bytes(answer, messages=sent))

# %% [markdown] tags=["slide"]
# ## Exercise 2: three logs
#
# Three runs on two ranks. All ended without an error, and each has a fault: "no sampler
# epoch", "same data on all ranks", "metrics of rank 0 only" (or "no fault").

# %%
lesson.log("a")

# %%
lesson.log("b")

# %%
lesson.log("c")

# %% tags=["exercise"]
answer = {"a": ..., "b": ..., "c": ...}
lab.answer(lesson.three_logs(answer))

# %% tags=["solution"]
answer = {
    "a": "same data on all ranks",
    "b": "metrics of rank 0 only",
    "c": "no sampler epoch",
}
lab.answer(lesson.three_logs(answer))

# %% [markdown] tags=["slide"]
# ## Summary
#
# - DDP copies the model, splits the batch, averages gradients: bytes = parameters that
#   learn x bytes of a number, once a step.
# - step = forward + max(backward, messages) + what the first bucket cannot hide.
# - Fewer steps (`no_sync`), fewer bits (a hook), a larger batch: that helps a thin link.
# - The slowest rank sets the pace. Sharding saves memory and costs messages.
# - When ranks hang, find the one that is late.

# %% tags=["nbval-ignore-output"]
path = lab.close()
print(f"Your record: {'/'.join(path.absolute().parts[-4:])}")

# %% tags=["verdict", "nbval-check-output"]
record = store.load(path)
saved = record.measurements
checks = {
    "19 experiments are on record": len(saved) == 19,
    "each row is timed or says why": all(m.times_s or m.reason for m in saved),
    "every all-reduce was right before it was timed": len(reduced) == 4,
    "nothing simulated is called measured": not record.mislabelled(),
    "no process of a launch is left": not psutil.Process().children(),
    "the first cause is named": "rank 1 failed first" in first_cause,
}
show.verdict("06_ddp, the record", checks)

# %% tags=["verdict", "nbval-check-output"]
exact = {
    "the ring sends 2 (n - 1) / n of the bytes": ring["sent"] == [wanted] * 2,
    "the ring by hand equals all_reduce": ring["error"] < 1e-6,
    "DDP's gradients equal those of one process": same["error"] < 1e-6,
    "a summed loss is off by the number of ranks": abs(same["sum"] - 2) < 1e-5,
    "bytes on the wire are those of the formula": as_predicted,
    "no_sync sends once for four micro-batches": once,
    "an unused layer stops the second step": "finished" in cures[0][1],
    "bytes of each stage within 1 in 100": max(off) < 0.01,
    "split layers equal dense ones": split["error"] < 1e-5,
    "the pipeline equals the whole network": piped["error"] < 1e-5,
    "one process under DDP equals plain training": bit_equal,
}
show.verdict("06_ddp, exact", exact)

# %% [markdown]
# ## On your eGPU, check
# - internal and external card together: the slower one sets the pace, so time each one
#   alone first;
# - the efficiency with `no_sync` before you buy a second dock: it is the cheapest cure;
# - peer access (`torch.cuda.can_device_access_peer`): without it all gradients go through
#   the memory of the host, and over the cable twice.
