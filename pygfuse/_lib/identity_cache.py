"""A cache of what was computed from an object: keyed on its identity, kept while it lives and is not written
to."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Hashable, Iterator
from typing import Any


class _Entry:
    __slots__ = ('reference', 'state', 'values')

    def __init__(self, reference: weakref.ref, state: Hashable) -> None:
        self.reference = reference
        self.state = state
        # each with what it holds
        self.values: dict[Hashable, tuple[Any, object]] = {}


class IdentityCache:
    """Values by (object, key); an object's values go when it dies, or once its state is another.

    A key is a tuple that begins with a name for what is kept.

    Several threads may use it at once: every step is one operation on a dict, so there is no lock that a
    forked child could inherit closed.

    Args:
        state_of: The hashable state of an object; values computed in another state are never returned. None
            stands for an object whose changes cannot be noticed: nothing is kept for it.
    """

    def __init__(self, state_of: Callable[[Any], Hashable | None]) -> None:
        self._state_of = state_of
        self._entries: dict[int, _Entry] = {}
        # what is never kept is asked for as often as the rest: then no object's state is read
        self._kinds: set[Hashable] = set()
        self._noted: list[tuple[object, Hashable, Any]] | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, owner: object, key: tuple) -> Any | None:
        """The value kept for this object under this key, or None."""
        if key[0] not in self._kinds:
            return None
        entry = self._entries.get(id(owner))
        # an id is used again after its object died: the reference tells
        if entry is None or entry.reference() is not owner:
            return None
        found = entry.values.get(key)
        if found is None or entry.state != self._state_of(owner):
            return None
        if self._noted is not None:
            self._noted.append((owner, entry.state, found[0]))
        return found[0]

    def keep(self, owner: object, key: tuple, state: Hashable | None, value: Any, held: object = None) -> Any:
        """Keeps a value computed from an object; returns the one that is kept, the first of several.

        Args:
            owner: The object.
            key: What it is, and what else decided the value.
            state: The object's state when the value was computed.
            value: The value, not None; it must not hold the object.
            held: What must live as long as the value for the state to tell: memory whose address is part of it.
        """
        if state is None:
            return value
        self._kinds.add(key[0])
        identity = id(owner)
        entry = self._entries.get(identity)
        if entry is None:
            entry = self._entries.setdefault(identity, self._new_entry(owner, identity, state))
        if entry.reference() is not owner or entry.state != state:
            # a value of an earlier state does not push out those of the present one
            if self._state_of(owner) != state:
                return value
            entry = self._entries[identity] = self._new_entry(owner, identity, state)
        kept = entry.values.setdefault(key, (value, held))[0]
        if self._noted is not None:
            self._noted.append((owner, state, kept))
        return kept

    @contextlib.contextmanager
    def noting(self) -> Iterator[list[tuple[object, Hashable, Any]]]:
        """A ``with`` block in which what is found or kept is noted: the object, its state and the value."""
        before, self._noted = self._noted, []
        try:
            yield self._noted
        finally:
            self._noted = before

    def _new_entry(self, owner: object, identity: int, state: Hashable) -> _Entry:
        entries = self._entries

        def forget(reference: weakref.ref) -> None:
            entry = entries.get(identity)
            if entry is not None and entry.reference is reference:
                del entries[identity]

        return _Entry(weakref.ref(owner, forget), state)
