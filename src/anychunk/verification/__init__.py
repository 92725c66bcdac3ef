"""Verify files and indexes: pinned sources, structure, every chunk, and other readers."""

from anychunk.verification.checks import Finding, Report, verify

__all__ = ["Finding", "Report", "verify"]
