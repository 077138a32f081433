"""``python -m gristmill``: the command line."""

import signal
import sys


def main() -> None:
    """Runs the command line, as the program ``gristmill`` does, and exits with its code."""
    # Python's handler only sets a flag that nothing reads here.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from . import _native

    _native.set_packages([folder for folder in sys.path if folder.endswith(("site-packages", "dist-packages"))])
    sys.exit(_native.main(sys.argv[1:]))


if __name__ == "__main__":
    main()
