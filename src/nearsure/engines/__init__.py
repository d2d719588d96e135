"""Places that hold vectors and find the nearest, behind one small contract."""

from nearsure.engines.contract import Capabilities, Engine, Fingerprint, Found, Stored
from nearsure.engines.hits import Hits, found_from_hits

__all__ = [
    "Capabilities",
    "Engine",
    "Fingerprint",
    "Found",
    "Hits",
    "Stored",
    "found_from_hits",
]
