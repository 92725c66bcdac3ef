"""What zarr and numcodecs are given: our codecs as classes of theirs, and metadata of arrays.

`codecs` and `filters` make these classes from the codecs of `anychunk.codecs`, which do not import
zarr. Entry points name them, so that zarr finds them in processes that never import anychunk.
`choices` changes zarr's registries, for `anychunk.enable` alone.
"""
