"""The pages that users read.

made/        the programs that write docs/errors.md and docs/reference.md
examples/    scripts for researchers, one per capability
"""
