# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown] tags=["slide"]
# # 07 Profiling: where the time and the memory go
#
# Afterwards you can
# - make a trace of a training step, and read its four usual shapes;
# - mend the largest share, say beforehand what that brings, and stop in time;
# - say what is kept for the backward pass, and what checkpointing saves;
# - watch a run while it goes, and know what that view cannot show.
#
# No GPU? torch.profiler then records the operators of the CPU, and the same rules name
# the same shapes. What only a device can show comes from a SIMULATED one.

# %% tags=["parameters"]
device: str = "auto"  # auto, cpu, cuda, cuda:1, rocm, xpu, mps
profile: str = "quick"  # quick, class, full
seed: int = 0  # of all random inputs

# %%
import functools

import torch
from torch.profiler import profile as profiler
from torch.profiler import ProfilerActivity, supported_activities
from torch.utils.checkpoint import checkpoint_sequential
from torchvision.models import resnet50

from gpu_lab import exercises, hardware, monitor
from gpu_lab import plot, show, store, timing, units
from gpu_lab.bench import profiling, shapes

plan = timing.PLANS[profile]
lesson = exercises.profiling
torch.set_num_threads(1)  # on a busy CPU more of them wait for each other

# %% [markdown]
# ## Which machine is this?

# %% tags=["nbval-ignore-output"]
machine = hardware.detect()
gpu = hardware.choose(machine, device)
# Of an Apple GPU the profiler records nothing; then the CPU is looked at.
where = machine.device("cpu") if gpu.backend == "mps" else gpu
lab = store.open_session(
    "07_profiling", machine, gpu, profile=profile, seed=seed
)
show.passport(machine, gpu, crashed=lab.crashed)

# %% [markdown] tags=["slide"]
# ## A first trace
#
# Two layers, forward and backward, an optimizer. Nothing is wrong with this step.
#
# **Guess**: which operator takes most of the time, and how many are called in one step?

# %% tags=["slide"]
good = profiling.planted("good", device=where, seed=seed)
good()  # the first call loads libraries
kinds = sorted(kind.name for kind in supported_activities())
print(f"this torch records {', '.join(kinds)}")

# %% [markdown]
# First by hand. `silent` keeps the remarks of the profiler's native code off the page.

# %% tags=["nbval-ignore-output", "slide"]
with profiling.silent(), profiler(activities=[ProfilerActivity.CPU]) as seen:
    good()
averages = seen.key_averages()
table = averages.table(
    sort_by="self_cpu_time_total", row_limit=5, max_name_column_width=30
)
print("\n".join(line[:80] for line in table.splitlines()[:9]))

# %%
show.claims("C127", "C128", "C129")

# %% [markdown]
# The table adds calls up and forgets their order. It names the product of matrices,
# and it cannot say whether anybody waited. For that one needs the time line: what ran
# when, and what did *not* run.

# %% [markdown] tags=["slide"]
# ## Four shapes
#
# Each moment of a step belongs to one of four: something long **computes**; else
# something is **copied**; else a **loader** prepares data; else the host is late, because
# it hands out **short pieces** one by one. The largest share is the shape.
#
# > Definition: a piece is short below 20 µs, which is about what it costs to launch it.
#
# | shape | what is missing | what to mend |
# | --- | --- | --- |
# | starved | data | the loader (notebook 05) |
# | launch-bound | work: the host cannot hand it out fast enough | fewer, larger pieces |
# | copy-bound | the batch, which is still on its way | fewer bytes, pinned, overlapped |
# | compute-bound | nothing | leave it, or compute less (notebook 04) |
#
# Four faults are planted in a small step: a slow loader, `.item()` on thousands of values,
# a Python loop of small kernels, a large copy from the host.
#
# **Guess**: which two of them have the same shape?

# %% tags=["nbval-ignore-output"]
folder = lab.path.parent.parent / "traces"
given = {"device": where, "folder": folder}
traces, found = {}, {}
for name in show.progress(profiling.PLANTED, what="traces"):
    step = profiling.planted(name, device=where, seed=seed)
    traces[name] = profiling.profiled(step, name=name, **given)
    found[name] = shapes.shape(traces[name])
rows = [(k, v.word, v.fault, v.evidence) for k, v in found.items()]
show.Table(rows, ("planted", "shape", "to mend", "evidence"), "MEASURED.")

# %% tags=["slide"]
four = ("slow loader", "small kernels", "host copy", "good")
plot.shapes([traces[name] for name in four])

# %% [markdown]
# One lane is full in each panel, and the others wait. A loop of small kernels and
# `.item()` have one shape: the host is late. The number of `aten::item` calls tells them
# apart. On a GPU each of them also waits until the queue is empty; on a CPU only the call
# itself costs.
#
# ### What took the time

