"""Model files: what they keep, and altered ones, which are refused or good enough to ask."""

import hashlib
import json
import warnings
from collections import Counter
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save, save_file
from small_galleries import assert_same_answers, drawn

from nearsure import NEDClassifier, fit_confidence
from nearsure.arrays import AnyArray
from nearsure.classifier.parameters import CalibrationChoice
from nearsure.cli.hit_rule import SavedRule
from nearsure.errors import (
    EngineChangedWarning,
    InvalidInputError,
    ModelFileError,
    QueriesDifferWarning,
)
from nearsure.gallery import Gallery
from nearsure.model_file import FORMAT_VERSION, read_model_bytes

N_EDITS = 300
Z, Y = drawn(60)
Q = drawn(5, seed=2)[0]
NAMES = np.array(["ant", "bee", "cow"])
NUMBERS = np.array([3, 5, 2**40])
GROUPS = np.arange(60) // 2

MODELS: dict[str, tuple[dict[str, Any], AnyArray, AnyArray | None]] = {
    "default": ({}, NAMES, None),
    "ned": ({"rule": "ned", "objective": "brier"}, NUMBERS, GROUPS),
    "sharpened": ({"rule": "sharpened", "metric": "cosine"}, NUMBERS.astype(object), None),
    "gou": ({"rule": "gou", "calibration": "isotonic"}, NAMES.astype(object), GROUPS),
    "given temperature": ({"temperature": 0.5, "n_neighbors": 7}, np.array([1.0, 2.0, 3.0]), None),
    "unknowns": ({"unknown_share": 0.2, "n_neighbors": "all"}, NAMES, GROUPS.astype(str)),
    "prior": ({"prior": {"ant": 0.1, "bee": 0.2, "cow": 0.7}}, NAMES, None),
    "platt": ({"rule": "ned", "calibration": "platt"}, NAMES, None),
    "histogram": ({"rule": "knn", "calibration": "histogram"}, NAMES, None),
    "hnsw": ({"engine": "hnsw", "prior": "uniform"}, NAMES, GROUPS),
    "hnsw, integers": ({"engine": "hnsw", "unknown_share": 0.1}, NUMBERS, None),
    "ivf": ({"engine": "ivf", "calibration": "beta", "metric": "cosine"}, NAMES, None),
    "means": ({"head": "means", "unknown_share": 0.1}, NAMES, GROUPS),
    "logistic": ({"head": "logistic"}, NUMBERS, None),
}
VALUES: list[Any] = [
    None,
    True,
    -1,
    0,
    1,
    2,
    7,
    2**31,
    2**63,
    10**400,
    0.5,
    -0.5,
    1e-320,
    1e308,
    float("nan"),
    float("inf"),
    "",
    "x",
    "<U100000000",
    "<U99999999999",
    "<f4",
    ">i8",
    "|O",
    "M8[s]",
    "i4,f8",
    "knn",
    "auto",
    [],
    [1],
    ["a", "b", "c"],
    [[1, 2], [3]],
    {},
    {"a": 1},
    {"pairs": [[[], 1]]},
]


def altered_bytes(header: object, tensors: dict[str, AnyArray]) -> bytes:
    """A model file as whoever can compute a checksum may write it."""
    text = json.dumps(header)
    metadata = {"nearsure": text, "sha256": hashlib.sha256(text.encode()).hexdigest()}
    return save({name: np.ascontiguousarray(own) for name, own in tensors.items()}, metadata)


def checksums(tensors: dict[str, AnyArray]) -> dict[str, str]:
    digests = {}
    for name, tensor in tensors.items():
        digest = hashlib.sha256(f"{tensor.dtype.str}{tensor.shape}".encode())
        digest.update(np.ascontiguousarray(tensor).tobytes())
        digests[name] = digest.hexdigest()
    return digests


def places(document: Any) -> list[tuple[Any, Any]]:  # noqa: ANN401
    """Every container of a document with each of its keys or indices."""
    # A long list is like its first entries.
    keys = document if isinstance(document, dict) else range(min(3, len(document)))
    found = []
    for key in keys:
        found.append((document, key))
        if isinstance(document[key], dict | list):
            found += places(document[key])
    return found


