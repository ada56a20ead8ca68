#!/usr/bin/env python3
"""Django's command line for the example project."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    """Run the management command named on the command line."""
    # The repository's root instead of this folder: the package beside this project is
    # importable without being installed, and the shop has one name only.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
