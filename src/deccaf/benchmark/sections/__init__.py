"""The sections of a benchmark's report, and their pictures."""
