"""The page of one job, and what may be done to it."""
