"""Memory that prediction takes beyond what was held before, against scikit-learn's.

Each side runs in a process of its own; the kernel's peak is reset just before the call.
"""

import subprocess
import sys

import numpy as np
from sklearn.neighbors import KNeighborsClassifier

from benchmarks.gallery import K, make_gallery
from benchmarks.peak_memory import STATUS, peak_kib, reset_peak
from benchmarks.report import finish, say
from nearsure import NEDClassifier

TEMPERATURE = 0.05


def main() -> None:
    if not STATUS.exists():
        print("      memory: skipped, this system does not tell a process's peak")
        return
    extra = {}
    for side in ("nearsure", "scikit-learn"):
        command = [sys.executable, "-m", "benchmarks.memory", side]
        extra[side] = int(subprocess.run(command, check=True, capture_output=True).stdout)
    print("      " + ", ".join(f"{side} {kib / 1024:.0f} MiB" for side, kib in extra.items()))
    say(
        "extra memory of predict, to scikit-learn's",
        extra["nearsure"] / extra["scikit-learn"],
        0.05,
    )
    finish()


def measure(side: str) -> int:
    """Peak of the resident memory during prediction less that before it, in KiB."""
    gallery = make_gallery()
    if side == "nearsure":
        ours = NEDClassifier(K, TEMPERATURE).fit(gallery.vectors, gallery.labels)
        predict = ours.predict_with_confidence
    else:
        peer = KNeighborsClassifier(
            K, weights=lambda d: np.exp(-(d**2 - d[:, :1] ** 2) / TEMPERATURE), algorithm="brute"
        )
        predict = peer.fit(gallery.vectors, gallery.labels).predict_proba
    before = reset_peak()
    result = predict(gallery.queries)
    peak = peak_kib()
    del result
    return peak - before


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(measure(sys.argv[1]))
    else:
        main()
