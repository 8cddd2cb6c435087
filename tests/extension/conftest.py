"""What is installed for these tests alone is no test, and must not come on the path of the others."""

collect_ignore = ["installed"]
