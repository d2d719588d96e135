"""``python -m nearsure`` is the `nearsure` command."""

from nearsure.cli import main

if __name__ == "__main__":
    main()
