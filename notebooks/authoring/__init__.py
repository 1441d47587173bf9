"""Tools of those who write the course: lint, build, prepare for nbval, count the code.

They need a checkout and the extra `dev`, so they do not travel in the package.
"""
