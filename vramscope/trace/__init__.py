"""The trace of one device as allocations and segments with lifetimes, and what follows from them."""
