"""What exists is not searched for garbage; what is made afterwards is."""

import gc
import weakref

import pytest

from keras_addnorm.basics.garbage import old_objects_exempt


class Cycle:
    def __init__(self):
        self.itself = self


@pytest.fixture(autouse=True)
def _nothing_is_exempt():
    gc.unfreeze()  # conftest.py exempts what was there before this file
    yield
    gc.unfreeze()


def test_old_cycles_stay_until_it_ends_and_new_ones_go():
    old = weakref.ref(Cycle())
    assert old() is not None
    with old_objects_exempt():
        new = weakref.ref(Cycle())
        gc.collect()
        assert new() is None and old() is not None
    assert gc.get_freeze_count() == 0
    gc.collect()
    assert old() is None


def test_it_ends_behind_an_error_too():
    with pytest.raises(KeyError), old_objects_exempt():
        raise KeyError
    assert gc.get_freeze_count() == 0


def test_what_a_program_exempts_itself_stays_exempt():
    gc.freeze()
    count = gc.get_freeze_count()
    with old_objects_exempt():
        pass
    assert gc.get_freeze_count() == count > 0
