# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown] tags=["slide"]
# # 00 Start here: what can this machine measure?
#
# Afterwards you can
# - say how far up the ladder from "the OS lists a GPU" to "a copy is bit-equal" your
#   machine stands, and name the first rung that fails;
# - tell MEASURED from SIMULATED, CITED and NOT MEASURABLE HERE;
# - find the first honest record of your machine on your disk.
#
# No GPU? Everything here runs on the CPU and is just as true. What your machine
# cannot measure is named, with the reason, and never made up.

# %% tags=["parameters"]
device: str = "auto"  # auto, cpu, cuda, cuda:1, rocm, xpu, mps
profile: str = "quick"  # quick, class, full
seed: int = 0  # of all random inputs

# %%
from gpu_lab import bench, exercises, hardware, plot, show, store, timing

plan = timing.PLANS[profile]

# %% [markdown]
# ## Which machine is this?
#
# The passport is kept with every number, because a number without its machine says
# nothing. It holds nothing personal: no names, no addresses, no serial numbers.

# %% tags=["nbval-ignore-output", "slide"]
machine = hardware.detect()
gpu = hardware.choose(machine, device)
lab = store.open_session(
    "00_start_here", machine, gpu, profile=profile, seed=seed
)
show.passport(machine, gpu, crashed=lab.crashed)

# %% [markdown]
# Read it from the top: the first row is the device that all cells below run on. A
# **link** that says "not told" is honest: not every driver tells it, and what is told
# of a Thunderbolt or USB4 tunnel is often not its true speed.
#
# ### Only with a dock or an enclosure
# Your computer cannot know what stands on your desk. Write it down once; it is kept as
# *stated*, not measured, and joins all your later records.

# %%
dock = ""  # for example "Razer Core X, Thunderbolt 3"
cable = ""  # for example "0.7 m, came with the dock"
_ = lab.state(dock=dock, cable=cable)

# %% [markdown] tags=["slide"]
# ## The ladder
#
# "torch does not see my GPU" has many causes, and each one lives on a rung of its own.
# Whoever starts on the wrong rung reinstalls drivers for a day. So we climb from the
# bottom and stop at the first rung that fails.
#
# **Guess** before you run the next cell: how many of the six rungs hold here?

# %% tags=["nbval-ignore-output"]
ladder = lab.ladder(hardware.live_ladder(machine, gpu))
show.ladder(ladder)

# %% tags=["slide", "nbval-ignore-output"]
plot.ladder(ladder)

# %% tags=["nbval-ignore-output"]
print(show.ladder_sentence(ladder))

# %% [markdown]
# Blue rungs hold, red ones fail, grey ones could not be asked. On a machine without a
# GPU the lowest rung is red, and that is the right answer, not a fault.
#
# ## The first measurement
#
# A matrix product of two square matrices with n rows takes 2 n³ floating-point
# operations. From n = 256 to n = 1024 the work grows by a factor of 4³.
#
# **Predict first.** How many times longer does the largest product take than the
# smallest? Replace the three dots by text with its unit, such as "10x".

# %% tags=["predict"]
guess = ...
lab.answer(exercises.start_here.matmul_ratio.predict(guess))

# %% tags=["slide"]
sizes = (256, 512, 1024)
given = {"device": gpu, "seed": seed}
arms = [
    lab.arm(f"matmul_{n}", bench.matmul_arm, n, **given)
    for n in show.progress(sizes, what="matmul")
]
rows = lab.together(arms, plan=plan)
show.measurements(rows)

# %% tags=["slide"]
plot.matmul_rates(rows)

# %% tags=["nbval-ignore-output"]
print(show.paired_sentence(rows[2], rows[0]))

# %% [markdown]
# Speedup is the time of the second over the time of the first, with the range in which
# it lies for sure enough (95 of 100 such ranges hold the truth). All three products
# were timed in turn, round by round, so that whatever slowed the machine hit all three.
#
# Time is the median of many samples, spread is the distance between the quartiles
# over the median. The work grew by a factor of 64; if the time grew by less, the small
# product did not fill the machine, and if by more, the large one fell out of a cache.
# A wide spread means that something else was running: close it and run again before
# you explain anything.
#
# ### How far off was your guess?

