"""``python -m aioflow.cli`` is ``aioflow``."""

from aioflow.cli import main

main(prog_name="aioflow")
