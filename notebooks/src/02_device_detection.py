# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown] tags=["slide"]
# # 02 Device detection: which GPU is this, and over what is it connected?
#
# Afterwards you can
# - pick a device in code that runs on any machine, and say why the usual line does not;
# - read the path from the processor to the card, and find its narrowest hop;
# - tell "not there" from "not usable", and say which of driver, wheel and card is old;
# - say "that cannot be told" where it cannot, instead of guessing.
#
# No GPU? The recorded machines below are read by the same code as yours.

# %% tags=["parameters"]
device: str = "auto"  # auto, cpu, cuda, cuda:1, rocm, xpu, mps
profile: str = "quick"  # quick, class, full
seed: int = 0  # of all random inputs

# %%
import torch
from gpu_lab import bench, exercises, facts, hardware, plot
from gpu_lab import show, store, timing, units
from gpu_lab.hardware import snapshot, torch_view

plan = timing.PLANS[profile]

# %% tags=["nbval-ignore-output", "slide"]
machine = hardware.detect()
gpu = hardware.choose(machine, device)
lab = store.open_session(
    "02_device_detection", machine, gpu, profile=profile, seed=seed
)
show.passport(machine, gpu, crashed=lab.crashed)

# %% [markdown] tags=["slide"]
# ## The line that everybody copies
#
# `device = "cuda" if torch.cuda.is_available() else "cpu"` answers one question: does
# the driver list a card? It does not say which card, whether this wheel has kernels for
# it, whether it still answers, or whether it is the one in the dock.
#
# **Guess**: what does `torch.accelerator.current_accelerator()` say on a machine with a
# CUDA build and no driver?

# %% tags=["nbval-ignore-output"]
named = torch.accelerator.current_accelerator()
rows = [
    ("cuda.is_available()", str(torch.cuda.is_available())),
    ("accelerator.is_available()", str(torch.accelerator.is_available())),
    ("current_accelerator()", str(named)),
    ("cuda.device_count()", str(torch.cuda.device_count())),
]
show.Table(rows, ("torch says here", "answer"))

# %% [markdown]
# `current_accelerator()` names what the *build* was made for, even where nothing is
# there. So ask `is_available()` first, then run something tiny.

# %%
show.claims("C010", "C065", "C080", "C012")

# %% [markdown] tags=["slide"]
# ## Seven machines of other people
#
# Texts that real machines printed (CITED, sources in the table below), read by the
# code that reads yours. **Guess**: for how many of these cards can the texts tell
# whether they stand outside?

# %%
recorded = snapshot.recorded()
told = {k: snapshot.analyse(m["snapshot"]) for k, m in recorded.items()}
words = {True: "external", False: "internal", None: "cannot tell"}
rows = [
    (title, g["name"], g["link"], words[g["external"]])
    for title, found in told.items()
    for g in found["gpus"]
]
show.Table(rows, ("machine", "card", "link", "where"))

# %%
rows = [(title, m["source"]) for title, m in recorded.items()]
show.Table(rows, ("machine", "source, CITED"))

# %% [markdown]
# The OCuLink dock looks like any slot with four lanes; WSL hides the bus. There the
# right answer is "cannot tell". A tunnel is recognised by the bridges above the card,
# never by the speed that it shows.

# %%
show.claims("C015", "C046", "C050", "C061", "C016")

# %% [markdown] tags=["slide"]
# ## The device map
#
# From the processor to the card, hop by hop. Each hop passes at most its generation
# times its lanes; the narrowest one decides. First a machine with two cards, then yours.

# %% tags=["slide"]
two = told["one card inside, one in a Thunderbolt 5 dock"]["gpus"]
plot.device_map(two, source="CITED")

# %% tags=["nbval-ignore-output", "slide"]
here = snapshot.here()
plot.device_map(here["gpus"], source="Read on this machine")

# %%
notes = [
    (title, g["name"], g["note"])
    for title, found in told.items()
    for g in found["gpus"]
    if g["note"]
]
show.Table(notes, ("machine", "card", "what to know"))

# %%
show.claims("C009", "C025")

# %% [markdown] tags=["slide"]
# ## What the link really moves
#
# Two things are told of a link, and both can mislead: an idle card lowers its
# generation, and a tunnel shows a placeholder. So copy something large and look at the
# rate. Without a GPU these rows say so, and the sentence stays empty.

# %%
given = {"device": gpu, "seed": seed}
sizes = [2**16, 2**20, 2**24, 2**26]
arms = [
    lab.arm(f"{way} {units.size(s)}", bench.transfer_arm, way, s, **given)
    for way in ("h2d", "d2h")
    for s in show.progress(sizes, what="copies")
]
copies = lab.together(arms, plan=plan)
show.measurements(copies)

# %% tags=["nbval-ignore-output"]
timed = [row for row in copies[:4] if row.times_s and not gpu.simulated]
rate = None
if timed:
    t = [row.median_s for row in timed]
    rate = bench.fit_link([r.work for r in timed], t).bytes_per_s
idle, loaded = bench.link_under_load(device=gpu) or (None, None)
print(f"Link at rest {show.link(idle)}, under load {show.link(loaded)}")
print(show.link_sentence(rate, loaded))

