"""A snapshot as one HTML file that needs no network and no script."""
