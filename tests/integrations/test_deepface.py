"""Frames as deepface's `find` and `search` return them, scored."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from nearsure import NEDClassifier
from nearsure.arrays import AnyArray
from nearsure.errors import InvalidInputError
from nearsure.integrations.deepface import FaceConfidence, Metric, fit_faces, folder_name

pd = pytest.importorskip("pandas", reason="pandas is not installed")

PEOPLE = ("ann", *(f"person-{number:02d}" for number in range(1, 20)))
FACES = np.random.default_rng(77).normal(size=(len(PEOPLE) + 1, 12))


def photographs(n: int, seed: int) -> tuple[AnyArray, list[str]]:
    """Embeddings of so many images of each person, and their paths."""
    rng = np.random.default_rng(seed)
    vectors = np.repeat(FACES[:-1], n, axis=0) + 0.6 * rng.normal(size=(n * len(PEOPLE), 12))
    return vectors, [f"people/{name}/{i}.jpg" for name in PEOPLE for i in range(n)]


def distances(query: AnyArray, gallery: AnyArray, metric: str) -> AnyArray:
    """By the definitions in deepface's documentation."""
    lengths = np.linalg.norm(gallery, axis=1) * np.linalg.norm(query)
    cosine = np.minimum(gallery @ query / lengths, 1.0)
    units = gallery / np.linalg.norm(gallery, axis=1, keepdims=True)
    unit = query / np.linalg.norm(query)
    found: dict[str, AnyArray] = {
        "cosine": 1 - cosine,
        "angular": np.arccos(cosine) / np.pi,
        "euclidean": np.linalg.norm(gallery - query, axis=1),
        "euclidean_l2": np.linalg.norm(units - unit, axis=1),
    }
    return found[metric]


def find(query: AnyArray, gallery: AnyArray, images: list[str], metric: str) -> Any:  # noqa: ANN401
    """A frame with the columns of `DeepFace.find`, sorted by distance, index from 0."""
    n = len(images)
    box = {f"{side}_{edge}": [0] * n for side in ("target", "source") for edge in "xywh"}
    values = distances(query, gallery, metric)
    columns = {"identity": images, "hash": ["0" * 40] * n, **box}
    columns |= {"threshold": [1e9] * n, "distance": values, "confidence": [51.3] * n}
    return pd.DataFrame(columns).sort_values("distance").reset_index(drop=True)


def search(query: AnyArray, gallery: AnyArray, images: list[str], metric: str) -> Any:  # noqa: ANN401
    """A frame with the columns of `DeepFace.search`."""
    frame = find(query, gallery, images, metric)[["identity", "threshold", "distance"]]
    frame = frame.rename(columns={"identity": "img_name"})
    return frame.assign(id=range(len(frame)), model_name="ArcFace", distance_metric=metric)


@cache
def fitted(
    metric: Metric = "cosine", unknown_share: float = 0.1, precision: float | None = None
) -> tuple[FaceConfidence, AnyArray, list[str]]:
    gallery, images = photographs(9, seed=0)
    frames = [find(face, gallery, images, metric) for face in gallery]
    faces = fit_faces(
        frames, images, metric=metric, unknown_share=unknown_share, precision=precision
    )
    return faces, gallery, images


@pytest.mark.parametrize("metric", ["cosine", "angular", "euclidean", "euclidean_l2"])
def test_the_classifier_that_has_the_embeddings(metric: Metric) -> None:
    faces, gallery, images = fitted(metric, unknown_share=0.2, precision=0.8)
    queries, _ = photographs(1, seed=1)
    queries[-3:] += FACES[-1] - FACES[-4:-1]  # of nobody
    table = faces.rescore([find(query, gallery, images, metric) for query in queries])
    people = [folder_name(image) for image in images]
    classifier = NEDClassifier(
        metric="euclidean" if metric == "euclidean" else "cosine", head=None, unknown_share=0.2
    ).fit(gallery, people)
    expected = classifier.predict_with_confidence(queries)
    assert table["identity"].tolist() == expected.labels.tolist()
    np.testing.assert_allclose(table["confidence"], expected.confidence, rtol=1e-5)
    assert expected.verdicts is not None
    assert table["verdict"].tolist() == expected.verdicts.tolist()
    assert set(table["verdict"].tolist()[-3:]) == {"unknown"}
    accepts = classifier.accept_threshold(precision=0.8).accepts(expected.confidence)
    assert table["accepted"].tolist() == accepts.tolist()
    nearest = [distances(query, gallery, metric) for query in queries]
    assert table["image"].tolist() == [images[int(np.argmin(values))] for values in nearest]
    np.testing.assert_allclose(table["distance"], [values.min() for values in nearest])


def test_search_says_the_same_as_find() -> None:
    faces, gallery, images = fitted()
    queries, _ = photographs(2, seed=2)
    found = faces.rescore([find(query, gallery, images, "cosine") for query in queries])
    searched = faces.rescore([search(query, gallery, images, "cosine") for query in queries])
    pd.testing.assert_frame_equal(found, searched)
    assert "accepted" not in found.columns


def test_a_face_for_which_nothing_was_found() -> None:
    faces, gallery, images = fitted()
    frame = find(gallery[0] + 0.1, gallery, images, "cosine")
    table = faces.rescore([frame.head(0), frame, pd.DataFrame()])
    assert table["identity"].isna().tolist() == [True, False, True]
    assert table["identity"][1] == "ann"
    assert table["confidence"].tolist()[::2] == [0.0, 0.0]
    assert table["verdict"].tolist()[::2] == ["unknown", "unknown"]
    assert table["distance"].isna().tolist() == [True, False, True]


def test_names_of_people() -> None:
    assert folder_name("people/ann/3.jpg") == folder_name("people\\ann\\3.jpg") == "ann"
    gallery, images = photographs(9, seed=0)
    flat = [image.removeprefix("people/").replace("/", "_") for image in images]
    frames = [find(face, gallery, flat, "cosine") for face in gallery]
    faces = fit_faces(frames, flat, person=lambda image: image.split("_")[0].upper())
    assert faces.rescore(frames[:1])["identity"].tolist() == ["ANN"]


def test_frames_of_another_kind() -> None:
    faces, gallery, images = fitted()
    frame = search(gallery[0], gallery, images, "euclidean")
    with pytest.raises(InvalidInputError, match=r"metric 'cosine'. Got {'euclidean'}"):
        faces.rescore([frame])
    old = frame.rename(columns={"distance": "VGG-Face_cosine"})
    with pytest.raises(InvalidInputError, match=r"'distance', as those.* Got \['img_name'"):
        faces.rescore([old])
    with pytest.raises(InvalidInputError, match="metric must be one of 'cosine'"):
        fit_faces([], [], metric="manhattan")  # type: ignore[arg-type]
