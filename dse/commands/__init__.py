"""What each command does and shows: from the words of the command line to text, JSON and pages; the same for notebooks."""
