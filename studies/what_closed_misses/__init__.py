"""Study of the largest differences between the analytical model and simulation of whole models, and of their causes."""
