"""Reads memory snapshots of any kind into columns; :func:`vramscope.trace.opening.open_traced` is the way in."""
