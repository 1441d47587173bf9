"""The course as files: finds and runs its notebooks, writes the run folder."""
