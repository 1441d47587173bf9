"""CI's spawn lane: PYTHONSTARTUP names this file, and every kernel starts with it.

Python itself reads that variable only at a prompt, IPython kernels always.
"""

import multiprocessing

multiprocessing.set_start_method("spawn", force=True)
