"""Real `runjobs` processes: stopped, killed, paused, cut off, and what is left in the table."""
