"""Seeded faults: each is one line that is wrong, in physics or in the driver, and the suite must find it.

A fault is applied to a copy of the tree, where a small part of the suite runs. It is found if a test fails there that passes on
a copy without it. Properties and identities say that a result is wrong; of physics, questions of the golden set notice any
change of it as well.
"""

from tests.faults.driver import DRIVER
from tests.faults.physics import PHYSICS

FAULTS = (*PHYSICS, *DRIVER)
"""Those of physics first; `python -m tests.faults` numbers them."""
