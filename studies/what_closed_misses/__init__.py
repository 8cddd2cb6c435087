"""Study of gaps between the analytical model and simulation of whole models, with causes."""
