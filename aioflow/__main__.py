"""``python -m aioflow`` is ``aioflow``."""

from aioflow.cli import main

main(prog_name="aioflow")
