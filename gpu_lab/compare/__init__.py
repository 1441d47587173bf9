"""Sessions and rows -> verdicts: may these be compared, what differs, how surely.

Rows that were taken in the same rounds are judged by `paired`. No torch in here.
"""

from gpu_lab.compare.keys import conditions, differences
from gpu_lab.compare.paired import paired
from gpu_lab.compare.sessions import sessions_interval

__all__ = ["conditions", "differences", "paired", "sessions_interval"]
