"""What a browser sends of a form as it was drawn: a test changes that, and makes up no field."""

from __future__ import annotations

from html.parser import HTMLParser


class _FormReader(HTMLParser):
    """Collects the fields of the form with certain attributes, and the values that they have."""

    def __init__(self, wanted: dict[str, str]) -> None:
        super().__init__()
        self.wanted = wanted
        self.fields: dict[str, str] = {}
        self._is_inside = False
        # The name of the list or text that is open, and what of it was read.
        self._name = ""
        self._text: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._is_inside = self.wanted.items() <= given.items()
        if not self._is_inside:
            return
        name = given.get("name", "")
        if tag == "input" and name and given.get("type") not in ("submit", "button", "file"):
            is_off = given.get("type") in ("checkbox", "radio") and "checked" not in given
            if not is_off:
                self.fields[name] = given.get("value", "")
        elif tag == "select":
            self._name = name
        elif tag == "option" and (self._name not in self.fields or "selected" in given):
            self.fields[self._name] = given.get("value", "")
        elif tag == "textarea":
            self._name, self._text = name, ""

    def handle_data(self, data: str) -> None:
        if self._text is not None:
            self._text += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._is_inside = False
        elif tag == "textarea" and self._text is not None:
            # A browser takes no notice of the line break that begins a text.
            self.fields[self._name] = self._text.removeprefix("\r").removeprefix("\n")
            self._text = None


def fields_of(page: str, **wanted: str) -> dict[str, str]:
    """Return what the form with these attributes, such as its id, would send."""
    reader = _FormReader(wanted)
    reader.feed(page)
    assert reader.fields, f"no form with {wanted} on the page"
    return reader.fields
