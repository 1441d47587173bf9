# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown] tags=["slide"]
# # 03 Measuring: when is a number worth believing?
#
# Afterwards you can
# - time work that runs asynchronously, and say why a naive timer is wrong;
# - warm up, and report a median with its spread instead of one number;
# - say when a difference is real, and how small a difference your data could show;
# - read heat and clocks beside a result.
#
# No GPU? The launch queue, the heat and the drift are then shown on a SIMULATED
# device, with the same calls. Noise, warm-up and comparisons are real on any machine.

# %% tags=["parameters"]
device: str = "auto"  # auto, cpu, cuda, cuda:1, rocm, xpu, mps
profile: str = "quick"  # quick, class, full
seed: int = 0  # of all random inputs

# %%
import functools
import statistics
from collections import Counter

import torch

from gpu_lab import bench, exercises, hardware, plot, show, store, timing, units
from gpu_lab.compare import paired
from gpu_lab.records import DeviceState, Verdict

plan = timing.PLANS[profile]

# %% [markdown]
# ## Which machine is this?

# %% tags=["nbval-ignore-output", "slide"]
machine = hardware.detect()
gpu = hardware.choose(machine, device)
lab = store.open_session(
    "03_measuring", machine, gpu, profile=profile, seed=seed
)
show.passport(machine, gpu, crashed=lab.crashed)

# %% [markdown]
# The first row is the device of this notebook. Without a GPU it is the CPU, and the
# next section uses the simulated device.
#
# ## The clock that stops early
#
# A GPU works off a queue. The call that starts a matrix product only puts it into the
# queue and comes back at once. What does a clock see that is read before and after?

# %% tags=["slide"]
simulated = timing.SimulatedGpu(seed=0)
clock, work = simulated, functools.partial(simulated.matmul, 1024)
if gpu.is_gpu and not gpu.simulated:
    clock = timing.clock_for(gpu)
    work = bench.matmul_arm(2048, device=gpu, seed=seed).calls[0]
print(f"This clock and its queue are {clock.source}.")

# %% [markdown]
# **Predict first.** How many times too fast is a timer that does not wait until the
# queue is empty? Write text with its unit, such as "2x".

# %% tags=["predict"]
guess = ...
lab.answer(exercises.measuring.too_fast.predict(guess))

# %% [markdown]
# First by hand. Five lines that look right, and one more call that makes them right:

# %% tags=["slide"]
start = clock.wall()
for _ in range(20):
    work()
early_s = clock.wall() - start
clock.synchronize()  # wait until the queue is empty
waited_s = clock.wall() - start
rows = [("at once", early_s), ("after waiting", waited_s)]
texts = [(name, units.milliseconds(time_s)) for name, time_s in rows]
show.Table(texts, ("the clock is stopped", "time (ms)"), f"{clock.source}.")

# %% tags=["slide"]
lanes = timing.lanes(work, clock=clock)
plot.lanes(lanes)

# %% [markdown]
# The red lane is the host: it is done long before the device, and whoever stops the
# clock there has timed the queueing. From here on `lab` and `bench` do the waiting; on
# a CUDA or ROCm device they let the device time itself, with marks in its own queue.
#
# ### How far off was your guess?

# %% tags=["nbval-ignore-output"]
lab.answer(exercises.measuring.too_fast.predict(guess, lanes.too_fast))

# %% [markdown] tags=["slide"]
# ## The first call
#
# The timer waits now. Is one call enough? Six calls of an operation that was not used
# before in this process, each one timed by itself.
#
# **Guess**: which of the six is the odd one, and is it too slow or too fast?

# %% tags=["slide"]
here = timing.clock_for(gpu)
image = torch.randn(1, 1, 256, 256, device=gpu.torch_name)
times = []
for _ in range(6):
    start = here.wall()
    torch.conv2d(image, image[:, :, :5, :5])
    here.synchronize()
    times.append(here.wall() - start)
