"""python -m tests.house       # prints how `evaluators` and the presets are built: each measure, and where it is found."""

from tests.house.measures import MEASURES

for name, measure in MEASURES.items():
    number, where = measure()
    print(f"{number:6,}  {name}: {where}")
