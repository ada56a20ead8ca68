"""Changes of many jobs at once: asking, doing, and telling how far they are."""
