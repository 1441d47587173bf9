"""Sessions and rows -> verdicts: may these be compared, what differs, how surely.

Rows that were taken in the same rounds are judged by `paired`. No torch in here.
"""

from gpu_lab.compare.keys import differences
from gpu_lab.compare.paired import paired

__all__ = ["differences", "paired"]
