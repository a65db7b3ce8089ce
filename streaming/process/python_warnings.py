"""Python's warnings are for who develops, and no user of a command sees one."""

from __future__ import annotations

import os
import sys
import warnings

#: The variable that tells a process of Python which warnings to print.
WARNINGS = "PYTHONWARNINGS"


def hide_warnings() -> None:
    """Have Python print no warning, here and in processes that are started later: Spark's workers, the source's.

    Whoever asks for them by ``PYTHONWARNINGS`` or an option of Python gets them.
    """
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
        os.environ[WARNINGS] = "ignore"
