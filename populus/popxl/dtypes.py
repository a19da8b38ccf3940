"""PopXL's names of element types; each is the NumPy dtype of it."""

from __future__ import annotations

import numpy as np

dtype = np.dtype

float16, float32, float64 = np.dtype("float16"), np.dtype("float32"), np.dtype("float64")
int8, int16, int32, int64 = np.dtype("int8"), np.dtype("int16"), np.dtype("int32"), np.dtype("int64")
uint8, uint16, uint32 = np.dtype("uint8"), np.dtype("uint16"), np.dtype("uint32")
bool = np.dtype("bool")
