"""Run the tiles through osml-imagery-io's own codecs, and print who passes what as JSON.

    pip install "osml-imagery-io[zarr]==0.2.2" && python specs/vectors/run_osml.py

It needs an older zarr than anychunk, and so an environment of its own.
"""

import base64
import json
from importlib.metadata import entry_points, version
from pathlib import Path

import numpy as np

CASES = json.loads((Path(__file__).parent / "tiles.json").read_text("utf-8"))["cases"]


def main() -> None:
    classes = {e.name: e for e in entry_points(group="numcodecs.codecs")}
    found = {"passed": 0, "failed": 0, "absent": 0, "causes": {}}
    for case in CASES:
        name = case["name"]
        if "osml-imagery-io" not in name:
            found["absent"] += 1
            continue
        codec = classes[name].load().from_config({"id": name, **case["configuration"]})
        expected = np.array(case["decoded"], case["data_type"])
        try:
            got = np.asarray(codec.decode(base64.b64decode(case["encoded"])))
            kind = "" if np.array_equal(got.ravel(), expected) else "other pixels"
        except Exception as e:
            kind, got = "an error instead of a result", e
        found["failed" if kind else "passed"] += 1
        if kind:
            cause = f"{kind}: decode with {name}"
            about = f"{case['data_type']} {case['shape']}: {str(got)[:60]}".replace("\n", " ")
            found["causes"].setdefault(cause, {"cases": 0, "example": about})["cases"] += 1
    result = {"name": "osml-imagery-io", "version": version("osml-imagery-io")}
    print(json.dumps({**result, "found": {"tiles": found}}))


main()
