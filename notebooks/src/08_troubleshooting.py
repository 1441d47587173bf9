# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown] tags=["slide"]
# # 08 Troubleshooting: from what you see to the next step
#
# Afterwards you can
# - go from a symptom to the first thing to look at, and leave the rest alone;
# - read an out-of-memory message, and choose between four cures;
# - collect a report that others can use and that names nobody;
# - say what is dangerous to try, and what to do instead.
#
# This notebook works with the GPU dead: its cases are recorded texts, and it is
# `gpu_lab.doctor` that reads them. With a GPU the same tree is for your machine.

# %% tags=["parameters"]
device: str = "auto"  # auto, cpu, cuda, cuda:1, rocm, xpu, mps
profile: str = "quick"  # quick, class, full
seed: int = 0  # of all random inputs

# %%
import importlib.util
import os
import re
import tempfile
from pathlib import Path

import torch

from gpu_lab import doctor, exercises, facts, hardware
from gpu_lab import plot, redact, show, store, timing, units
from gpu_lab.bench import memory_clinic

clinic = facts.settings("clinic")
lesson = exercises.troubleshooting
torch.set_num_threads(1)  # on a busy CPU more of them wait for each other

# %% [markdown]
# ## Which machine is this?

# %% tags=["nbval-ignore-output"]
machine = hardware.detect()
gpu = hardware.choose(machine, device)
lab = store.open_session(
    "08_troubleshooting", machine, gpu, profile=profile, seed=seed
)
show.passport(machine, gpu, crashed=lab.crashed)

# %% [markdown] tags=["slide"]
# ## The tree
#
# Five symptoms, each with a few questions. Ask them from the top and stop at the first
# "no": what comes below it is a consequence, and mending it mends nothing. The page
# prints well.

# %% tags=["slide"]
plot.tree(clinic["tree"])

# %% [markdown]
# ### What does this machine say?
# `gpu-lab doctor` asks the same questions of the machine at hand. Nothing is run on the
# device but the six rungs of the ladder, and those in a process of their own.

# %% tags=["nbval-ignore-output"]
ladder = hardware.live_ladder(machine, gpu)
lines = doctor.check(machine, [ladder])
rows = [
    (x.what, redact.text(x.found), ", ".join(d.id for d in x.diagnoses) or "-")
    for x in lines
]
show.Table(
    rows, ("looked at", "found", "diagnoses"), show.ladder_sentence(ladder)
)

# %% [markdown]
# A diagnosis has a severity: **info** (nothing to repair), **warning** (works, but slow
# or fragile), **error** (this job cannot run) and **critical** (hardware or driver).
# What has not failed yet is a warning at most.
#
# ## The clinic
#
# Cases that other people met, from public threads, each with its source. The function
# below shows what the doctor says first about each text of one symptom.

# %%
texts = {case["name"]: case["text"] for case in clinic["cases"]}


def ward(symptom):
    rows = []
    for case in clinic["cases"]:
        if case["symptom"] == symptom:
            first = doctor.explain(case["text"])[0]
            told = (first.severity, first.title, first.steps[0])
            rows.append((case["name"], *told, case["source"]))
    columns = ("case", "severity", "what it is", "first step", "source")
    return show.Table(rows, columns, "Texts are CITED.")


# %% [markdown] tags=["slide"]
# ## It is not there
#
# The enclosure is on, its name is in the list of the system, and no card appears.

# %% tags=["slide"]
print(texts["enclosure listed, card missing"])

# %% [markdown]
# **Guess**: cable, driver, or permission?

# %% tags=["slide"]
ward("not there")

# %% [markdown]
# Five reasons with one symptom: `is_available()` is False in all of them. All of them
# lie below torch, so another torch changes nothing. After sleep the card may be listed
# and still be lost to the running process: restart the kernel before anything else.
#
# ### Memory window and driver, as articles tell it

# %%
show.claims("C023", "C037", "C102", "C103")

# %% [markdown]
# Before you remove anything, read: the version of the module in memory against that of
# the libraries on disk. Where they differ, a restart is the cure, and no removal:

# %%
doctor.examine(texts["updated, not restarted"]).diagnoses[0].steps

# %% [markdown] tags=["slide"]
# ## An error stops it
#
# **Guess** first: a new card, a driver that lists it, `is_available()` is True, and the
# first kernel fails. Driver, wheel or card?

# %% tags=["slide"]
ward("error")

# %% [markdown]
# ### The batch that fails on the GPU, on the CPU
# A kernel reports late and without a line. The same batch on the CPU names the fault.

# %%
scores, label = torch.zeros(1, 10), torch.tensor([10])
try:
    torch.nn.functional.cross_entropy(scores, label)
except IndexError as error:
    print(f"IndexError: {error}")

