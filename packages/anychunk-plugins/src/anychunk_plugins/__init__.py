"""anychunk inside napari and bioio, which share `layers`."""
