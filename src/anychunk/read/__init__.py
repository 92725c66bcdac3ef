"""An index as a zarr store, with a pipeline that reads every chunk of a selection at once."""
