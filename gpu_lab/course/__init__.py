"""The course as files: builds, lints, prepares and runs its notebooks."""
