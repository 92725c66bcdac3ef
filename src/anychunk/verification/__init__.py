"""Verify files and indexes: pinned sources, structure, every chunk."""
