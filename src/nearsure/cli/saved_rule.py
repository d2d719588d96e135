"""What `nearsure calibrate` has learned, as one JSON file."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, get_args

import numpy as np

from nearsure.arrays import AnyArray
from nearsure.classifier import FittedRule
from nearsure.cli.calibrate import DistanceName
from nearsure.cli.checked_files import writing
from nearsure.errors import ModelFileError
from nearsure.whole_files import write_text_whole

KIND, VERSION = "nearsure rule", 1


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
        with writing("--save", path):
            write_text_whole(path, json.dumps(document, allow_nan=False) + "\n")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read the file, and check all that it says."""
        document = _document(path)
        version = document.get("version")
        if isinstance(version, int) and version > VERSION:
            raise ModelFileError(
                f"{path} has version {version}, and this nearsure reads up to {VERSION}. Upgrade "
                "nearsure: pip install --upgrade nearsure"
            )
        try:
            rule = FittedRule.from_dict(document["rule"])
            classes, distance = document["classes"], document["distance"]
            n_neighbors = document["n_neighbors"]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _altered(path) from error
        whole = (
            version == VERSION
            and distance in get_args(DistanceName)
            and type(n_neighbors) is int
            and n_neighbors >= 1
            and _are_labels(classes)
            and rule.class_sizes is not None
            and rule.class_sizes.shape == (len(classes),)
        )
        if not whole:
            raise _altered(path)
        return cls(rule, np.array(classes), distance, n_neighbors)


def _document(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(f"There is no rule at {path}.")
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, ValueError) as error:
        raise ModelFileError(f"{path} is not JSON: {error}. --save writes a rule.") from error
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise ModelFileError(f"{path} is JSON, but no rule. nearsure calibrate --save writes one.")
    return document


def _are_labels(classes: object) -> bool:
    if not isinstance(classes, list) or not classes or len(set(map(str, classes))) != len(classes):
        return False
    return all(type(label) is str for label in classes) or all(
        type(label) is int for label in classes
    )


def _altered(path: Path) -> ModelFileError:
    return ModelFileError(f"{path} has been altered or cut off. Fit again with --save.")
