"""What the structs of a case have in common."""

from __future__ import annotations

import msgspec


class Data(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"):
    """Common settings of all structs in a case: immutable, tagged, and strict about unknown fields."""
