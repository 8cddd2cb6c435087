"""Terminal behaviour of commands: progress, signals, locales, JSON, and atomic files."""
