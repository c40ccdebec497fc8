"""How Transformer Engine is to be tested, as one word of the user's."""

from __future__ import annotations

CORRECTED = "corrected"
"""What the installed TE lacks of the fix is applied."""

INSTALLED = "installed"
"""TE is taken as it is."""

_MUTANT = "mutant:"


def is_te_mode(text: str) -> bool:
    """Tell whether a text is a TE mode; whether there is such a mutant is found once TE is looked for."""
    return text in (CORRECTED, INSTALLED) or mutant_of(text) is not None


def mutant_of(text: str) -> str | None:
    """Return the id of the mutant that a TE mode names, None where it names none."""
    return text.removeprefix(_MUTANT) if text.startswith(_MUTANT) else None


def with_mutant(name: str) -> str:
    """Return the TE mode that is ``corrected`` with a mutant planted."""
    return _MUTANT + name
