"""Predictions that need no GPU: break-even, roofline, power, a loader, DDP."""

from gpu_lab.fit.breakeven import Curve, Offload, break_even, cited_link
from gpu_lab.fit.enclosure import left_for_card_w
from gpu_lab.fit.links import links_like, widest
from gpu_lab.fit.loader import PAYS, LoaderModel
from gpu_lab.fit.roofline import bound, flop_per_s, intensity
from gpu_lab.fit.scaling import Step, link_of, zero_bytes
