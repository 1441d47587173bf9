"""Sessions and rows -> verdicts: may these be compared, what differs, how surely.

Rows that were taken in the same rounds are judged by `paired`, two runs of several
sessions by `versus`, many runs by `fleet`. No torch in here.
"""

from gpu_lab.compare.fleet import BY, Member, fleet
from gpu_lab.compare.groups import GROUPS, Group, groups
from gpu_lab.compare.keys import conditions, differences
from gpu_lab.compare.paired import paired
from gpu_lab.compare.runs import Row, versus
from gpu_lab.compare.sessions import Side, difference, sessions_interval
