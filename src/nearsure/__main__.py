"""``python -m nearsure`` is the `nearsure` command."""

from nearsure.command_line import main

if __name__ == "__main__":
    main()
