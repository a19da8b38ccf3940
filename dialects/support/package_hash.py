"""Hash of this package's source files, for caches of what they make."""

from __future__ import annotations

import hashlib
import os
from functools import lru_cache


@lru_cache(1)
def package_hash() -> str:
    """Hashes the name and content of each source file of the package. It takes some 15 ms, once a process."""
    # .../populus/dialects/support/package_hash.py, as the package is imported: a path that is not resolved stays in it.
    return hash_of_sources(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


def hash_of_sources(root: str) -> str:
    """Hashes the name and content of each source file below a folder."""
    digest = hashlib.sha256()
    for folder, folders, names in os.walk(root, followlinks=True):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(names):
            if name.endswith((".py", ".c", ".h", ".txt")):
                path = os.path.join(folder, name)
                with open(path, "rb") as file:
                    content = file.read()
                digest.update(f"{os.path.relpath(path, root)}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()
