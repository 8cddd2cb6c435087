"""Files of measurements of inference engines, load generators and profilers, read by content."""
