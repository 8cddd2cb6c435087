"""Configuration as data; read by ``dse/main.py`` alone."""