def alter_document(rng: np.random.Generator, document: Any) -> None:  # noqa: ANN401
    """Change one field somewhere, whatever it is."""
    every = places(document)
    container, key = every[rng.integers(len(every))]
    match rng.integers(7):
        case 0:
            del container[key]
        case 1 if isinstance(container, dict):
            container[f"{key}_"] = container[key]
        case 1:
            container.append(container[key])
        case 2 if type(container[key]) in (int, float):
            container[key] *= -1
        case 3 if type(container[key]) in (int, float):
            container[key] *= 10.0 ** int(rng.integers(1, 300))
        case 4:
            other, place = every[rng.integers(len(every))]
            container[key] = deepcopy(other[place])
        case _:
            container[key] = VALUES[rng.integers(len(VALUES))]


def alter_tensors(  # noqa: C901
    rng: np.random.Generator, tensors: dict[str, AnyArray]
) -> None:
    """Change one array: its size, type, shape or an entry; or drop it, or add another."""
    names = sorted(tensors)
    name = names[rng.integers(len(names))]
    tensor = tensors[name]
    match rng.integers(10):
        case 0:
            del tensors[name]
        case 1:
            tensors[f"{name}_"] = tensor
        case 2:
            kinds = ("<f4", "<f8", "<i4", "<i8", "<u1", "|b1", "<i2", "<f2", "<u8")
            with np.errstate(invalid="ignore", over="ignore"):
                tensors[name] = tensor.astype(kinds[rng.integers(len(kinds))])
        case 3:
            shapes = ((-1, 1), (1, -1), (-1,), (tensor.size, 1, 1))
            tensors[name] = tensor.reshape(shapes[rng.integers(len(shapes))])
        case 4:
            tensors[name] = tensor[: int(rng.integers(len(tensor) + 1))]
        case 5:
            tensors[name] = np.concatenate([tensor, tensor[:1]])
        case 6:
            tensors[name] = tensors[names[rng.integers(len(names))]]
        case 7:
            tensors[name] = np.full((), 1, tensor.dtype)
        case _ if tensor.size:
            own = tensor.copy()
            odd = (np.nan, np.inf, -1e300, 1e-300) if own.dtype.kind == "f" else (-1, 2**62, 77, 0)
            if own.dtype == np.uint8:
                odd = (0, 34, 91, 255)
            with np.errstate(over="ignore"):
                own.reshape(-1)[rng.integers(own.size)] = odd[rng.integers(len(odd))]
            tensors[name] = own


@pytest.fixture(scope="module")
def saved() -> dict[str, tuple[str, dict[str, AnyArray]]]:
    models = {}
    for kind, (parameters, names, groups) in MODELS.items():
        fitted = NEDClassifier(**parameters).fit(Z, names[Y], groups=groups)
        fitted.remove([3])
        manifest, tensors = read_model_bytes(fitted.to_bytes())
        models[kind] = json.dumps(manifest), tensors
    return models


@pytest.mark.parametrize("kind", MODELS)
def test_every_edit_is_refused_or_harmless(kind: str, saved: Any) -> None:  # noqa: ANN401
    rng = np.random.default_rng(sorted(MODELS).index(kind))
    outcomes: Counter[str] = Counter()
    for number in range(N_EDITS):
        manifest, tensors = json.loads(saved[kind][0]), dict(saved[kind][1])
        header: Any = {"format_version": FORMAT_VERSION, "manifest": manifest}
        if number % 3:
            alter_document(rng, header)
        else:
            alter_tensors(rng, tensors)
        if isinstance(header, dict):
            header.setdefault("sha256", checksums(tensors))
        content = altered_bytes(header, tensors)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EngineChangedWarning)
            warnings.simplefilter("ignore", QueriesDifferWarning)
            try:
                classifier = NEDClassifier.from_bytes(content)
            except ModelFileError:
                outcomes["refused"] += 1
                continue
            outcomes["read"] += 1
            prediction = classifier.predict_with_confidence(Q)
            probabilities = classifier.predict_proba(Q)
        assert ((prediction.confidence >= 0) & (prediction.confidence <= 1)).all()
        assert probabilities.shape == (len(Q), len(classifier.classes_))
        assert (probabilities >= 0).all()
        assert str(classifier.head_fit_)
    # Both happen: neither is all refused, nor is nothing looked at.
    assert min(outcomes["refused"], outcomes["read"]) > N_EDITS / 20