# %% tags=["nbval-ignore-output"]
rows = []
for name in ("host copy", "good"):
    for operator, time_s in shapes.top(traces[name], most=4).items():
        rows.append((name, operator[:40], units.milliseconds(time_s)))
columns = ("step", "operator or kernel", "time a step (ms)")
show.Table(rows, columns, "With all that an operator calls.")

# %% tags=["nbval-ignore-output"]
files = sorted(folder.glob("*.json"))
print(f"Open one at ui.perfetto.dev: {', '.join(f.name for f in files)}")

# %%
show.claims("C066")

# %% [markdown]
# Decide it from your own time line: the share "copy" above is the answer for your
# step, whatever the link is called.

# %% [markdown] tags=["slide"]
# ### A GPU that is busy and does nothing
#
# nvidia-smi calls a GPU busy at any moment in which at least one kernel runs. Two
# SIMULATED steps: two thousand tiny kernels, and eight long ones.
#
# **Guess**: what does each show as utilisation?

# %% tags=["slide"]
eight = lesson.traces()
rows = []
for name, letter in (("tiny kernels", "b"), ("long kernels", "h")):
    busy = shapes.utilisation(eight[letter])
    useful = shapes.shape(eight[letter]).shares["compute"]
    rows.append((name, units.percent(busy), units.percent(useful)))
columns = ("step", "utilisation", "share of long kernels")
show.Table(rows, columns, "SIMULATED.")

# %%
show.claims("C083")

# %% [markdown] tags=["slide"]
# ## Negative control: leave it
#
# A profiler always names something on top. A test of where to mend is worth something
# only if it can say "nowhere". This is the good step, three times more:

# %% tags=["nbval-ignore-output", "slide"]
words = []
for _ in range(3):
    again = profiling.profiled(good, device=where)
    words.append(shapes.shape(again).fault)
wrong = [word for word in words if word != "none"]
print(f"to mend: {', '.join(words)}")
print(
    f"do not trust this run: {wrong}" if wrong else "Leave it, as it must be."
)

# %% [markdown]
# ## What does mending bring?
#
# A step with two faults at once, small kernels and a copy from the host. If a part
# with the share p of the time is taken out, the step becomes 1 / (1 - p) times faster,
# and not more: Amdahl's law.

# %% tags=["nbval-ignore-output", "slide"]
small, copies = (
    profiling.planted(name, device=where, seed=seed)
    for name in ("small kernels", "host copy")
)
both = timing.completed([small, copies], timing.clock_for(where))
shares = shapes.shape(profiling.profiled(both, device=where)).shares
rows = [(kind, units.percent(share)) for kind, share in shares.items()]
show.Table(
    rows, ("kind", "share of the step"), "MEASURED, with the profiler on."
)

# %% [markdown]
# **Predict first.** The copy is taken out. How many times faster is the step? Text with
# its unit, such as "2x".

# %% tags=["predict"]
guess = ...
lab.answer(lesson.mended.predict(guess))

# %% tags=["slide"]
arms = [
    timing.Arm(name=name, calls=(call,), queued=False)
    for name, call in (("two_faults", both), ("copy_mended", small))
]
before, after = lab.together(arms, plan=plan)
show.measurements([before, after])

# %% tags=["nbval-ignore-output"]
print(show.paired_sentence(before, after))
law = 1 / (1 - shares["copy"])
print(f"Amdahl's law with the share above: {units.ratio(law)}")
lab.answer(lesson.mended.predict(guess, before.time_ratio(after)))

# %% [markdown]
# The law is off by what the profiler itself costs: it writes something down for each
# call, so short pieces look longer than they are. Measure a gain without the profiler.

# %% [markdown] tags=["slide"]
# ## Memory: what is kept for the backward pass
#
# Sixteen equal blocks. The forward pass keeps the result of each; checkpointing keeps
# the inputs of some segments only, and computes the rest once more.
#
# **Guess**: with four segments, what share of the kept bytes is saved?

# %% tags=["slide"]
width = 1024 if gpu.is_gpu and not gpu.simulated else 128
torch.manual_seed(seed)
layers = [torch.nn.Linear(width, width) for _ in range(16)]
blocks = [torch.nn.Sequential(layer, torch.nn.Tanh()) for layer in layers]
network = torch.nn.Sequential(*blocks).to(gpu.torch_name)
x = torch.randn(width, width, device=gpu.torch_name)


# %% tags=["slide"]
def backward(segments, keep=lambda tensor: tensor):
    network.zero_grad()
    hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t)
    with hooks:
        y = (
            network(x)
            if not segments
            else checkpoint_sequential(
                network, segments, x, use_reentrant=False
            )
        )
        loss = y.square().mean()
    loss.backward()
    return [p.grad.clone() for p in network.parameters()]


# %% [markdown]
# The hook sees each tensor that autograd keeps. A storage counts once; the weights are
# there anyway.

