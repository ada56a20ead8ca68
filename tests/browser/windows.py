"""A window of the browser that notes what no page of ours may do."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

# What a browser says of each answer that is not 200, be it meant or not.
STATUS_NOTE = "Failed to load resource: the server responded with a status of"


class Watch:
    """What happened in a window: errors, requests to other sites, dialogs that opened."""

    def __init__(self, page: Any, address: str) -> None:
        self.troubles: list[str] = []
        self._origin = urlsplit(address)[:2]
        page.on("console", self._see_console)
        page.on("pageerror", lambda error: self.troubles.append(f"script error: {error}"))
        page.on("request", self._see_request)
        page.on("dialog", self._see_dialog)

    def _see_console(self, message: Any) -> None:
        if message.type == "error" and not message.text.startswith(STATUS_NOTE):
            self.troubles.append(f"console: {message.text}")

    def _see_request(self, request: Any) -> None:
        parts = urlsplit(request.url)
        if parts[:2] != self._origin and parts.scheme not in ("data", "blob"):
            self.troubles.append(f"asked {request.url}")

    def _see_dialog(self, dialog: Any) -> None:
        self.troubles.append(f"dialog: {dialog.message}")
        dialog.dismiss()


def is_too_wide(page: Any) -> bool:
    """Can the page be scrolled sideways?"""
    return bool(page.evaluate("document.documentElement.scrollWidth > window.innerWidth"))


def find_cut(page: Any) -> list[str]:
    """Return what can be seen only by scrolling a table sideways, by its class or caption."""
    found: list[str] = page.evaluate(
        """() => [...document.querySelectorAll(".pgjobs-scroll, #changelist-form .results")]
            .filter(box => box.scrollWidth > box.clientWidth)
            .map(box => {
                const table = box.querySelector("table");
                const name = table.caption?.innerText || table.className;
                return `${name}: ${box.scrollWidth - box.clientWidth} px`;
            })"""
    )
    return found


def find_widest(page: Any) -> list[str]:
    """Return the elements that reach furthest out of the window, for the message of a test."""
    found: list[str] = page.evaluate(
        """() => [...document.querySelectorAll("body *")]
            .filter(e => !e.closest(".pgjobs-scroll") || e.matches(".pgjobs-scroll"))
            .map(e => [e.getBoundingClientRect(), e])
            .filter(([r, e]) => r.width > 0 && (r.right > innerWidth + 1 || r.left < -1))
            .slice(0, 8)
            .map(([r, e]) => `${e.tagName}.${e.className}#${e.id} ${r.left}..${r.right}`)"""
    )
    return found
