"""Contracts that every codec and every format keeps; inherit them in a test, also outside anychunk.

They need pytest. See `anychunk.testing.codecs` and `anychunk.testing.formats`.
"""
