"""Things that can be busy."""
