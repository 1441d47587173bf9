"""Predictions that need no GPU: will it fit, how fast there, what a link costs it.

`predict` runs a step on fake tensors; break-even, roofline and power are formulas.
"""

from gpu_lab.fit.answer import EDGE, FITS, NOT, largest_batch, size_bytes, verdict
from gpu_lab.fit.breakeven import Curve, Offload, break_even, cited_link
from gpu_lab.fit.cards import COLUMNS, card_bytes, card_rows, cards_sentence, prices
from gpu_lab.fit.enclosure import left_for_card_w
from gpu_lab.fit.link import Rate, crossing_bytes, link_rate, slowdown
from gpu_lab.fit.memory import Prediction, predict
from gpu_lab.fit.model import Case, load
from gpu_lab.fit.probe import probe
from gpu_lab.fit.question import Question, question
from gpu_lab.fit.roofline import bound, flop_per_s, intensity
from gpu_lab.fit.speed import Speed, of_card, of_rows
from gpu_lab.fit.step import Setting
