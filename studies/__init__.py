"""Questions, one folder each: the question and its finding (README.md), its space (study.yaml), the paper's figures."""
