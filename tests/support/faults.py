"""A worker of the fuzzer that fails in every way that the pool must notice."""

import json
import os
import sys
import time


def main():
    requests = os.fdopen(int(sys.argv[1]), "r")
    answers = os.fdopen(int(sys.argv[2]), "w")

    def say(message):
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    say({"ready": os.getpid()})
    for line in requests:
        kind = json.loads(line)["seed"]
        say({"phase": "ours"})
        if kind == "dies":
            os.abort()
        if kind == "takes memory":
            kept = []
            while True:
                kept.append(b"x" * (64 << 20))
        if kind == "takes time":
            while True:
                time.process_time()
        if kind == "dies in a peer":
            say({"phase": "rasterio", "ours": {"outcome": "pixels"}})
            os.abort()
        say({"done": {"outcome": "equal", "cpu_s": 0, "bytes": 2**31 if kind == "took" else 0}})


if __name__ == "__main__":
    main()
