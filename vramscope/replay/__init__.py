"""The allocator continued from a file: would a request fit, and what other settings would have done."""
