"""The profiles inside of a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def profiles(page: Path) -> list[dict[str, Any]]:
    """Gives the profiles that a page shows."""
    text = page.read_text(encoding="utf-8")
    first = text.index('id="profile">') + len('id="profile">')
    found: Any = json.loads(text[first : text.index("</script>", first)])
    return found if isinstance(found, list) else [found]