calls = [(str(i), units.milliseconds(t)) for i, t in enumerate(times, 1)]
show.Table(calls, ("call", "time (ms)"), f"{here.source}.")

# %% [markdown]
# The first call also loads libraries, plans the work and finds memory. That price is
# paid once, so it is either reported by itself or kept outside the clock; it must not
# hide inside a mean.
#
# ### Burst and sustained
# A second kind of warm-up is slower: heat. A card may run above its lasting speed for
# a moment. This one is SIMULATED and is throttled after a third of a second.

# %%
model = timing.Model(throttle_after_s=0.35, throttle_to=0.7)
card = timing.SimulatedGpu(model, seed=0)
kernel = functools.partial(card.kernel, 1e-3)
burst = timing.measure(kernel, device=timing.SIMULATED, clock=card)
windows = enumerate(burst.warmup_s, 1)
texts = [(str(i), units.milliseconds(time_s)) for i, time_s in windows]
show.Table(texts, ("window", "time (ms)"), f"{burst.source}.")

# %% [markdown]
# `timing` warms a GPU up by condition, not by time: until two windows agree and the
# clock is steady. A benchmark that starts at once reports the burst, which no training
# run will ever see again.

# %% [markdown] tags=["slide"]
# ## Noise: who else is running?
#
# The same sum of whole numbers, first alone, then beside a busy process that shares
# our core. Nothing in our program changes.
#
# **Guess**: what happens to the wall time, and what to the CPU time?

# %% tags=["slide"]
cpu = machine.device("cpu")
long, short = (
    timing.Arm(name="sum", calls=(functools.partial(sum, range(n)),))
    for n in (400_000, 20_000)
)
given = {"device": cpu, "plan": plan}
quiet = lab.measure("sum_alone", bench.measured, long, **given)
with timing.competitor() as bound:
    busy = lab.measure("sum_busy", bench.measured, long, **given)
    given["plan"] = timing.Plan(rounds=120)
    brief = lab.measure("short_sum_busy", bench.measured, short, **given)

# %% tags=["slide"]
rows = []
for row in (quiet, busy):
    cpu_s = statistics.median(row.cpu_times_s)
    seconds = (row.median_s, cpu_s, row.iqr_s)
    rows.append((row.name, *map(units.milliseconds, seconds)))
columns = ("wall (ms)", "CPU (ms)", "quartile distance of wall (ms)")
show.Table(rows, ("experiment", *columns), "MEASURED.")

# %% tags=["nbval-ignore-output"]
where = "on our core" if bound else "wherever the system put it"
print(f"The competitor ran {where}. {show.flags([quiet, busy])}")
print(f"Clocks that decide: {quiet.decided_by}, {busy.decided_by}.")

# %% [markdown]
# Wall time holds the competitor's share, CPU time only our own. The flag **busy** comes
# from the system's own counters, where it has some: a number with that flag is a
# number about your machine's evening, not about your program. When the counters
# explain what was lost, CPU time decides comparisons instead of wall time.
#
# ### The mean of three against the median of many
# A short sum beside the same competitor: some samples are undisturbed, some are not.

# %%
mean, median, rows = statistics.fmean, statistics.median, []
ways = {"one sample": 1, "mean of three": 3, "median of twelve": 12}
for name, size in ways.items():
    statistic = median if "median" in name else mean
    starts = range(0, max(1, len(brief.times_s) - size + 1), size)
    values = [statistic(brief.times_s[i : i + size]) for i in starts]
    low, high = min(values), max(values)
    texts = (*map(units.milliseconds, (low, high)), units.ratio(high / low))
    rows.append((name, *texts))
columns = ("reported", "lowest (ms)", "highest (ms)", "highest / lowest")
show.Table(rows, columns, "MEASURED.")

# %% [markdown]
# One disturbed sample moves a mean of three by a third of itself, and a median of
# twelve hardly at all. When every sample is disturbed the median is wrong too: then
# only the flag helps, or a quiet machine.

