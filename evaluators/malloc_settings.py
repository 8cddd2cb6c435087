"""Memory settings that keep freed pages in the process, for arrays of designs that come and go.

By default glibc returns large blocks to the kernel when they are freed, which then clears the pages of the next one: 3,000 page
faults for a block of 8,192 designs, and up to three quarters of its time. Other C libraries are left as they are.
"""

import contextlib
import ctypes
import os
from functools import cache

MANY = 512
"""Designs from which on large arrays occur; fewer have arrays that come from the heap anyway."""

TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3
"""Options of mallopt, as in malloc.h."""

LARGE = 2**30
"""Free memory at the end of the heap above which it is returned, and blocks that are returned one by one. [B]"""

LARGEST_BEFORE = 2**25
"""Largest value of the threshold that glibc before 2.35 accepts. [B]"""

AHEAD = 2**26
"""Growth of the heap beyond a request; only written pages take memory. [B]"""

SAID = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
"""Variables of the environment by which a user chooses these thresholds: none is changed then."""


@cache
def keep_freed_memory() -> bool:
    """Set glibc's thresholds for this process once; returns whether they were set.

    This changes the allocator of the whole process, so importing the library does not do it: `evaluate` does, at the first call
    with many designs, or with events on many cores.
    """
    if any(name in os.environ for name in SAID):
        return False
    with contextlib.suppress(OSError, AttributeError, TypeError):  # no C library to ask, or another one
        library = ctypes.CDLL(None)
        _ = library.gnu_get_libc_version
        # setting one threshold ends glibc's own adjustment of all: none is set where large blocks are refused
        if library.mallopt(MMAP_THRESHOLD, LARGE) or library.mallopt(MMAP_THRESHOLD, LARGEST_BEFORE):
            library.mallopt(TRIM_THRESHOLD, LARGE)
            library.mallopt(TOP_PAD, AHEAD)
            return True
    return False
