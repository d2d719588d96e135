"""Names that others rely on, and that the version is one."""

import subprocess
import sys
from importlib.metadata import version

import nearsure
from nearsure import displays, errors, metrics, robustness


def test_names_of_the_package() -> None:
    assert set(nearsure.__all__) == {
        "NEDClassifier",
        "Neighbors",
        "PairConfidence",
        "Posterior",
        "Prediction",
        "TemperatureFit",
        "fit_confidence",
        "fit_temperature",
        "leave_one_out",
        "open_engine",
        "score",
    }
    for package in (nearsure, metrics, displays, robustness):
        assert all(hasattr(package, name) for name in package.__all__)


def test_version_is_that_of_the_distribution() -> None:
    assert nearsure.__version__ == version("nearsure")


def test_every_error_has_one_root() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    for kind in kinds:
        assert issubclass(kind, errors.NearsureError | errors.FitWarning)
    assert "├── " in (errors.__doc__ or "")
    for kind in kinds:
        assert kind.__name__ in (errors.__doc__ or "")


def test_core_imports_without_any_extra() -> None:
    """In a process of its own, with the optional packages hidden."""
    program = """
import sys
for hidden in ("matplotlib", "mpl_toolkits"):
    sys.modules[hidden] = None
import nearsure, nearsure.metrics, nearsure.comparison, nearsure.displays
from nearsure.errors import MissingExtraError
try:
    nearsure.displays.ReliabilityDisplay.from_predictions([0.5, 0.9], [0, 1]).plot()
except MissingExtraError as error:
    assert "pip install 'nearsure[plot]'" in str(error), error
else:
    raise SystemExit("drew without matplotlib")
"""
    # Old versions of faiss look for a module of numpy by the name that it had.
    known = "ignore:numpy.core._multiarray_umath:DeprecationWarning"
    command = [sys.executable, "-W", "error", "-W", known, "-c", program]
    subprocess.run(command, check=True)  # noqa: S603