# %% [markdown]
# Where the CPU is no way out, make the launches wait for each other, for this one run:

# %%
show.claims("C109")

# %% [markdown] tags=["slide"]
# ### Numbers of errors
# **Guess**: what do the errors 11 and 77 say?

# %% tags=["slide"]
codes = clinic["codes"]
rows = [
    (number, codes["names"].get(number, codes["unknown"]), where)
    for number, where in sorted(codes["look"].items(), key=lambda x: int(x[0]))
]
show.Table(rows, ("number", "name", "look"), f"CITED: {codes['source']}.")

# %%
show.claims("C121", "C122", "C124")

# %% [markdown]
# 11 and 77 are no errors of today, and when they were, they meant a bad argument and a
# bad address. An exit code of -11 is the signal of a segmentation fault, another thing.
# If your torch came with CUDA's headers, here is what they say:

# %% tags=["nbval-ignore-output"]
package = importlib.util.find_spec("nvidia")
folders = list(package.submodule_search_locations) if package else []
headers = [p for f in folders for p in Path(f).glob("*/include/driver_types.h")]
header = headers[0].read_text(errors="replace") if headers else ""
numbers = dict(re.findall(r"(cudaError\w+) *= *(\d+)", header))
same = all(numbers.get(name) == n for n, name in codes["names"].items())
print(f"{len(numbers)} errors in the header here")
print(f"All of the table as there: {same if numbers else 'n/a'}")

# %% [markdown] tags=["slide"]
# ## Out of memory
#
# Six situations share the same first words. The numbers behind them tell which it is,
# and each has another cure.

# %% tags=["slide"]
ward("memory")

# %% [markdown]
# Read in this order: **wanted** against the **capacity** (one request too large?);
# capacity minus free minus PyTorch's own (somebody else?); reserved but **unallocated**
# against wanted (fragments?); what is left is a model that is too big.
#
# ### A pool that fragments
# PyTorch's allocator in small, SIMULATED, on a card with room for four hundred units.
# Four long batches came and went. Four short ones sit in their places now.

# %% tags=["slide"]
cards = [memory_clinic.Allocator(400, expandable=x) for x in (False, True)]
for card in cards:
    for name, size in (("long", 100), ("short", 60)):
        for n in range(4):
            card.take(f"{name} {n}", size)
        for n in range(4 * (name == "long")):
            card.give(f"long {n}")
shown = [
    [f"{n} {owner or 'free'}" for owner, n in s] for s in cards[0].segments
]
show.Table(
    enumerate(map(", ".join, shown), 1), ("segment", "blocks"), "SIMULATED."
)

# %% [markdown]
# **Guess**: a hundred and sixty units are free. Does a long batch of a hundred fit?

# %% tags=["slide"]
outcomes = []
ways = ("as it is", "after empty_cache()", "expandable segments")
for way, card in zip(ways, (cards[0], *cards), strict=True):
    if "empty" in way:
        card.empty_cache()
    try:
        card.take("long", 100)
        outcomes.append((way, "it fits"))
    except MemoryError as error:
        message = str(error)
        outcomes.append((way, doctor.explain(message)[0].title))
show.Table(outcomes, ("how", "what the doctor says"), "SIMULATED.")

# %%
print(message)
show.claims("C035", "C120")

# %% [markdown]
# Every segment holds a live block, and live blocks never move: there is nothing to give
# back. Before it gives up, PyTorch empties its cache by itself. Expandable segments let
# the holes' pages be used behind the last block; set them before the process starts.
#
# With a GPU, the real allocator, and a request larger than the card:

# %% tags=["nbval-ignore-output"]
rows, real = [], gpu.backend in ("cuda", "rocm") and not gpu.simulated
for when in ("at first", "after empty_cache()"):
    said = "n/a: needs a CUDA or ROCm device"
    if real:
        try:
            torch.empty(2 * gpu.memory_bytes, dtype=torch.int8, device="cuda")
        except torch.OutOfMemoryError as error:
            said = doctor.explain(str(error))[0].title
        torch.cuda.empty_cache()
    rows.append((when, said))
show.Table(rows, ("when", "what the doctor says"))

# %% [markdown] tags=["slide"]
# ### Two cures that keep the result
# *Gradient accumulation* takes the batch in parts, each loss scaled to its share.
# *Activation checkpointing* keeps only what enters a layer, and computes the rest again
# on the way back.
#
# **Predict first.** How many times fewer bytes are kept for the backward pass when this
# small transformer is recomputed? Write text such as "2x".

# %% tags=["predict"]
guess = ...
lab.answer(lesson.kept_bytes.predict(guess))

