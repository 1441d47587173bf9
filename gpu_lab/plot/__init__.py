"""Records -> pictures: HTML figures with alt text and caption, drawn without pyplot."""

from gpu_lab.plot.curves import break_even, link_curves
from gpu_lab.plot.device_map import device_map
from gpu_lab.plot.forest import forest
from gpu_lab.plot.gradients import gradients
from gpu_lab.plot.ladder import ladder
from gpu_lab.plot.lanes import lanes
from gpu_lab.plot.loader import loader_lanes
from gpu_lab.plot.picture import Picture
from gpu_lab.plot.rates import matmul_rates, session_spread
from gpu_lab.plot.roofline import roofline, rooflines
from gpu_lab.plot.scaling import scaling_fan
from gpu_lab.plot.shapes import shapes
from gpu_lab.plot.sustained import sustained
from gpu_lab.plot.tree import tree
from gpu_lab.plot.watched import watched
