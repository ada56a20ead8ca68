"""The worker inside the test process: its statements, its roles, and whole workers in threads."""
