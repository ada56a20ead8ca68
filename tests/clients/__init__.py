"""The clients for programs without Django, as real processes; each test runs with each."""
