"""One short function per stage: files in, files out; `python -m rangeline.stages NAME` runs a data stage."""
