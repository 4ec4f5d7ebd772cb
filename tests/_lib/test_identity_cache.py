"""The cache keyed on identity and state."""

import gc
import weakref

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


def test_each_value_holds_what_its_state_needs():
    cache, owner, memory = IdentityCache(lambda owner: 0), Owner(), Owner()
    cache.keep(owner, 'one', 0, 'value')
    cache.keep(owner, 'other', 0, 'value', held=memory)
    gone = weakref.ref(memory)
    del memory
    assert gone() is not None
    del owner
    gc.collect()
    assert gone() is None


def test_a_value_of_an_earlier_state_does_not_push_out_those_of_the_present_one():
    cache, owner = IdentityCache(lambda owner: owner.state), Owner()
    owner.state = 1
    cache.keep(owner, 'key', 1, 'present')
    assert cache.keep(owner, 'other', 0, 'earlier') == 'earlier'
    assert (cache.get(owner, 'key'), cache.get(owner, 'other')) == ('present', None)
