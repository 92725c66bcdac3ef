"""An index as a zarr store, with a pipeline that reads all chunks of a selection at once."""
