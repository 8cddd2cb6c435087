"""Stored results: tables with checksums in SQLite or PostgreSQL, and block files of screens."""
