"""What is typed and what files say, made nouns: composed by Hydra, checked, read as chips, mappings, workloads and spaces."""
