"""The way of a sample: file, decoder, worker, batch, link, device; who waits for whom.

All classes that a worker process gets live here: none may be defined in a notebook.
"""

from gpu_lab.bench.dataloader import images, link, loading, tuning
from gpu_lab.bench.dataloader.tuning import tune
