"""SHA-256 of small contents, without `hashlib`: that loads OpenSSL, which takes longer than a process needs to find a kept program."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hashlib import sha256 as _own
else:
    try:
        from _sha2 import sha256 as _own  # CPython's own, as `random` takes it
    except ImportError:
        try:
            from _sha256 import sha256 as _own  # before 3.12
        except ImportError:
            from hashlib import sha256 as _own

SMALL = 1 << 20  # bytes, from which OpenSSL's, which CPUs have instructions for, is faster by more than its import


def sha256(content: bytes) -> bytes:
    """Hashes a content."""
    if len(content) < SMALL:
        return _own(content).digest()
    from hashlib import sha256

    return sha256(content).digest()
