"""Who answers for designs and a workload: a module a kind of case, with its metrics, limits, breakdown and remedies."""
