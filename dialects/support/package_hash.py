"""Hash of this package's source files, for caches of what they make."""

from __future__ import annotations

import os
from functools import lru_cache

_ABOVE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # of `dialects`
# The folders with this package's files: one where it is installed; in a clone `populus` and those beside it.
FOLDERS = (
    [_ABOVE]
    if os.path.basename(_ABOVE) == "populus" and os.path.isfile(os.path.join(_ABOVE, "__init__.py"))
    else [os.path.join(_ABOVE, name) for name in ("populus", "dialects", "lowering", "runtime", "tools")]
)

# The folders of what compiles a model, which import no others of the package.
COMPILER = [*(os.path.join(_ABOVE, name) for name in ("dialects", "lowering", "runtime")), os.path.join(FOLDERS[0], "program")]


@lru_cache(1)
def package_hash() -> str:
    """Hashes the name and content of each source file of the package. It takes some 15 ms, once a process."""
    return hash_of_sources(*FOLDERS)


@lru_cache(1)
def engine_hash() -> str:
    """Hashes the source files that make machine code: those of `dialects` and `runtime`, which import no others of the package."""
    return hash_of_sources(COMPILER[0], COMPILER[2])


def hash_of_sources(*roots: str) -> str:
    """Hashes the names and contents of source files below folders. Names are those of an installed package, as in a clone."""
    found = dict[str, str]()  # path by name
    for root in roots:
        above = len(root if os.path.basename(root) == "populus" else os.path.dirname(root)) + 1
        folders = [root]
        while folders:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.name.endswith((".py", ".c", ".h", ".txt")):
                        found[entry.path[above:]] = entry.path
                    elif entry.name != "__pycache__" and entry.is_dir():
                        folders.append(entry.path)
    from hashlib import sha256  # which loads OpenSSL

    digest = sha256()
    for name, path in sorted(found.items()):
        with open(path, "rb", buffering=0) as file:
            content = file.readall()
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()
