"""What the fit's choice of effort changes: recall, accuracy and time, before and after.

    python -m benchmarks.effort

200,000 points of 64 numbers in 4,000 classes with much noise; IVF and HNSW with their usual
settings, fitted with ``max_effort=0`` ("as set") and as usual. Queries are none of the points, and
no head stands beside the neighbours, so that accuracy is theirs alone. With ``--as-scale`` the
points are those of ``benchmarks.scale``, and the default is taken with its head, as there:

    python -m benchmarks.effort --as-scale --points 1000000 --index hnsw
"""

import argparse
import sys
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.large_gallery import K, LargeGallery, make_large_gallery
from benchmarks.report import seconds
from benchmarks.scale_cost import recall
from nearsure import NEDClassifier
from nearsure.arrays import AnyArray
from nearsure.engines.embedded import FaissEngine
from nearsure.gallery.recall import measure_recall
from nearsure.metrics import accuracy, expected_calibration_error

N_POINTS, N_FEATURES, N_ASKED = 200_000, 64, 3000
# So much that classes overlap and neighbours are hard to find.
NOISE = 0.3


def describe(title: str, classifier: NEDClassifier, gallery: LargeGallery) -> str:
    """A line of the table."""
    asked: list[object] = []
    queries = gallery.queries[:N_ASKED]
    time = seconds(lambda: asked.append(classifier.predict_with_confidence(queries)))
    prediction = classifier.predict_with_confidence(queries)
    right = prediction.labels == gallery.query_labels[:N_ASKED]
    effort = classifier.recall_
    shown = "as set" if effort is None else f"{effort.effort_name} {effort.effort}"
    return (
        f"{title:<14}{shown:<16}{recall(classifier, gallery):>8.1%}{accuracy(right):>10.1%}"
        f"{expected_calibration_error(prediction.confidence, right):>8.1%}{N_ASKED / time:>12,.0f}"
    )


def noisy_gallery(n_points: int) -> LargeGallery:
    """Fewer numbers, and noise in each."""
    made, rng = make_large_gallery(n_points), np.random.default_rng(1)

    def disturb(vectors: AnyArray) -> AnyArray:
        drawn = rng.standard_normal((len(vectors), N_FEATURES), np.float32)
        disturbed: AnyArray = vectors[:, :N_FEATURES] + np.float32(NOISE) * drawn
        return disturbed

    return replace(made, vectors=disturb(made.vectors), queries=disturb(made.queries))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=N_POINTS)
    parser.add_argument("--index", nargs="+", default=["ivf", "hnsw"])
    parser.add_argument("--as-scale", action="store_true")
    arguments = parser.parse_args()
    make = make_large_gallery if arguments.as_scale else noisy_gallery
    gallery = make(arguments.points)
    parameters: dict[str, Any] = {"n_neighbors": K}
    if not arguments.as_scale:
        parameters["head"] = None
    sys.stdout.write(
        f"{'index':<14}{'effort':<16}{'recall':>8}{'accuracy':>10}{'ECE':>8}{'queries/s':>12}\n"
    )
    for index in arguments.index:
        engines: list[FaissEngine] = []
        build = seconds(
            lambda index=index, engines=engines: engines.append(  # type: ignore[misc]
                FaissEngine.from_points(gallery.vectors, labels=gallery.labels, index=index)
            )
        )
        before = NEDClassifier(engine=engines[0], max_effort=0, **parameters).fit_engine()
        after = NEDClassifier(engine=engines[0], **parameters)
        fit = seconds(after.fit_engine)
        step = seconds(lambda after=after: measure_recall(after._fit.gallery, K))  # type: ignore[misc] # noqa: SLF001
        sys.stdout.flush()
        sys.stdout.write(
            f"{describe(index, before, gallery)}\n{describe(index, after, gallery)}\n"
            f"  build {build:.1f} s, fit {fit:.1f} s, of which the choice takes {step:.1f} s: "
            f"{step / (build + fit):.1%} of build and fit\n"
        )


if __name__ == "__main__":
    main()
