"""Pictures to store: smooth, with detail, and the same in every run."""

import numpy as np


def field(shape: tuple[int, ...], dtype: str = "u1") -> np.ndarray:
    """Return waves and a little noise over most of the range of 8 or 16 bits."""
    grids = np.meshgrid(*map(np.arange, shape), indexing="ij")
    wave = sum(np.sin((g + 3 * i) / (4.0 + 3 * i)) for i, g in enumerate(grids))
    noise = np.random.default_rng(len(shape)).normal(0, 0.05, shape)
    scaled = (wave + noise - np.min(wave)) / (np.ptp(wave) + 0.5)
    top = 250 if np.dtype(dtype).itemsize == 1 else 60000
    return np.clip(scaled * top, 0, top).astype(dtype)
