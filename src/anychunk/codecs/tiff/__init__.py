"""The strips and tiles of TIFF files: compressions, samples, and libtiff as the fallback."""