# %% tags=["slide"]
rows, far = [], {}
for model in ("transformer", "cnn"):
    given = {"device": gpu, "model": model, "seed": seed}
    whole = memory_clinic.gradients(memory_clinic.training("whole", **given))
    for way in ("parts", "unscaled", "recomputed"):
        found = memory_clinic.gradients(memory_clinic.training(way, **given))
        far[model, way] = memory_clinic.difference(whole, found)
        equal = "equal" if far[model, way] < 1e-4 else "another step"
        rows.append((model, way, f"{far[model, way]:.1e}", equal))
columns = ("model", "way", "distance to the whole batch", "gradients")
show.Table(rows, columns, "Distance as a share of the gradient's length.")

# %% [markdown]
# Not scaled, the gradient is as many times as large as there are parts. The cnn holds
# BatchNorm, which sees smaller batches: accumulated, it is another training. And
# recomputed, its running statistics are updated twice. Now the bytes, counted by hooks,
# and the price:

# %% tags=["slide"]
arms = [
    lab.arm(f"gradients_{w}", memory_clinic.cure_arm, w, device=gpu, seed=seed)
    for w in memory_clinic.WAYS
]
saved = {arm.name: arm.observed["saved_bytes"] for arm in arms}
rounds = 12 if profile == "quick" else 48
rows = lab.together(arms, plan=timing.Plan(rounds=rounds))
kept = [units.memory(size) for size in saved.values()]
times = [units.milliseconds(row.median_s) for row in rows]
texts_of = zip(saved, kept, times, strict=True)
show.Table(
    texts_of, ("step", "kept for the way back", "time (ms)"), "MEASURED."
)

# %% tags=["nbval-ignore-output"]
fewer = saved["gradients_whole"] / saved["gradients_recomputed"]
print(f"Recomputed, {units.ratio(fewer)} fewer bytes are kept.")
print(show.paired_sentence(rows[0], rows[2]))
lab.answer(lesson.kept_bytes.predict(guess, fewer))

# %% [markdown] tags=["slide"]
# ## It is slow
#
# **Guess**: four lanes on a card made for sixteen, a low generation, and a small memory
# window: which of the three is a fault?

# %% tags=["slide"]
ward("slow")

# %% [markdown]
# None of them by itself. An idle card lowers its generation, a dock has four lanes, and
# a small window costs training next to nothing. One lane of sixteen is a fault, and so
# is heat. Before you look at the card, look at the clock: notebook 03.

# %% [markdown] tags=["slide"]
# ## It vanishes, or it hangs
#
# **Guess**: the log says "fallen off the bus". Is that the cause?

# %% tags=["slide"]
ward("gone")

# %% [markdown]
# It is the consequence. The first line that is about link or power comes before it, and
# the doctor puts causes first:

# %%
[d.id for d in doctor.explain(texts["errors on the link first"])]

# %%
show.claims("C018", "C036")

# %% [markdown]
# A cable is one suspect among several: power, sleep, power saving, the order of
# switching on. It is convicted by errors on the link or by lost lanes, not by habit.
# Before you unplug, ask who holds the card:

# %% tags=["nbval-ignore-output"]
held = [redact.text(x.found) for x in lines if x.what == "GPU memory"]
print("\n".join(held) or "no GPU with a list of programs here")

# %% tags=["slide"]
ward("hangs")

# %% [markdown]
# Zeros or a hang between two cards: the path from card to card is blocked. A rank that
# times out waited for another one; read the log of the one that is missing.
#
# ### The machine went down: what was running?
# Before each GPU experiment this course writes a line to a journal, and one after it.
# A copy, in which a process that no longer exists has left a line open:

# %%
with tempfile.TemporaryDirectory() as folder:
    journal = store.Journal(Path(folder))
    for name in ("h2d", "link_under_load"):
        journal.starting(name, gpu)
    journal.ended("h2d", gpu)
    alive = journal.unfinished()
    own, gone = f'"pid": {os.getpid()}', f'"pid": {2**22 + 1}'
    text = journal.path.read_text(encoding="utf-8").replace(own, gone)
    journal.path.write_text(text, encoding="utf-8")
    open_lines = journal.unfinished()
print(f"while we live: {alive}; after a crash: {open_lines}")

# %% [markdown]
# The next start names it in the passport, and offers to leave it out once.
#
# ## What is dangerous to try

# %% tags=["slide"]
rows = [
    ("pull the cable", "a waiting driver hangs", "end programs, eject"),
    ("end all Python processes", "others' work is lost", "yours, by its pid"),
    ("remove the driver first", "half a driver stays", "read the versions"),
    ("reset the card in use", "all on it fail", "restart the kernel"),
    ("raise the power limit", "heat, a weak supply", "lower it, and see"),
    ("flash firmware on a guess", "a dead board", "read its notes first"),
    ("run a fix from a thread", "who knows", "read it first"),
]
show.Table(rows, ("what people try", "what it may do", "instead"))

