"""Results that outlive a run: tables with checksums, in SQLite or PostgreSQL, and the blocks of screens."""
