"""The `nearsure` command: one file a command for what is typed, one for what is then done.

What is typed imports nothing heavy, so that help and shell completion come at once.
"""
