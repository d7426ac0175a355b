"""An installation of its own: the two scripts in a folder, as pip would put them there."""

import sys
from pathlib import Path

# A first line cannot name a Python whose path has blanks in it, so a shell reads this one first.
_SCRIPT = """\
#!/bin/sh
'''exec' "{python}" "$0" "$@"
' '''
import sys
from moorage.doors.{module} import main
sys.exit(main())
"""


def install_scripts(folder: Path) -> Path:
    """Put `moorage` and `moorage-hook` into a folder; its path."""
    folder.mkdir(parents=True)
    for name, module in (("moorage", "cli.main"), ("moorage-hook", "hooks.main")):
        write_script(folder / name, _SCRIPT.format(python=sys.executable, module=module))
    return folder


def write_script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)
