"""Lets ``python -m harness`` do what ``te-harness`` does."""

from harness.cli import main

if __name__ == "__main__":
    main()
