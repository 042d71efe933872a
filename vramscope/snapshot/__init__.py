"""Reads memory snapshots of any kind into columns; :func:`vramscope.snapshot.opening.open_snapshot` is the way in."""
