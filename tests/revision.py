"""``./dev revision "Add budgets"``: draft a revision from what has changed in ``db/schema.py``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine

from daskscope_service.db import migrations, revisions


def main(message: str) -> None:
    """Write the file of the next revision, and say what is left to do."""
    number = f"{int(revisions.known()[-1]) + 1:04}"
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        revisions.upgrade(connection)
        config.attributes["connection"] = connection
        command.revision(config, message, autogenerate=True, rev_id=number)
    (file,) = Path(migrations.__file__).parent.glob(f"versions/{number}_*.py")
    subprocess.run([sys.executable, "-m", "ruff", "format", "--quiet", str(file)], check=True)
    print(f"{file}: read it, it knows of tables and nothing of what is in them")
    print(f"tests/service/revisions/r{number}.py: write it, with rows of the new tables")


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    main(sys.argv[1])
