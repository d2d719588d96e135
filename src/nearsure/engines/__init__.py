"""Places that hold vectors and find the nearest, behind one small contract."""

from nearsure.engines.contract import Capabilities, Engine, Fingerprint, Found, Stored
from nearsure.engines.hits import Hits, found_from_hits
from nearsure.engines.simple import SimpleEngine

__all__ = [
    "Capabilities",
    "Engine",
    "Fingerprint",
    "Found",
    "Hits",
    "SimpleEngine",
    "Stored",
    "found_from_hits",
]