# %% tags=["slide"]
own = {p.untyped_storage().data_ptr() for p in network.parameters()}
held, kept, gradients = [], {}, {}


def keep(tensor):
    held.append(tensor.untyped_storage())
    return tensor


for segments in (0, 2, 4, 8, 16):
    held.clear()  # while they live, no address is used twice
    gradients[segments] = backward(segments, keep)
    sizes = {storage.data_ptr(): storage.nbytes() for storage in held}
    kept[segments] = sum(n for at, n in sizes.items() if at not in own)

# %% tags=["slide"]
saved = {k: 1 - size / kept[0] for k, size in kept.items()}
rows = [
    (str(k), units.memory(v), units.percent(saved[k])) for k, v in kept.items()
]
show.Table(rows, ("segments", "kept", "saved"), "Exact, counted by hooks.")

# %% [markdown]
# The segment that is computed again needs its memory too: with n blocks the sum of both
# is smallest near the square root of n segments. Two, eight and sixteen are worse than
# four. The gradients are the same bit by bit; the price is a second forward pass.

# %% tags=["slide"]
arms = [
    timing.Arm(
        name=f"segments_{k}",
        calls=(functools.partial(backward, k),),
        queued=False,
        observed={"saved_bytes": kept[k]},
    )
    for k in (0, 4)
]
whole, checkpointed = lab.together(arms, plan=plan)
show.measurements([whole, checkpointed])

# %% tags=["nbval-ignore-output"]
print(show.paired_sentence(whole, checkpointed))

# %%
show.claims("C118")

# %% [markdown]
# ### The memory that a monitor does not see
#
# A spike of a fifth of a second, SIMULATED, seen by a poll once a second and by a counter of
# the highest value:

# %%
used = [4.0] * 1000  # GiB, one value a hundredth of a second
used[530:550] = [11.0] * 20
polled = max(used[::100])
rows = [("once a second", f"{polled} GiB"), ("highest", f"{max(used)} GiB")]
show.Table(rows, ("how it was read", "most memory"), "SIMULATED.")

# %%
show.claims("C123", "C135")

# %% [markdown]
# On a GPU `torch.accelerator.max_memory_allocated()` is that counter. Where memory
# grows from step to step, look for tensors that are kept with their graph: a log of
# losses instead of `loss.detach()`.

# %% [markdown] tags=["slide"]
# ## Watch it while it runs
#
# A thread looks at host and GPU a few times a second. In a notebook it writes one line
# below the cell; in a terminal the same is `gpu-lab monitor`, and
# `gpu-lab monitor --log run.jsonl` keeps a line a second, which `gpu-lab explain` reads.
#
# **Guess**: what does the host's curve look like in the starved step?

# %% tags=["nbval-ignore-output", "slide"]
starved = profiling.planted("slow loader", device=where, seed=seed)
with monitor.watch(0.25) as seen:
    for _ in range(15):
        starved()

# %% tags=["nbval-ignore-output"]
for line in monitor.lines(seen.samples[-1]):
    print(line)

# %% tags=["slide"]
plot.watched(seen.samples)

# %% [markdown]
# n/a means that nobody tells. **waits** is the share of time in which the device runs
# nothing at all. What holds the clock down stands at the end of the line, in nvidia-smi's
# words: heat, power cap, or nothing to do.

# %%
show.claims("C058", "C099", "C089")

# %% [markdown] tags=["slide"]
# ### One image at a time
#
# The shape of a server is another one: a single image, and somebody waits.
#
# **Guess**: how long does one image take here in a ResNet-50?

# %% tags=["slide"]
server = resnet50(weights=None).to(gpu.torch_name).eval().requires_grad_(False)
image = torch.randn(1, 3, 224, 224, device=gpu.torch_name)
call = functools.partial(server, image)
arm = timing.Arm(name="resnet50_one_image", calls=(call,), queued=False)
(one,) = lab.together([arm], plan=plan)
show.measurements([one])

# %% tags=["nbval-ignore-output"]
times_s = sorted(one.times_s)
late, usual = times_s[int(0.9 * len(times_s))], one.median_s
print(f"median {units.seconds(usual)}, 9 of 10 within {units.seconds(late)}")

# %%
show.claims("C088")

# %% [markdown] tags=["slide"]
# ## Exercise 1: eight traces
#
# Answer each with "starved", "launch-bound", "copy-bound" or "compute-bound". Times of
# lanes may overlap, and only what nothing hides costs.

# %% tags=["slide"]
lanes, rows = ("load", "copy", "compute"), []
for name, trace in eight.items():
    (start_s, stop_s), top = trace.steps[0], shapes.top(trace)
    times_s = [stop_s - start_s, *(top.get(kind, 0.0) for kind in lanes)]
    counts = [trace.calls_a_step(k) for k in ("aten::mm", "aten::item")]
    busy = units.percent(shapes.utilisation(trace))
    texts = (*map(units.milliseconds, times_s), *map(str, counts), busy)
    rows.append((name, *texts))
