"""How a command behaves at a terminal: progress, signals, text of any locale, JSON, files that are whole or not there."""
