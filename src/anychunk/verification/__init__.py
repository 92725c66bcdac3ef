"""Verify files and indexes: structure, every chunk, pinned sources, and other readers."""

from anychunk.verification.checks import Finding, Report, verify

__all__ = ["Finding", "Report", "verify"]