# %% [markdown]
# "Like" compares with published rates (CITED, `data/links.csv`), within a tenth. Two
# links can share a rate: the map above and the rate together say which it is.
#
# ## Old driver, old wheel, old card?
#
# Three things must fit: the driver runs the CUDA of the wheel, and the wheel has
# kernels for the card. One table, one command.

# %% tags=["nbval-ignore-output"]
have = torch_view.architectures()
rows = hardware.environment(machine, gpu, architectures=have)
show.Table(rows, ("question", "answer here"))

# %%
show.claims("C024", "C101", "C104", "C084")

# %% [markdown] tags=["slide"]
# ## What this device can do
#
# **Guess**: which of these does your device have?

# %% tags=["nbval-ignore-output"]
features = facts.settings("device_detection")["features"]
mine = "n/a"
if gpu.backend == "cuda" and gpu.capability:
    mine = gpu.capability
rows = [(f["name"], f["cuda"], mine, f["others"]) for f in features]
columns = ("feature", "NVIDIA: from capability", "this device", "other makers")
show.Table(rows, columns)

# %%
show.claims("C038", "C041")

# %% [markdown]
# ### One card for several people, in short
#
# - **MIG** cuts a data-centre card into slices in hardware; each process sees one.
# - **MPS** (the CUDA service, not Apple's Metal) lets processes share a card at once.
# - **Time slicing** gives them turns; a plain second process does the same.
#
# ## A control: looking changes nothing
#
# Detection must not start the GPU: a process that has touched CUDA cannot fork its
# workers any more, and an idle card stays asleep. Asking twice must give the same.

# %%
again = snapshot.analyse(snapshot.record())
same = again["gpus"] == here["gpus"]
print("asked twice, the same cards:", same)

# %% [markdown] tags=["slide"]
# ## Exercise: pick a device on any machine
#
# Write `pick_device(torch)`: it gets something that answers like torch, and returns the
# name of the device to use. It is tried on nine machines (SIMULATED).

# %%
exercises.device_detection.machines_table()


# %% tags=["exercise"]
def pick_device(torch):
    return "cuda" if torch.cuda.is_available() else "cpu"


answer = ...  # pick_device, when it is better than that
lab.answer(exercises.device_detection.pick_device(answer))


# %% tags=["solution"]
def pick_device(torch):
    found = {0: "mps" if torch.backends.mps.is_available() else "cpu"}
    for kind in ("cuda", "xpu"):
        api = getattr(torch, kind)
        for i in range(api.device_count() if api.is_available() else 0):
            try:
                torch.ones(1, device=f"{kind}:{i}").sum().item()
            except RuntimeError:
                continue  # listed, and it does not compute
            memory = api.get_device_properties(i).total_memory
            found[memory] = f"{kind}:{i}"
    return found[max(found)]


lab.answer(exercises.device_detection.pick_device(pick_device))

# %% [markdown]
# ## Exercise: the narrowest hop
#
# Four paths to idle cards. Which hop is the narrowest when there is work? A tunnel
# carries at most its share for PCIe, whatever PCIe shows of it.

# %%
exercises.device_detection.paths_table()

# %% tags=["exercise"]
answer = {"a": ..., "b": ..., "c": ..., "d": ...}
lab.answer(exercises.device_detection.narrowest_hop(answer))

# %% tags=["solution"]
answer = {
    "a": 1,  # generation 3 with four lanes, before everything else
    "b": 1,  # the OCuLink cable; the card is only idle
    "c": 2,  # the tunnel: what PCIe shows there is a placeholder
    "d": 2,  # four lanes between riser and switch
}
lab.answer(exercises.device_detection.narrowest_hop(answer))

# %% [markdown] tags=["slide"]
# ## Summary
#
# - Available is not usable: ask, then run one tiny kernel, then choose by memory.
# - The bridges above a card say whether it is outside; its speed does not.
# - Idle cards and tunnels show low numbers. Copy, then look again.
# - "Cannot tell" is an answer. `gpu-lab snapshot` records a machine that surprises you.

# %% tags=["nbval-ignore-output"]
path = lab.close()
print(f"Your record: {'/'.join(path.absolute().parts[-4:])}")

# %% tags=["verdict", "nbval-check-output"]
record = store.load(path)
saved = record.measurements
cards = [g for found in told.values() for g in found["gpus"]]
outside = [g["external"] for g in cards]
checks = {
    "8 copies are on record": len(saved) == 8,
    "each row is timed or says why": all(m.times_s or m.reason for m in saved),
    "11 recorded cards were read": len(cards) == 11,
    "2 of them are outside for sure": outside.count(True) == 2,
    "of 2 nobody can tell": outside.count(None) == 2,
    "asked twice, the same cards": same,
    "nothing simulated is called measured": not record.mislabelled(),
}
show.verdict("02_device_detection", checks)

# %% [markdown]
# ## On your eGPU, check
# - that the map shows the tunnel of your dock, and the link under load its generation;
# - the rate of large copies against the published one of your kind of link;
# - `nvidia-smi -L` and torch: do both number your cards in the same order?
