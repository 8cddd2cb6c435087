"""Commands: from the words of the command line to text, JSON and pages; the same for notebooks."""
