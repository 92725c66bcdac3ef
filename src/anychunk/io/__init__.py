"""Read bytes by range: local files by memory map, everything else by obstore.

A source returns exactly the requested bytes or raises. `Sources` keeps sources open by url and
checks each against its pin, so that bytes of a changed file never reach a decoder.
"""
