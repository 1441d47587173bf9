"""What is wrong, and what helps: texts, logs and snapshots -> diagnoses.

The rules are data (`data/doctor*.toml`); this room only reads, compares and ranks:
`flat` makes a text comparable, `rules` reads patterns and values in it, `explain` puts
causes before consequences and writes the advice; `live` looks at this machine.
"""

from gpu_lab.doctor.explain import (
    Diagnosis,
    Explanation,
    examine,
    examine_file,
    explain,
    explain_last,
)
from gpu_lab.doctor.live import SERIOUS, Line, check, findings, report
