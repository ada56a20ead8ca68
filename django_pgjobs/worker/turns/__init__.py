"""Round trips of many statements, and the way around rows that are locked or refused."""
