"""Configuration as data; read by ``dse/compose.py`` alone."""
