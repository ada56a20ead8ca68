"""Noticing that the code of the project changes, while somebody works on it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from django.utils import autoreload


def watch_files(on_change: Callable[[str], None]) -> None:
    """Call *on_change* when a module of the project changes, with Django's own reloader."""

    def notice(sender: Any, file_path: Any, **kwargs: Any) -> bool:
        on_change(f"{file_path} changed")
        return True

    autoreload.file_changed.connect(notice, weak=False, dispatch_uid="django_pgjobs.reload")
    reloader = autoreload.get_reloader()
    threading.Thread(
        target=reloader.run, args=(threading.main_thread(),), name="pgjobs-reload", daemon=True
    ).start()
