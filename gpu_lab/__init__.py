"""gpu_lab: measure, record and compare PyTorch on the GPU you have, or on none.

The rooms, in the order in which they may import each other (left to right):

    units, records, redact, facts | hardware | timing | bench, fit | store |
    compare | plot | doctor | show | exercises | monitor | course | cli

Data flows one way: hardware -> measure -> record -> compare / plot -> notebook.
Nothing happens at import time: no torch, no NVML, no device query.
"""

__version__ = "0.1.0"
