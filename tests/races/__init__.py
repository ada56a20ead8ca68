"""Two connections at once, ordered by the locks they wait for."""