# %% tags=["nbval-ignore-output"]
measured = rows[2].time_ratio(rows[0])
lab.answer(exercises.start_here.matmul_ratio.predict(guess, measured))

# %% [markdown] tags=["slide"]
# ## Moving data
#
# A GPU in a dock computes fast and is reached slowly. Two copies tell the two apart:
# one inside the computer's own memory, one over the link. Without a GPU there is no
# link, and the second row says so. An Apple chip shares one memory between CPU and
# GPU: there the second row is a copy and no link.

# %%
size = 64 * 2**20
copies = [
    lab.measure("host_copy", bench.host_copy, size, plan=plan, **given),
    lab.measure("first_h2d", bench.host_to_device, size, plan=plan, **given),
]
show.measurements(copies)

# %% [markdown]
# `host_copy` counts bytes read and bytes written, `first_h2d` counts each byte once.
# That is why the two rates must not be divided by each other without thinking.
#
# ## Negative control: nothing changed
#
# An experiment is worth something only if it can also say "no difference". So we
# measure the middle product against itself, with nothing changed.

# %%
same = [
    lab.arm(f"matmul_512_{name}", bench.matmul_arm, 512, **given)
    for name in ("once", "again")
]
control = lab.together(same, plan=plan)
show.measurements(control)

# %% tags=["nbval-ignore-output"]
print(show.paired_sentence(*control))

# %% [markdown]
# The right answers are **equivalent** and **no difference shown**. The speedup is near
# one and will not be exactly one: its range is what this machine can tell apart. In
# very few runs a machine cries wolf; notebook 03 counts how often.
#
# ## Exercise: three broken machines
#
# Three ladders, CITED: put together from public reports (their addresses stand in
# `data/ladders`). For each, which is the **first failed rung**, counted from 1 at the
# bottom?

# %%
machines = exercises.start_here.stored_ladders()
show.ladder(machines["a"])

# %%
show.ladder(machines["b"])

# %%
show.ladder(machines["c"])

# %% tags=["exercise"]
answer = {"a": ..., "b": ..., "c": ...}
lab.answer(exercises.start_here.first_rungs(answer))

# %% tags=["solution"]
answer = {"a": 4, "b": 2, "c": 3}
lab.answer(exercises.start_here.first_rungs(answer))

# %% [markdown] tags=["slide"]
# ## Summary
#
# - Six rungs lead from the OS to a bit-equal copy; help starts at the first that fails.
# - Each number carries its source: MEASURED here, RECORDED elsewhere, CITED from a
#   published page, SIMULATED, or NOT MEASURABLE HERE with the reason.
# - Two measurements of the same thing differ. Only a larger difference is a finding.

# %% tags=["nbval-ignore-output"]
path = lab.close()
print(f"Your record: {'/'.join(path.absolute().parts[-4:])}")

# %% tags=["verdict", "nbval-check-output"]
record = store.load(path)
saved, measured = record.measurements, lab.session.measurements
checks = {
    "every sample on disk is as it was measured": all(
        a.times_s == b.times_s for a, b in zip(saved, measured, strict=True)
    ),
    "the ladder has 6 rungs": len(record.ladder.rungs) == 6,
    "7 experiments are on record": len(saved) == 7,
    "each row is timed or says why": all(m.times_s or m.reason for m in saved),
    "a product of 1024 rows is 2 n**3 operations": rows[2].work == 2 * 1024**3,
    "3 ladders of other machines could be read": len(machines) == 3,
    "nothing simulated is called measured": not record.mislabelled(),
}
show.verdict("00_start_here", checks)

# %% [markdown]
# ## On your eGPU, check
# - that the ladder holds to the top, with the cable you will use every day;
# - that **link** in the passport shows the width you paid for (its generation may be
#   lower while the card is idle, which is no fault);
# - the row `first_h2d`: it is the ceiling for everything that must cross the cable.
