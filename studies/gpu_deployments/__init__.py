"""Study: whole models on GPUs against measurements, with kernel constants fitted on kernels alone."""
