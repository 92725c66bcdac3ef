"""Scenes of the kind such files hold, computed by a few lines of numpy; always the same."""

from typing import Any

import numpy as np

type Array = np.ndarray[Any, np.dtype[Any]]


def fractal(*shape: int, seed: int, roughness: float = 2.2) -> Array:
    """Return noise between 0 and 1 that looks like clouds or land: weaker at finer scales."""
    noise = np.fft.rfftn(np.random.default_rng(seed).normal(size=shape))
    axes = [np.fft.fftfreq(n) for n in shape[:-1]] + [np.fft.rfftfreq(shape[-1])]
    square = np.asarray(sum(a**2 for a in np.meshgrid(*axes, indexing="ij", sparse=True)))
    square.flat[0] = 1
    noise *= square ** (-roughness / 2)
    found = np.fft.irfftn(noise, shape, axes=range(len(shape)))
    return (found - found.min()) / np.ptp(found)


def coloured(values: Array, stops: list[tuple[float, int, int, int]]) -> Array:
    """Return (band, y, x), interpolated in a table of value, red, green, blue."""
    table = np.array(stops, float).T
    return np.stack([np.interp(values, table[0], table[i]) for i in (1, 2, 3)])


def nearest_two(points: Array, *grids: Array) -> tuple[Array, Array, Array]:
    """Return the distances of every position to the two nearest points, and the nearest point."""
    first = np.full(grids[0].shape, np.inf, np.float32)
    second, which = first.copy(), np.zeros(first.shape, np.int32)
    for number, point in enumerate(points.astype(np.float32)):
        far = np.sqrt(sum((g - p) ** 2 for g, p in zip(grids, point, strict=True)))
        is_nearer = far < first
        second = np.where(is_nearer, first, np.minimum(second, far))
        which[is_nearer] = number
        first = np.minimum(first, far)
    return first, second, which


def planet(side: int) -> Array:
    """Return a banded planet in front of stars: (3, y, x) bytes."""
    y, x = np.mgrid[-1 : 1 : side * 1j, -1 : 1 : side * 1j] / 0.82
    inside = np.clip(1 - x**2 - y**2, 0, 1)
    z = np.sqrt(inside)
    flow = fractal(side, side, seed=4) - 0.5
    bands = 0.5 + 0.35 * np.sin(9 * (y + 0.16 * flow)) + 0.15 * np.sin(23 * (y + 0.12 * flow))
    storm = np.exp(-(((x - 0.25) / 0.22) ** 2) - (((y - 0.33) / 0.12) ** 2))
    stops = [(0, 120, 70, 48), (0.35, 190, 140, 96), (0.6, 226, 196, 156), (1, 246, 234, 212)]
    globe = coloured(np.clip(bands + 0.5 * flow, 0, 1), stops) * (1 - 0.55 * storm)
    globe[0] += 110 * storm
    light = np.clip(0.75 * z - 0.55 * x - 0.25 * y, 0.02, 1)
    random = np.random.default_rng(2)
    stars = (random.uniform(size=x.shape) > 0.9985) * random.uniform(60, 255, x.shape)
    picture: Array = np.where(inside > 0, globe * light, stars)
    return np.clip(picture, 0, 255).astype("uint8")


