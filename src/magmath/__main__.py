"""`python -m magmath`: the command `magmath`."""

from magmath.cli.main import main

if __name__ == "__main__":
    main()
