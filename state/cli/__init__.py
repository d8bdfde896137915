"""The command line of `state`: what can be said (`arguments`), what it does (`commands`), how it looks (`printing`)."""
