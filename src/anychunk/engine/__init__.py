"""The way from stored bytes to pixels: plan, jobs, fetch, run.

A selection becomes a box of chunks (`request.py`). The layout of an array (`layouts.py`) takes the
chunks that it is for, from the bytes of a file or from files; what it leaves over, `chunks.py`
decodes one by one, which alone fills absent chunks and reports errors. `run.py` puts them together.
"""
