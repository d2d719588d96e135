"""What comes in by another type than numpy's, and names that type checkers know."""

from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from nearsure import NEDClassifier
from nearsure.arrays import AnyArray
from nearsure.calibration import CALIBRATORS, CalibratorName
from nearsure.classifier.parameters import CalibrationChoice, HeadChoice, RuleChoice
from nearsure.cli import options
from nearsure.engines.sqlite import SqliteEngine
from nearsure.errors import InvalidInputError
from nearsure.forms.sharpened import SHARPENED_NAMES
from nearsure.heads.joint import TITLES
from nearsure.rules import RULE_NAMES

DIGITS, CODES = load_digits(return_X_y=True)
GALLERY, QUERIES = DIGITS[:300], DIGITS[300:340]
PAIRS = [("odd" if code % 2 else "even", int(code)) for code in CODES]


def test_choices_are_those_that_there_are() -> None:
    assert set(get_args(RuleChoice)) == {"auto", *RULE_NAMES, *SHARPENED_NAMES}
    assert set(get_args(CalibratorName)) == set(CALIBRATORS)
    assert set(get_args(CalibrationChoice)) == {"auto", *CALIBRATORS}
    assert set(get_args(HeadChoice)) == {"auto", *TITLES}


def test_choices_of_the_command_line_are_the_same() -> None:
    assert set(get_args(options.RuleName)) == set(get_args(RuleChoice))
    assert set(get_args(options.CalibrationName)) == set(get_args(CalibrationChoice))
    assert set(get_args(options.HeadName)) == {*get_args(HeadChoice), "none"}


def test_parameters_have_the_names_of_scikit_learn() -> None:
    classifier = NEDClassifier().fit(X=GALLERY, y=CODES[:300])
    np.testing.assert_array_equal(classifier.predict(X=QUERIES), classifier.predict(QUERIES))
    np.testing.assert_array_equal(
        classifier.predict_proba(X=QUERIES), classifier.predict_proba(QUERIES)
    )


def test_a_pipeline_gives_confidence_by_its_last_step() -> None:
    pipeline = make_pipeline(StandardScaler(), NEDClassifier()).fit(GALLERY, CODES[:300])
    found = pipeline[-1].predict_with_confidence(pipeline[:-1].transform(QUERIES))
    np.testing.assert_array_equal(found.labels, pipeline.predict(QUERIES))
    np.testing.assert_allclose(found.confidence, pipeline.predict_proba(QUERIES).max(axis=1))


class TestTuples:
    def test_tuples_are_labels(self) -> None:
        """The answers are those to the same classes by another name, in the same order."""
        plain = NEDClassifier().fit(GALLERY, [f"{kind} {code}" for kind, code in PAIRS[:300]])
        classifier = NEDClassifier().fit(GALLERY, PAIRS[:300])
        assert classifier.classes_.tolist() == sorted(set(PAIRS))
        found = classifier.predict_with_confidence(QUERIES)
        assert [f"{kind} {code}" for kind, code in found.labels] == plain.predict(QUERIES).tolist()
        assert found[0].label == found.labels[0]
        assert str(found.labels[0]) in str(found)
        codes = classifier.encode(PAIRS[300:340])
        assert [classifier.classes_[code] for code in codes] == PAIRS[300:340]
        assert classifier.encode([("odd", 2)]).tolist() == [10]

    def test_tuples_are_added_relabelled_and_held_by_sets(self) -> None:
        classifier = NEDClassifier(rule="ned").fit(GALLERY, PAIRS[:300])
        ids = classifier.add(QUERIES[:2], [("odd", 11), PAIRS[0]])
        assert classifier.support_labels(ids).tolist() == [("odd", 11), PAIRS[0]]
        classifier.relabel(ids, [PAIRS[1], ("odd", 11)])
        assert classifier.support_labels(ids).tolist() == [PAIRS[1], ("odd", 11)]
        sets = classifier.predict_set(QUERIES)
        held = [own in labels for own, labels in zip(PAIRS[300:340], sets.to_list(), strict=True)]
        assert sets.contains(PAIRS[300:340]).tolist() == held

    def test_tuples_are_not_saved(self, tmp_path: Path) -> None:
        classifier = NEDClassifier(rule="ned").fit(GALLERY, PAIRS[:300])
        with pytest.raises(InvalidInputError, match="Got tuple instead: fit with the text"):
            classifier.save(tmp_path / "model")

    def test_tuples_are_refused_by_a_file(self, tmp_path: Path) -> None:
        with SqliteEngine.create(tmp_path / "gallery.sqlite", 64) as engine:
            with pytest.raises(InvalidInputError):
                NEDClassifier(rule="ned", engine=engine).fit(GALLERY, PAIRS[:300])
            assert engine.size() == 0


class TestBfloat16:
    """Each number of bfloat16 is one of float32, so that answers are the same to the last bit."""

    # Whole numbers up to 16 are numbers of bfloat16; these are others.
    rounded: AnyArray

    @pytest.fixture(autouse=True)
    def _round(self) -> None:
        bits = (DIGITS[:340] / 7).astype(np.float32).view(np.uint32)
        self.rounded = (bits & np.uint32(0xFFFF0000)).view(np.float32)

    def check(self, gallery: AnyArray, queries: AnyArray) -> None:
        plain = NEDClassifier().fit(self.rounded[:300], CODES[:300])
        truth = plain.predict_with_confidence(self.rounded[300:])
        found = NEDClassifier().fit(gallery, CODES[:300]).predict_with_confidence(queries)
        np.testing.assert_array_equal(found.labels, truth.labels)
        np.testing.assert_array_equal(found.confidence, truth.confidence)
        np.testing.assert_array_equal(plain.predict(queries), truth.labels)
        ids = plain.add(queries[:20], CODES[300:320])
        nearest = plain.kneighbors(self.rounded[300:320], 1).ids
        np.testing.assert_array_equal(nearest, ids[:, None])

    def test_of_torch(self) -> None:
        torch = pytest.importorskip("torch")
        tensor = torch.from_numpy(self.rounded).to(torch.bfloat16)
        assert (tensor.float().numpy() == self.rounded).all()
        self.check(tensor[:300], tensor[300:])

    def test_of_torch_with_a_gradient_row_by_row(self) -> None:
        torch = pytest.importorskip("torch")
        tensor = torch.from_numpy(self.rounded).to(torch.bfloat16).requires_grad_()
        self.check(tensor[:300], list(tensor[300:]))  # type: ignore[arg-type]

    def test_of_ml_dtypes(self) -> None:
        ml_dtypes = pytest.importorskip("ml_dtypes")
        narrow = self.rounded.astype(ml_dtypes.bfloat16)
        self.check(narrow[:300], narrow[300:])
