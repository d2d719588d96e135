"""Optional dependencies: imported late, and missed in one sentence."""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from nearsure.errors import MissingExtraError


def require(module: str, *, extra: str, purpose: str) -> ModuleType:
    """Import an optional dependency.

    Parameters
    ----------
    module : str
        Name of the module to import, for example ``"matplotlib.pyplot"``.
    extra : str
        The extra of nearsure that installs it.
    purpose : str
        What needs it, as the subject of the error's sentence.

    Returns
    -------
    module
        The imported module.

    Raises
    ------
    MissingExtraError
        If the module is not installed.

    Examples
    --------
    >>> require("no_such_module", extra="plot", purpose="A reliability diagram")
    Traceback (most recent call last):
    ...
    nearsure.errors.MissingExtraError: A reliability diagram needs no_such_module, which is not \
installed: pip install 'nearsure[plot]'
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        raise MissingExtraError(
            f"{purpose} needs {package}, which is not installed: pip install 'nearsure[{extra}]'"
        ) from error


def read_toml(text: str) -> dict[str, Any]:
    """What a TOML document holds; Python 3.10 needs tomli for it.

    Raises
    ------
    ValueError
        If it is not TOML.
    """
    name = "tomllib" if sys.version_info >= (3, 11) else "tomli"
    stored: dict[str, Any] = require(name, extra="serve", purpose="A TOML file").loads(text)
    return stored
