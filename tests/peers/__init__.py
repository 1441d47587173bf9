"""Our core beside the tools people use today, as ratios taken in one run.

`make bench` is a short round with intervals, `make bench FULL=1` the whole list. Each
goal is an experiment of its own; its result is on disk as soon as it ends.
"""
