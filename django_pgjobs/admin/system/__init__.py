"""The page System."""
