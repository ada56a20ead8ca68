"""From a call to one INSERT on Django's own connection."""
