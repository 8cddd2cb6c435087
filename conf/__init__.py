"""Configuration as data; read by ``dse/config/compose.py`` alone."""
