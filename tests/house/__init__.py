"""What the sources must keep to: rules that hold, and measures that may get smaller but not larger."""
