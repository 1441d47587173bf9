"""What the machine does meanwhile: one monitor, in a notebook and in a terminal."""

from gpu_lab.monitor.live import Monitor, run, watch
from gpu_lab.monitor.reading import Reader, lines
