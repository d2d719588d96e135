"""faiss, of whose names its own type stubs know only some."""

from typing import Any

import faiss as _faiss

faiss: Any = _faiss