# %% [markdown]
# ## A report for others
#
# `gpu-lab doctor --report FILE` writes what was seen above, without host, user, home,
# serial numbers, addresses and keys. Read it before you pass it on.

# %%
report = doctor.report(machine, [ladder], lines)
print(", ".join(sorted(report)))

# %% [markdown] tags=["slide"]
# ## Negative control: a healthy log
#
# A doctor who finds something in everybody is of no use. An ordinary evening, with
# "NVRM", "CUDA" and "memory" in it:

# %% tags=["slide"]
print(clinic["healthy"]["text"])
healthy = doctor.examine(clinic["healthy"]["text"])
print(healthy)

# %% [markdown]
# No diagnosis, and a rung where one could go on looking. Half a page of log is enough
# to ask; when nothing is found, that is an answer too.

# %% [markdown] tags=["slide"]
# ## Exercise 1: six cases
#
# What is each text about? Answer with the words below. Hints cost nothing.

# %%
print(lesson.texts("cases"))
print(", ".join(lesson.words("cases")))

# %% tags=["exercise"]
answer = {"a": ..., "b": ..., "c": ..., "d": ..., "e": ..., "f": ...}
lab.answer(lesson.six_cases(answer))

# %% tags=["solution"]
answer = {
    "a": "driver",  # it is older than the wheel's CUDA
    "b": "wheel",  # it has dropped the card
    "c": "container",  # it lost its permission while it ran
    "d": "system limit",  # of open files
    "e": "nothing",  # the card is idle
    "f": "another program",  # it has two thirds of the card
}
lab.answer(lesson.six_cases(answer))

# %% [markdown]
# ## Exercise 2: four messages
#
# Which situation is each of them? Only the numbers differ.

# %%
print(lesson.texts("messages"))
print(", ".join(lesson.words("messages")))

# %% tags=["exercise"]
answer = {"a": ..., "b": ..., "c": ..., "d": ...}
lab.answer(lesson.four_messages(answer))

# %% tags=["solution"]
answer = {
    "a": "fragments",  # unallocated is more than wanted
    "b": "one request",  # wanted is more than the card
    "c": "too big",  # nearly all of it is ours, and alive
    "d": "another program",  # we have a tenth of the card
}
lab.answer(lesson.four_messages(answer))

# %% [markdown] tags=["slide"]
# ## Summary
#
# - From the symptom down; the first "no" is where to look, the rest follows from it.
# - Most of what stops a GPU lies below torch: reinstalling torch is the last step.
# - Out of memory: four numbers, and the cure is chosen by them.
# - Accumulation and checkpointing keep the gradients; BatchNorm is the exception.
# - First read, then restart, then change one thing. Keep the log of the first error.

# %% tags=["nbval-ignore-output"]
path = lab.close()
print(f"Your record: {'/'.join(path.absolute().parts[-4:])}")

# %% tags=["verdict", "nbval-check-output"]
record = store.load(path)
leaves = [doctor.explain(c["text"])[0].id == c["leaf"] for c in clinic["cases"]]
fits = dict(outcomes)
checks = {
    "3 experiments are on record": len(record.measurements) == 3,
    "20 recorded cases end at their leaf": leaves == [True] * 20,
    "a healthy log has no diagnosis": not healthy.diagnoses,
    "a crash leaves its line open": (alive, len(open_lines)) == ([], 1),
    "11 and 77 are no errors": not {"11", "77"} & set(codes["names"]),
    "nothing simulated is called measured": not record.mislabelled(),
}
show.verdict("08_troubleshooting, the cases", checks)

# %% tags=["verdict", "nbval-check-output"]
exact = {
    "SIMULATED: scattered memory does not fit": fits[ways[0]] != "it fits",
    "SIMULATED: emptying the cache changes nothing": fits[ways[1]]
    == fits[ways[0]],
    "SIMULATED: expandable segments fit": fits[ways[2]] == "it fits",
    "in parts: the same gradients": far["transformer", "parts"] < 1e-4,
    "recomputed: the same gradients": far["transformer", "recomputed"] < 1e-4,
    "not scaled: other gradients": far["transformer", "unscaled"] > 1,
    "BatchNorm in parts: other gradients": far["cnn", "parts"] > 0.01,
    "recomputed: under half of the bytes": fewer > 2,
}
show.verdict("08_troubleshooting, memory", exact)

# %% [markdown]
# ## On your eGPU, check
# - `gpu-lab doctor` right after plugging in, and again after a night: note what changed;
# - the kernel log for link errors before and after a long run: `dmesg | gpu-lab explain -`;
# - what your machine does after sleep, before you rely on it.
