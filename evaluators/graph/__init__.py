"""What one step of an LLM computes, on which device, and when."""
