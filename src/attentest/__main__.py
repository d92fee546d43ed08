"""``python -m attentest`` is the ``attentest`` command."""

from attentest.cli import main

if __name__ == "__main__":
    main()
