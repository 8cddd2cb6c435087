"""Findings on machines that exist, printed: `python -m dse.studies.machines`."""

from dse.studies.machines.finding import finding

if __name__ == "__main__":
    print(finding())
