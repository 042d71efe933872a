"""Serve the dashboard (work in progress)."""