@pytest.mark.parametrize(
    "value", [10**400, -(10**400), float("nan"), [1]], ids=["huge", "huge, negative", "NaN", "list"]
)
@pytest.mark.parametrize("kind", ["unknowns", "hnsw, integers", "means", "logistic"])
def test_no_number_of_a_manifest_may_be_something_else(
    kind: str,
    value: object,
    saved: Any,  # noqa: ANN401
) -> None:
    tensors = saved[kind][1]
    header = {
        "format_version": FORMAT_VERSION,
        "manifest": json.loads(saved[kind][0]),
        "sha256": checksums(tensors),
    }
    for container, key in places(header):
        number = container[key]
        if type(number) in (int, float) and key != "random_state":
            container[key] = value
            with pytest.raises(ModelFileError):
                NEDClassifier.from_bytes(altered_bytes(header, tensors))
            container[key] = number


@pytest.mark.parametrize("width", ["<U100000000", "<U3"])
def test_the_width_of_labels_is_that_of_the_labels(width: str, saved: Any) -> None:  # noqa: ANN401
    manifest, tensors = json.loads(saved["default"][0]), saved["default"][1]
    manifest["classes_dtype"] = width
    header = {"format_version": 3, "manifest": manifest, "sha256": checksums(tensors)}
    classifier = NEDClassifier.from_bytes(altered_bytes(header, tensors))
    assert classifier.classes_.dtype == np.dtype("<U3")


def test_a_gallery_without_points_is_refused(saved: Any) -> None:  # noqa: ANN401
    manifest, tensors = json.loads(saved["ned"][0]), dict(saved["ned"][1])
    for name in ("support_vectors", "support_codes", "support_ids", "groups"):
        tensors[name] = tensors[name][:0]
    header = {"format_version": 3, "manifest": manifest, "sha256": checksums(tensors)}
    with pytest.raises(ModelFileError, match="point"):
        NEDClassifier.from_bytes(altered_bytes(header, tensors))


def test_one_long_label_does_not_make_all_of_them_long(saved: Any) -> None:  # noqa: ANN401
    manifest, tensors = json.loads(saved["default"][0]), dict(saved["default"][1])
    names = ["x" * 200_000, *map(str, range(200_000))]
    tensors["classes"] = np.frombuffer(json.dumps(names).encode(), np.uint8)
    header = {"format_version": 3, "manifest": manifest, "sha256": checksums(tensors)}
    with pytest.raises(ModelFileError, match="200001 of up to 200000 characters"):
        NEDClassifier.from_bytes(altered_bytes(header, tensors))


@pytest.mark.parametrize("text", ["[" * 100_000, "1" * 5000, "{", '"'])
def test_a_manifest_that_is_no_document(text: str) -> None:
    metadata = {"nearsure": text, "sha256": hashlib.sha256(text.encode()).hexdigest()}
    with pytest.raises(ModelFileError, match="not JSON"):
        NEDClassifier.from_bytes(save({"a": np.ones(1)}, metadata))


def test_what_cannot_be_read_again_is_not_saved() -> None:
    fitted = NEDClassifier(temperature=1.0).fit(Z, NAMES[Y])
    with pytest.raises(InvalidInputError, match="cannot be saved: 'n_neighbors' must be"):
        fitted.set_params(n_neighbors=-3).to_bytes()


