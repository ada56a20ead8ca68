"""What a program may do to jobs and to their claims, and why a job does not run."""
