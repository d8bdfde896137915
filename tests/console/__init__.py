"""The console in a real browser: Debian's Chromium, driven by Playwright, over the real app and engines that obey.

    stage.py     the server: engines whose states a test sets, stopped and started at the same port
    tabs.py      the browser, and a tab that remembers what went wrong in it
    pictures.py  the pictures of the docs, run by hand
    conftest.py  fixtures `chromium`, `stage`, `tab` and `open_tab`

`make setup-browser` installs Playwright into .venv/browser and axe-core into tests/console/node_modules. Then

    python -m pytest -q tests/console

With Playwright in another folder: `make setup-browser PLAYWRIGHT=folder`, `PLAYWRIGHT=folder python -m pytest ...`.
Without Chromium or Playwright the tests are skipped, and fail in CI. A test whose tab saw a violation of the content
security policy or an uncaught error fails when the tab is closed.
"""