@pytest.mark.parametrize("calibration", ["shrunk", "isotonic", "bbq", "beta"])
def test_every_edit_of_a_rule_is_refused_or_harmless(
    calibration: CalibrationChoice, tmp_path: Path
) -> None:
    own = Gallery.of_points(Z, Y).leave_one_out(None, 20)
    rule = fit_confidence(own, Y, calibration=calibration)
    SavedRule(rule, NAMES, "l2", 20).save(tmp_path / "rule.json")
    whole = (tmp_path / "rule.json").read_text()
    rng = np.random.default_rng(0)
    outcomes: Counter[str] = Counter()
    for _ in range(N_EDITS):
        document = json.loads(whole)
        alter_document(rng, document)
        (tmp_path / "rule.json").write_text(json.dumps(document))
        try:
            read = SavedRule.load(tmp_path / "rule.json")
        except ModelFileError:
            outcomes["refused"] += 1
            continue
        outcomes["read"] += 1
        confidence = read.rule.posterior(own, n_classes=len(read.classes)).confidence
        assert ((confidence >= 0) & (confidence <= 1)).all()
    assert min(outcomes["refused"], outcomes["read"]) > N_EDITS / 20


MANY, MANY_Y = drawn(150)
MANY_Q = drawn(60, seed=2)[0]


class TestRoundTrip:
    @pytest.mark.parametrize(
        "parameters",
        [
            {},
            {"rule": "sharpened"},
            {"rule": "ned", "objective": "brier"},
            {"temperature": 0.5},
            {"metric": "cosine", "unknown_share": 0.2},
            {"n_neighbors": "all", "max_fit_samples": 60, "random_state": 4},
            {"n_neighbors": np.int64(20), "unknown_share": np.float64(0.1)},
            {"prior": {"ant": 0.1, "bee": 0.2, "cow": 0.7}, "calibration": "shrunk"},
            {"head": "means", "prior": "uniform"},
            {"head": "logistic", "unknown_share": 0.2, "max_fit_samples": 60},
        ],
    )
    def test_everything_comes_back(self, parameters: dict[str, Any], tmp_path: Path) -> None:
        fitted = NEDClassifier(**parameters).fit(MANY.astype(np.float32), NAMES[MANY_Y])
        fitted.save(tmp_path / "model")
        loaded = NEDClassifier.load(tmp_path / "model")
        queries = MANY_Q.astype(np.float32)
        assert_same_answers(loaded, fitted, queries)
        np.testing.assert_array_equal(loaded.predict_proba(queries), fitted.predict_proba(queries))
        assert loaded.get_params() == fitted.get_params()
        assert loaded.rule_.to_dict() == fitted.rule_.to_dict()
        np.testing.assert_array_equal(loaded.fit_indices_, fitted.fit_indices_)
        assert_same_answers(loaded.refit(), fitted.refit(), queries)

    def test_a_file_of_version_3_is_read(self) -> None:
        """It had no heads, nor the parameter."""
        fitted = NEDClassifier(head=None).fit(MANY, NAMES[MANY_Y])
        manifest, tensors = read_model_bytes(fitted.to_bytes())
        del manifest["parameters"]["head"]
        header = {"format_version": 3, "manifest": manifest, "sha256": checksums(tensors)}
        loaded = NEDClassifier.from_bytes(altered_bytes(header, tensors))
        assert_same_answers(loaded, fitted, MANY_Q)
        assert loaded.get_params() == fitted.get_params()
        assert_same_answers(loaded.refit(), fitted, MANY_Q)

    @pytest.mark.parametrize(
        ("version", "remedy"), [(99, "Upgrade"), (2, "Fit and save"), (1, "Fit")]
    )
    def test_a_file_of_another_version_is_refused(
        self, tmp_path: Path, version: int, remedy: str
    ) -> None:
        header = json.dumps({"format_version": version, "manifest": {}, "sha256": {}})
        checksum = hashlib.sha256(header.encode()).hexdigest()
        save_file(
            {"a": np.ones(1)}, tmp_path / "new", metadata={"nearsure": header, "sha256": checksum}
        )
        with pytest.raises(ModelFileError, match=f"format version {version}, .* {remedy}"):
            NEDClassifier.load(tmp_path / "new")
