"""The sections of a run's report, a file each: `section(run)` returns one, or None; the smallest ORDER comes first."""
