"""The page Workers."""
