"""Values on their way into rows and out of them: arguments, results, secrets, times."""