# %% [markdown] tags=["slide"]
# ## When is a difference real?
#
# A product with 500 rows is about seven parts in a hundred less arithmetic than one
# with 512. Is it faster?
#
# **Guess** before you look: yes, no, or cannot be told on this machine?

# %% tags=["slide"]
arms = [
    lab.arm(f"matmul_{n}", bench.matmul_arm, n, device=gpu, seed=seed)
    for n in (512, 500)
]
rows = lab.together(arms, plan=plan)
show.measurements(rows)

# %% tags=["nbval-ignore-output"]
print(show.paired_sentence(*rows))

# %% [markdown]
# Both were timed in the same rounds, so each round gives one ratio, and the range says
# where the true ratio lies. **faster** needs a range that leaves out one *and* a
# difference that passes half the margin; **equivalent** needs the whole range inside
# the margin; everything else is **no difference shown**. Shapes that are multiples of
# a large power of two often win although they are more work.
#
# ### How many rounds?
# If nothing is shown, how small a difference could these data have shown? That depends
# on noise and on rounds. SIMULATED, in four of five repetitions:

# %%
noises, kernels = (0.01, 0.03, 0.1), {"A": 1e-3, "B": 1e-3}
rows = []
for rounds in (12, 24, 48, 96):
    plan_of_rounds, texts = timing.Plan(rounds=rounds), []
    for noise in noises:
        card = timing.SimulatedGpu(timing.Model(noise=noise), seed=0)
        pair = bench.simulated_kernels(kernels, gpu=card, plan=plan_of_rounds)
        texts.append(units.percent(paired(*pair, margin=0.001).smallest))
    rows.append((str(rounds), *texts))
columns = [f"noise {units.percent(noise)}" for noise in noises]
show.Table(rows, ("rounds", *columns), "SIMULATED.")

# %% [markdown]
# Read a column: four times the rounds show half the difference. Read a row: with ten
# times the noise you see ten times less. So first make the machine quiet, then be
# patient; and say what you could have seen.

# %% [markdown] tags=["slide"]
# ### One after the other, or in turn?
# A and B are the **same** kernel, on a SIMULATED card that slows down as it warms up.
#
# **Guess**: which of the two ways finds a difference that is not there?

# %% tags=["slide"]
warming = timing.Model(drift_per_s=0.1)
card, other = (timing.SimulatedGpu(warming, seed=0) for _ in range(2))
(first,) = bench.simulated_kernels({"A": 1e-3}, gpu=card)
(later,) = bench.simulated_kernels({"B": 1e-3}, gpu=card)
turns = bench.simulated_kernels(kernels, gpu=other)
found = [paired(*pair) for pair in ((first, later), turns)]
speedups = first.time_ratio(later), found[1].speedup
ways = ("one after the other", "in turn, round by round")
pairs = zip(ways, speedups, found, strict=True)
rows = [(way, units.ratio(x, 3), str(f.verdict)) for way, x, f in pairs]
show.Table(rows, ("how", "speedup of B", "verdict"), "SIMULATED.")

# %% [markdown]
# One after the other, B pays for the heat that A made; in turn, drift hits both alike
# and drops out of the ratio. Rows that were not taken in the same rounds get the
# verdict **not comparable**, however clear their numbers look.

# %% [markdown] tags=["slide"]
# ## Negative control: A against A
#
# A test is worth something only if it can say "no difference". Live, once:

# %%
same = [
    lab.arm(f"matmul_512_{name}", bench.matmul_arm, 512, device=gpu, seed=seed)
    for name in ("once", "again")
]
control = lab.together(same, plan=plan)
show.measurements(control)

# %% tags=["nbval-ignore-output"]
print(show.paired_sentence(*control))

# %% [markdown]
# Once proves little. So a hundred times, each on a SIMULATED card of its own, seeded:

