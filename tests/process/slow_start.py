"""A worker that imports this takes its time: it begins when the file TESTS_MAY_START is there."""

from __future__ import annotations

import os
import time
from pathlib import Path

while not Path(os.environ["TESTS_MAY_START"]).exists():
    time.sleep(0.01)
