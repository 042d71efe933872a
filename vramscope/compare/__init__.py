"""Two sides of a comparison: files, moments of one file, or ranks."""