# %% tags=["slide", "nbval-ignore-output"]
verdicts = Counter()
for number in show.progress(range(100), what="A against A"):
    card = timing.SimulatedGpu(timing.Model(), seed=number)
    a, b = bench.simulated_kernels({"A": 1e-3, "A again": 1e-3}, gpu=card)
    verdicts[paired(a, b).verdict] += 1
wrong = verdicts[Verdict.FASTER] + verdicts[Verdict.SLOWER]
rows = [(str(verdict), str(verdicts[verdict])) for verdict in Verdict]
show.Table(rows, ("verdict", "times of 100"), "SIMULATED.")

# %% [markdown]
# **faster** and **slower** would be false alarms here; the last cell of this notebook
# checks that at least 95 of 100 runs raise none. Try the same with the ratio of two
# single runs: it says "faster" or "slower" every time.

# %% [markdown] tags=["slide"]
# ## Heat: the same work for a while
#
# Matrix products without a pause, and beside them a SIMULATED card that is throttled
# on the way. In the class and full profiles this runs as long as it takes to get warm.
#
# **Guess**: what is left of the speed of your device at the end?

# %% tags=["slide"]
seconds = 3.0 if profile == "quick" else 60.0
heat = timing.Plan(rounds=30, sample_s=seconds / 30)
size = 4096 if gpu.is_gpu and not gpu.simulated else 1024
given = {"device": gpu, "plan": heat, "seed": seed}
warm = lab.measure("sustained", bench.matmul, size, **given)
model = timing.Model(throttle_after_s=1 + seconds / 2)
card = timing.SimulatedGpu(model, seed=0)
kernel = {"throttled card": seconds / 300}
(throttled,) = bench.simulated_kernels(kernel, gpu=card, plan=heat)
plot.sustained([warm, throttled])

# %%
states = warm.states or (gpu.state or DeviceState(),)
told = {
    "temperature": [units.temperature(s.temperature_c) for s in states],
    "clock": [units.clock(s.clock_sm_mhz) for s in states],
    "power": [units.power(s.power_w) for s in states],
}
rows = [(name, texts[0], texts[-1]) for name, texts in told.items()]
show.Table(rows, ("what the driver tells", "at the start", "at the end"))

# %% [markdown]
# A step down in speed together with a step down in clock is throttling; the flag
# **throttled** is set when the driver names heat or power as the reason. A slow slope
# on a CPU is often a neighbour on the same machine, and n/a means that nobody tells.

# %% [markdown] tags=["slide"]
# ## Two claims about PyTorch's own timer
#
# Both stand in popular articles. Our median is beside what they recommend, for the
# same product.
#
# **Guess**: what changes the number most, the timer, the statistic or the threads?

# %%
show.claims("C033", "C034")

# %%
arm = lab.arm("timer_matmul", bench.matmul_arm, 512, device=gpu, seed=seed)
(ours,) = lab.together([arm], plan=plan)
rows, threads = [], {"one": 1, "all": torch.get_num_threads()}
for which, count in ({} if arm.reason else threads).items():
    timer = bench.torch_timer(arm.calls[0], device=gpu, threads=count)
    hundred = timer.timeit(100).mean
    many = timer.blocked_autorange(min_run_time=0.2).median
    rows += [("timeit(100)", "mean", which, "MEASURED", hundred)]
    rows += [("blocked_autorange", "median", which, "MEASURED", many)]
rows += [("lab", "median", "all", str(ours.source), ours.median_s)]
texts = [(*words, units.milliseconds(time_s)) for *words, time_s in rows]
columns = ("timer", "statistic", "CPU threads", "source", "time (ms)")
show.Table(texts, columns)

# %% [markdown]
# C033 is true: this timer waits for the device and warms up. C034 is true, with two
# warnings: `timeit(100)` gives one mean without a spread, and the default of one thread
# measures one core of a CPU. Compare the rows with "all" on a CPU: on an idle one they
# are faster, on a busy one often slower. On a GPU the thread count hardly matters. These rows were not taken in the same rounds: what
# is left between the timers is no finding.

