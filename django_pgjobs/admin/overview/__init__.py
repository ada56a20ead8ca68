"""The Overview and the page Failures."""
