"""Weight of the assumed constants of all chips that ship: where the next source counts most."""
