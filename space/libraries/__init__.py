"""Constants of library kernels, one record a kind of kernel: parts that a stack of software may have (`space.stack`)."""
