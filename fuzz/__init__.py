"""A fuzzer that stays: damaged files of every format, indexes and codecs, against other readers.

`make fuzz` runs it; `python -m fuzz --help` lists its options. One input is a *case*: a small valid
file that an independent writer made (a *seed*) and edits of its fields. Cases run in child
processes with limits of time and memory, through what users do with a file.
"""
