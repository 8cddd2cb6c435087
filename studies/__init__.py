"""Studies, one folder each: question and findings (README.md), design space, published data."""

if __name__ == "studies":  # a second copy of every class, where the repository is on the path
    raise ImportError("import dse.studies: this folder is part of the package dse")
