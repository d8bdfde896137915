"""The pages that users read.

made/        the programs that write pages, draw docs/images and build the site
examples/    scripts for researchers, one per capability
"""
