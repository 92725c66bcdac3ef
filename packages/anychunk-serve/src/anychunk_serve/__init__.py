"""`anychunk serve`: any file as standard Zarr over HTTP.

`command` is what the command line finds, `run` the server. A request passes `access` (hosts,
tokens, CORS) and `app` (routes). `catalog` finds and opens the file, `hierarchy` plans the Zarr
hierarchy that clients see, `jobs` runs the work on threads, `chunks` and `box_reader` produce the
bytes of a chunk, and `responses` sends them.
"""
