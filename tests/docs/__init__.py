"""What strangers read, held against what exists: tables, links, file names."""
