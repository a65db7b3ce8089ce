"""Versions of what reput keeps for itself: those of every release so far are read, and those of later ones refused."""

from __future__ import annotations

from reput.source.errors import LaterFormatError

#: Of what names no version, as files do that had none at first.
FIRST = 1


def check_format(what: object, found: object, known: int, *, file: object = None) -> int:
    """The version `found` in `what`, if this release reads it.

    Parameters
    ----------
    what
        What has the version, for the error's text: a path, in most cases.
    known
        The last version that this release reads.
    file
        The file that has it, as in ``ReputError``.

    Raises
    ------
    LaterFormatError
        A later release wrote it. It must neither be taken for damaged nor be written over.
    ValueError
        It is no version at all.
    """
    if type(found) is not int or found < FIRST:
        raise ValueError(f"its version is {found!r}")
    if found > known:
        raise LaterFormatError(
            f"{what} has format {found}, which a later release of reput wrote; this one reads formats up to {known}",
            advice="go on with that release or a later one",
            file=file,
        )
    return found
