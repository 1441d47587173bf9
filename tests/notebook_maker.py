"""Small notebooks for the tests of the runner, with the parameters of all lessons."""

from pathlib import Path

import nbformat

PARAMETERS = 'device: str = "auto"\nprofile: str = "quick"\nseed: int = 0'

# A session without torch: what the runner does must not depend on what is measured.
RECORD = """
from gpu_lab import store
from gpu_lab.records import Device, Machine, Measurement, Source
cpu = Device(backend="cpu", name="test CPU")
machine = Machine(system="test", python="3", cpu_name="test CPU", cpu_cores=1,
                  cpu_threads=1, memory_bytes=1, devices=(cpu,))
lab = store.open_session({name!r}, machine, cpu, profile=profile, seed=seed)
timed = dict(device="cpu", source=Source.MEASURED, times_s=(1.5,))
lab.add(Measurement(name="before", **timed))
"""


def write_notebook(path: Path, *cells: str, parameters: str = PARAMETERS) -> Path:
    """A notebook of the given code cells, parameters first."""
    made = [nbformat.v4.new_code_cell(parameters, metadata={"tags": ["parameters"]})]
    made += [nbformat.v4.new_code_cell(text.format(name=path.stem)) for text in cells]
    notebook = nbformat.v4.new_notebook(
        cells=made,
        metadata={
            "kernelspec": {
                "name": "python3",
                "display_name": "Python 3",
                "language": "python",
            },
            "language_info": {"name": "python"},
        },
    )
    nbformat.write(notebook, path)
    return path
