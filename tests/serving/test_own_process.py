"""What a process that only serves sets up, and undoes."""

import gc
import resource
import sys

from keras_addnorm.serving.server.own_process import own_process


def test_the_collector_passes_over_what_was_there_and_finds_what_comes():
    with own_process():
        assert gc.get_freeze_count() > 100_000  # all of TensorFlow
        assert len(gc.get_objects()) < 10_000
        circle = []
        circle.append(circle)
        del circle
        assert gc.collect() >= 1
    assert gc.get_freeze_count() == 0
    assert len(gc.get_objects()) > 100_000


def test_as_many_connections_as_the_system_allows():
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[0] - 1, limits[1]))
    try:
        with own_process():
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (limits[1], limits[1])
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (limits[0] - 1, limits[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_threads_change_often():
    usual = sys.getswitchinterval()
    with own_process():
        assert sys.getswitchinterval() == 0.001
    assert sys.getswitchinterval() == usual
