"""Records of designs and workloads: chips, models, mappings, cases, knobs and limits as frozen values.

Nothing here computes a time or touches a file. Numeric leaves are a float or an array over designs.
"""

if __name__ == "space":  # a second copy of every class, where the repository is on the path
    raise ImportError("import dse.space: this folder is part of the package dse")
