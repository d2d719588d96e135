"""The rule that `nearsure calibrate` saves, as one JSON file."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, get_args

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.atomic import write_text_whole
from nearsure.classifier import FittedRule
from nearsure.cli.calibrate import DistanceName
from nearsure.cli.files import translate_errors
from nearsure.errors import ModelFileError
from nearsure.labels import text_array
from nearsure.schema import OBJECT, TEXT, Field, either, integer, list_of, misfit, one_of

KIND, VERSION = "nearsure rule", 1
_LABELS = either(list_of(TEXT), list_of(integer(-(2**63), 2**63 - 1)))
_STORED = {
    "kind": one_of(KIND),
    "version": integer(VERSION, VERSION),
    "distance": one_of(*get_args(DistanceName)),
    "n_neighbors": integer(1),
    "classes": Field(
        "distinct labels",
        lambda names: _LABELS.fits(names) and 0 < len(names) == len(set(names)),
    ),
    "rule": OBJECT,
}


@dataclass(frozen=True, eq=False)
class SavedRule:
    """A fitted rule, and what its numbers mean.

    Parameters
    ----------
    rule : FittedRule
        Takes neighbours with class codes.
    classes : array of shape (n_classes,)
        Labels that codes stand for: integers or strings.
    distance : str
        What the engine calls a distance.
    n_neighbors : int
        How many neighbours each point had when it was fitted.
    """

    rule: FittedRule
    classes: AnyArray
    distance: DistanceName
    n_neighbors: int

    def save(self, path: Path) -> None:
        """Write the file, whole or not at all."""
        document = {
            "kind": KIND,
            "version": VERSION,
            "distance": self.distance,
            "n_neighbors": self.n_neighbors,
            "classes": self.classes.tolist(),
            "rule": self.rule.to_dict(),
        }
        with translate_errors("--save", path):
            write_text_whole(path, json.dumps(document, allow_nan=False) + "\n")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read the file, and check all that it says."""
        document = _rule_document(path)
        version = document.get("version")
        if isinstance(version, int) and version > VERSION:
            raise ModelFileError(
                f"{path} has version {version}, and this nearsure reads up to {VERSION}. Upgrade "
                "nearsure: pip install --upgrade nearsure"
            )
        if misfit(document, _STORED) is not None:
            raise _altered(path)
        names = document["classes"]
        try:
            rule = FittedRule.from_dict(document["rule"])
            is_text = isinstance(names[0], str)
            classes = text_array(names, path.stat().st_size) if is_text else np.array(names)
        except ModelFileError as error:
            raise _altered(path) from error
        if rule.class_sizes is None or rule.class_sizes.shape != classes.shape:
            raise _altered(path)
        return cls(rule, classes, document["distance"], document["n_neighbors"])


def _rule_document(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(f"There is no rule at {path}.")
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path} is not JSON: {error}. --save writes a rule.") from error
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise ModelFileError(f"{path} is JSON, but no rule. nearsure calibrate --save writes one.")
    return document


def _altered(path: Path) -> ModelFileError:
    return ModelFileError(f"{path} has been altered or cut off. Fit again with --save.")
