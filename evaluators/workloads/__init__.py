"""Who answers for designs and a workload: one for models, one for kernels by themselves, and one for services."""
