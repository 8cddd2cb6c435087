"""The script that writes the samples needs packages that tests do not have."""

collect_ignore = ["samples/write.py"]
