"""The fifteen corruptions at 224 pixels against the package `imagecorruptions`, in one run.

Both use OpenCV with one thread. The two take turns on the same image, and the fastest of several
turns counts, so that whatever else the machine does hits both alike.
"""

from contextlib import redirect_stdout
from importlib import import_module
from io import StringIO

import cv2
import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_sample_images

from benchmarks.report import finish, say, seconds
from nearsure.robustness import CORRUPTIONS, SEVERITIES, corrupt, corruption_rng
from nearsure.robustness.corruptions import STYLES, frost_window

SIZE, SMALL = 224, 32
TURNS = 15
# Their zoom blur alone takes a tenth of a second.
TURNS_OF_SLOW = 3

Pixels = NDArray[np.uint8]


def our_seconds(image: Pixels, name: str, severity: int, turn: int) -> float:
    """With the making of the generator, since the other package has one already."""
    return seconds(lambda: corrupt(image, name, severity, corruption_rng(0, turn, name, severity)))


def fastest(image: Pixels, name: str, severity: int) -> tuple[float, float]:
    """Seconds of one call, ours and theirs; the first turn of each is left out."""
    theirs = import_module("imagecorruptions").corrupt
    times = [
        (our_seconds(image, name, severity, turn), seconds(lambda: theirs(image, severity, name)))
        for turn in range(1 + (TURNS_OF_SLOW if name == "zoom_blur" else TURNS))
    ]
    return min(ours for ours, _ in times[1:]), min(theirs for _, theirs in times[1:])


def main() -> None:
    cv2.setNumThreads(1)
    np.random.seed(0)  # noqa: NPY002  (theirs draws from the global state)
    photograph = load_sample_images().images[0][:, 100:527]
    image, small = (
        np.asarray(cv2.resize(photograph, (side, side), interpolation=cv2.INTER_AREA), np.uint8)
        for side in (SIZE, SMALL)
    )
    drawing = seconds(lambda: [frost_window(number) for number in range(len(STYLES))])
    print(f"      frost is drawn once a process, in {drawing:.1f} s")
    totals = np.zeros(2)
    for name in CORRUPTIONS:
        with redirect_stdout(StringIO()):  # theirs prints about its special cases
            ours, theirs = np.sum([fastest(image, name, level) for level in SEVERITIES], axis=0)
        at_32 = sum(
            min(our_seconds(small, name, level, turn) for turn in range(TURNS))
            for level in SEVERITIES
        )
        ours_ms, theirs_ms, small_ms = (
            1000 * total / len(SEVERITIES) for total in (ours, theirs, at_32)
        )
        print(
            f"      {name}: {ours_ms:.2f} ms an image, theirs {theirs_ms:.2f} ms; "
            f"{small_ms:.3f} ms at {SMALL} pixels"
        )
        say(f"{name}, all severities: theirs to ours", theirs / ours, 1.0, at_least=True)
        totals += ours, theirs
    say("all 75 together: theirs to ours", totals[1] / totals[0], 3.0, at_least=True)
    finish()


if __name__ == "__main__":
    main()
