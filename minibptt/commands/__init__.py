"""The commands of the shell, a file each, with `add(subparsers)` and `run(options)`."""
