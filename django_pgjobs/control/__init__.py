"""What a program may do to jobs and to what claims them, and why a job does not run."""
