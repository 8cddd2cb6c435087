"""What can be said: chips, models, mappings, workloads, knobs and limits as frozen values.

Nothing here computes a time or touches a file. Numeric leaves are a float or an array over designs.
"""