# %% [markdown] tags=["slide"]
# ## Exercise: is B faster?
#
# Six pairs of rounds, SIMULATED. Answer each with one of the five verdicts: "faster",
# "slower", "equivalent", "no difference shown", "not comparable".

# %%
exercises.measuring.pairs_table()

# %% tags=["exercise"]
answer = {"a": ..., "b": ..., "c": ..., "d": ..., "e": ..., "f": ...}
lab.answer(exercises.measuring.six_pairs(answer))

# %% tags=["solution"]
answer = {
    "a": "faster",  # the range lies above one, and above the margin
    "b": "no difference shown",  # the range is wider than the margin
    "c": "not comparable",  # only one of the two was throttled
    "d": "not comparable",  # not in the same rounds
    "e": "equivalent",  # certain, and too small to matter
    "f": "slower",  # some samples of A met a neighbour: the mean lies
}
lab.answer(exercises.measuring.six_pairs(answer))

# %% [markdown]
# ## Exercise: repair a timer
#
# This timer is to say how long a product takes in two dtypes. It has four errors, and
# each one alone is enough to mislead. The simulated `gpu` has three methods: `now()`
# reads the host's clock, `matmul(n, dtype)` queues a product, `wait()` is what
# `synchronize` is to a real device. Read `now()` once before and once after what you
# time.

# %%
watched = exercises.measuring.WatchedGpu()
watched.matmul(1024, "float32")
watched.wait()
watched.log


# %% tags=["exercise"]
def my_timer(gpu):
    found = {}
    for dtype, n in (("float32", 1024), ("bfloat16", 512)):
        times = []
        for _ in range(3):
            start = gpu.now()
            gpu.matmul(n, dtype)
            times.append(gpu.now() - start)
        found[dtype] = sum(times) / len(times)
    return found


answer = ...  # my_timer, when it is repaired
lab.answer(exercises.measuring.repair_timer(answer))


# %% tags=["solution"]
def my_timer(gpu):
    times = {"float32": [], "bfloat16": []}
    for dtype, found in times.items():
        gpu.matmul(1024, dtype)
        for _ in range(21):
            gpu.wait()
            start = gpu.now()
            gpu.matmul(1024, dtype)
            gpu.wait()
            found.append(gpu.now() - start)
    return {dtype: statistics.median(t) for dtype, t in times.items()}


lab.answer(exercises.measuring.repair_timer(my_timer))

# %% [markdown] tags=["slide"]
# ## Summary
#
# - A launch is not the work: wait for the device, or let it time itself.
# - The first call and the first seconds are other experiments: warm up.
# - Report a median with its spread, and the flags with both.
# - A and B in the same rounds, the ratio with its range, the margin said beforehand.
# - "No difference shown" is a result, when you say what you could have seen.

# %% tags=["nbval-ignore-output"]
path = lab.close()
print(f"Your record: {'/'.join(path.absolute().parts[-4:])}")

# %% tags=["verdict", "nbval-check-output"]
record = store.load(path)
saved = record.measurements
queued = functools.partial(simulated.matmul, 1024)
early = timing.lanes(queued, clock=simulated)
checks = {
    "9 experiments are on record": len(saved) == 9,
    "each row is timed or says why": all(m.times_s or m.reason for m in saved),
    "SIMULATED: not waiting is at least 5 times too fast": early.too_fast >= 5,
    "SIMULATED: one after the other is wrong": speedups[0] < 0.95,
    "SIMULATED: in turn is right": found[1].verdict == "equivalent",
    "SIMULATED: A against A, no alarm in 95 of 100": wrong <= 5,
    "nothing simulated is called measured": not record.mislabelled(),
}
show.verdict("03_measuring", checks)

# %% [markdown]
# ## On your eGPU, check
# - the sustained speed with the enclosure closed, as you use it every day: small boxes
#   get warm, and the picture shows it;
# - that a difference between two cables or docks is still there when you swap back;
# - the flags of every row before you tell anyone about its number.
