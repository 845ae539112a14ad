"""`python -m deccaf` is the command `deccaf`."""

from deccaf.cli import main

if __name__ == "__main__":
    main()
