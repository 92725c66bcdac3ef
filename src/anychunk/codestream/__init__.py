"""JPEG and JPEG 2000 markers: pure functions from bytes to plain data."""
