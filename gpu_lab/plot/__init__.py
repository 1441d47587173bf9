"""Records -> pictures: HTML figures with alt text and caption, drawn without pyplot."""

from gpu_lab.plot.ladder import ladder
from gpu_lab.plot.picture import Picture
from gpu_lab.plot.rates import matmul_rates, session_spread

__all__ = ["Picture", "ladder", "matmul_rates", "session_spread"]