columns = ("step (ms)", *(f"{kind} (ms)" for kind in lanes))
columns = ("trace", *columns, "kernels", ".item()", "utilisation")
show.Table(rows, columns, "SIMULATED, one step.")

# %% tags=["exercise"]
answer = {"a": ..., "b": ..., "c": ..., "d": ...}
answer |= {"e": ..., "f": ..., "g": ..., "h": ...}
lab.answer(lesson.eight_traces(answer))

# %% tags=["solution"]
answer = {
    "a": "starved",  # four fifths of the step are the loader
    "b": "launch-bound",  # two thousand kernels, each below its launch
    "c": "compute-bound",  # as many, but long ones
    "d": "copy-bound",  # the kernels wait for the copy
    "e": "compute-bound",  # the copy is hidden behind the kernels
    "f": "launch-bound",  # .item() makes the host late
    "g": "starved",  # loader, then copy; the loader is longer
    "h": "compute-bound",
}
lab.answer(lesson.eight_traces(answer))

# %% [markdown]
# ## Exercise 2: mend a step
#
# The kit has `batch`, `scale`, `weight` and a list `log`, all on the CPU. Three faults are
# planted here; the result and an entry in the log must stay. Mend one after the other:
# the check profiles your step and names which fault is left.

# %%
kit = lesson.Kit()
tuple(kit.batch.shape), tuple(kit.scale.shape), tuple(kit.weight.shape)


# %% tags=["exercise"]
def my_step(kit):
    batch = kit.batch.clone()
    columns = [torch.tanh(batch[:, i] * kit.scale[i]) for i in range(32)]
    hidden = torch.stack(columns, dim=1)
    losses = (hidden @ kit.weight).square().mean(1)
    kit.log.append(sum(float(loss) for loss in losses))
    return losses.mean()


answer = ...  # my_step, when it is mended
lab.answer(lesson.mend_step(answer))


# %% tags=["solution"]
def my_step(kit):
    hidden = torch.tanh(kit.batch * kit.scale)
    losses = (hidden @ kit.weight).square().mean(1)
    kit.log.append(losses.sum())  # a tensor: read it once an epoch
    return losses.mean()


lab.answer(lesson.mend_step(my_step))

# %% [markdown] tags=["slide"]
# ## Summary
#
# - A table says what took time; only the time line says who waited.
# - Four shapes: starved, launch-bound, copy-bound, compute-bound. Mend the largest
#   share, then measure without the profiler.
# - Utilisation counts moments with any kernel at all: full does not mean fast.
# - Checkpointing trades memory for a second forward pass; near the square root of the
#   number of blocks it saves most, and how much depends on the network.
# - A good step is left alone.

# %% tags=["nbval-ignore-output"]
path = lab.close()
print(f"Your record: {'/'.join(path.absolute().parts[-4:])}")

# %% tags=["verdict", "nbval-check-output"]
record = store.load(path)
rows, texts = record.measurements, [f.read_text() for f in files]
counted = {k: t.calls_a_step("aten::item") for k, t in traces.items()}
checks = {
    "5 experiments are on record": len(rows) == 5,
    "each row is timed or says why": all(m.times_s or m.reason for m in rows),
    "nothing simulated is called measured": not record.mislabelled(),
    "5 traces with 5 steps each": [len(t.steps) for t in traces.values()]
    == [5] * 5,
    "5 trace files": len(files) == 5,
    "none names the host": not any("host_name" in text for text in texts),
    "the step with .item() calls it": counted.pop(".item()") > 0,
    "no other step does": not any(counted.values()),
}
show.verdict("07_profiling, the record", checks)

# %% tags=["verdict", "nbval-check-output"]
words, unit = list(lesson.right_shapes().values()), width * width * 4
tiny = eight["b"]
exact = {
    "3 of 8 traces are best left alone": words.count("compute-bound") == 3,
    "tiny kernels: over 90 in 100 utilisation": shapes.utilisation(tiny) > 0.9,
    "and no long one": shapes.shape(tiny).shares["compute"] == 0,
    "16 blocks keep 16 results and the input": kept[0] // unit == 17,
    "4 segments save most": max(saved, key=saved.get) == 4,
    "and less than 75 in 100": saved[4] < 0.75,
    "same gradients": all(map(torch.equal, gradients[0], gradients[4])),
    "the poll missed the spike": polled < max(used),
}
show.verdict("07_profiling, exact numbers", exact)

# %% [markdown]
# ## On your eGPU, check
# - the share "copy" of your own training step, before you blame the cable;
# - the trace with the enclosure warm: kernels that grow longer are heat, gaps are not;
# - `gpu-lab monitor` beside a run: link, heat and event reasons in one line.
