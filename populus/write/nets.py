"""Nets by name, which are there without a download: nine of the onnx package, and one of ours that is trained, `digits`.

The weights of the nine are constants, so their outputs are of no use; their graphs are those of the trained nets.
"""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.dialects.support.errors import checked

NETS = ("bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet", "vgg19", "zfnet512")
TRAINED = "digits"
"""A net that `populus train` has trained on scikit-learn's images of handwritten digits; examples/digits/small.py made it."""
KNOWN = (TRAINED, *NETS)


def net(name: str) -> Path:
    """Finds the model of a net: `net("squeezenet")`. Raises PopulusError for another name, and if the package lacks its test data."""
    if checked(name, str, "name", "the name of a net, a text", PopulusError) not in KNOWN:
        raise PopulusError(f"no net '{name}'{did_you_mean(name, KNOWN)}")
    if name == TRAINED:
        return Path(__file__).parent / "digits" / "digits.onnx"
    import onnx

    path = Path(onnx.__file__).parent / "backend/test/data/light" / f"light_{name}.onnx"
    if not path.is_file():
        raise PopulusError(f"the installed onnx package has no {path.name}; its wheel has")
    return path


def model_path(text: str) -> str:
    """Gives the path that the argument MODEL stands for: a file, or a net by name if there is no such file.

    Raises PopulusError for what is neither but nearly the name of a net.
    """
    if Path(text).suffix or "/" in text or "\0" in text or Path(text).exists():
        return text
    if text in KNOWN:
        return str(net(text))
    if near := get_close_matches(text, KNOWN, 1):
        raise PopulusError(f"{text}: no such file, and no net that is here; did you mean '{near[0]}'?")
    return text