def cells(depth: int, side: int) -> Array:
    """Return cells and their nuclei under a microscope: (channel, z, y, x) counts."""
    random = np.random.default_rng(9)
    z, y, x = np.mgrid[0:depth, 0:side, 0:side].astype(np.float32)
    nuclei, bodies = np.zeros_like(z), np.zeros_like(z)
    for cz, cy, cx in random.uniform(0, 1, (34, 3)) * (depth, side, side):
        a, b, turn = random.uniform(9, 16), random.uniform(8, 12), random.uniform(0, np.pi)
        u = (y - cy) * np.cos(turn) + (x - cx) * np.sin(turn)
        v = (x - cx) * np.cos(turn) - (y - cy) * np.sin(turn)
        far = np.sqrt((u / a) ** 2 + (v / b) ** 2 + ((z - cz) / 2.6) ** 2)
        nuclei = np.maximum(nuclei, 1 / (1 + np.exp(9 * (far - 1))) * random.uniform(0.6, 1))
        bodies = np.maximum(bodies, 1 / (1 + np.exp(3 * (far - 1.9))) * random.uniform(0.5, 1))
    grain = fractal(depth, side, side, seed=7, roughness=1.6)
    light = np.stack([nuclei * (0.6 + 0.8 * grain), bodies * (1 - 0.8 * nuclei) * (0.3 + grain)])
    return np.asarray(random.poisson(np.clip(light, 0, None) * 2400 + 90), "uint16")


def tissue(*shape: int) -> Array:
    """Return cells with dark membranes, as in an electron microscope: bytes."""
    random = np.random.default_rng(12)
    grids = np.mgrid[tuple(slice(0, n) for n in shape)].astype(np.float32)
    grids += (fractal(*shape, seed=13, roughness=2.6).astype(np.float32) - 0.5) * 46
    first, second, which = nearest_two(random.uniform(0, 1, (40, 3)) * shape, *grids)
    grey = random.uniform(150, 205, 40)[which] + 26 * (fractal(*shape, seed=14, roughness=1) - 0.5)
    grey *= np.clip((second - first) / 3.2, 0.22, 1)
    spots = fractal(*shape, seed=15, roughness=1.5)
    grey = np.where((spots > 0.64) & (second - first > 9), grey * 0.55, grey)
    return np.clip(grey + random.normal(0, 7, shape), 0, 255).astype("uint8")


def head(depth: int, side: int, inside: float = np.inf) -> Array:
    """Return slices through a head, as in an MRI scan; the brain alone with `inside` 0.85."""
    z, y, x = np.mgrid[-0.6 : 0.6 : depth * 1j, -1 : 1 : side * 1j, -1 : 1 : side * 1j]
    far = np.sqrt((x / 0.72) ** 2 + (y / 0.9) ** 2 + z**2)
    folds = np.abs(fractal(depth, side, side, seed=21, roughness=2.0) - 0.5)
    found = np.zeros(far.shape)
    found[far < 1] = 820  # skin
    found[far < 0.95] = 90  # bone
    found[far < 0.88] = 240  # water
    brain = far < 0.85 - 0.35 * np.exp(-folds / 0.012) * (far > 0.55) - 0.2 * (np.abs(x) < 0.012)
    found[brain] = 620  # grey matter
    found[brain & (far < 0.72 - 0.9 * np.exp(-folds / 0.05) * (far > 0.4))] = 930  # white matter
    for side_of in (-1, 1):
        bend = x - side_of * (0.11 + 0.25 * (y + 0.05) ** 2)
        found[(bend / 0.055) ** 2 + ((y + 0.05) / 0.33) ** 2 + (z / 0.35) ** 2 < 1] = 220
    found += np.random.default_rng(22).normal(0, 18, far.shape)
    return np.where(far < inside, found, 0).astype("int16")


def day(hours: int, height: int, width: int) -> Array:
    """Return the temperature of a world during a day, in hundredths of a kelvin."""
    land = fractal(height, width, seed=31)
    latitude = np.linspace(-1, 1, height)[:, None]
    longitude = np.linspace(0, 2 * np.pi, width)[None, :]
    mean = 296 - 22 * latitude**2 - 60 * np.clip(land - 0.55, 0, None)
    swing = np.where(land > 0.5, 9, 1.5) * (1 - latitude**2)
    time = np.arange(hours)[:, None, None] / hours * 2 * np.pi
    weather = (fractal(hours, height, width, seed=32, roughness=2.6) - 0.5) * 44
    return ((mean + swing * np.cos(longitude - time) + weather) * 100).astype("uint16")
