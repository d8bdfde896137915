"""What several owners share, and who is next. Pure Python: it knows no engine, no request and no Ray.

child.py        a child process that runs one program apart, and can be killed at any time
"""
