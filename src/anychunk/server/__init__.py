"""`anychunk serve`: any file as standard Zarr over HTTP.

`catalog` says what is served under which name, `friendly` which Zarr hierarchy a file is shown as,
`chunks` makes the bytes of one chunk of it, `app` has the routes, and `run` starts the server.
"""
