"""The cache keyed on identity and state."""

import gc

from pygfuse._lib.identity_cache import IdentityCache


class Owner:
    state = 0


def test_values_go_with_the_state_and_with_the_owner():
    cache = IdentityCache(lambda owner: owner.state)
    owner = Owner()
    assert cache.get(owner, 'key') is None
    assert cache.keep(owner, 'key', 0, 'value') == 'value'
    assert cache.keep(owner, 'key', 0, 'later') == 'value'
    assert cache.keep(owner, 'other', 0, 'beside') == 'beside'
    assert cache.get(owner, 'key') == 'value'
    owner.state = 1
    assert cache.get(owner, 'key') is None
    cache.keep(owner, 'key', 1, 'new')
    assert (cache.get(owner, 'key'), cache.get(owner, 'other'), len(cache)) == ('new', None, 1)
    del owner
    gc.collect()
    assert len(cache) == 0


def test_nothing_is_kept_without_a_state():
    cache = IdentityCache(lambda owner: None)
    owner = Owner()
    assert cache.keep(owner, 'key', None, 'value') == 'value'
    assert cache.get(owner, 'key') is None
    assert len(cache) == 0


def test_a_stranger_with_the_same_id_is_not_the_owner():
    cache = IdentityCache(lambda owner: 0)
    owner, stranger = Owner(), Owner()
    cache.keep(owner, 'key', 0, 'value')
    cache._entries[id(stranger)] = cache._entries[id(owner)]
    assert cache.get(stranger, 'key') is None
    assert cache.keep(stranger, 'key', 0, 'own') == 'own'
    assert cache.get(owner, 'key') == 'value'
