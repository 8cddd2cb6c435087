"""Questions, one folder each: the question and its finding (README.md), its space (study.yaml), the paper's figures."""

if __name__ == "studies":  # a second copy of every class, where the repository is on the path
    raise ImportError("import dse.studies: this folder is part of the package dse")
