"""anychunk inside other software: notebooks, napari, bioio."""
