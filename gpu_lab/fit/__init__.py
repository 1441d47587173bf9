"""Predictions that need no GPU: will it fit, how fast there, what a link costs it.

`predict` runs a step on fake tensors; break-even, roofline, power, a
loader and DDP are formulas.
"""

from gpu_lab.fit import step
from gpu_lab.fit.answer import EDGE, FITS, NOT, changes, largest_batch, verdict
from gpu_lab.fit.breakeven import Curve, Offload, break_even, cited_link
from gpu_lab.fit.enclosure import left_for_card_w
from gpu_lab.fit.links import links_like, widest
from gpu_lab.fit.loader import PAYS, LoaderModel
from gpu_lab.fit.memory import Prediction, predict
from gpu_lab.fit.roofline import bound, flop_per_s, intensity
from gpu_lab.fit.scaling import Step, link_of, zero_bytes
from gpu_lab.fit.speed import Speed, link_rates, of_card, of_rows, of_run, slowdown
from gpu_lab.fit.step import Case, Setting, load
