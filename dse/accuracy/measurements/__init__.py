"""Files of measurements that inference engines, load generators and profilers write, read by their content."""
