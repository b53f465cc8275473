import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_addnorm.training import (
    Cooldown,
    InverseSquareRootSchedule,
    NoamSchedule,
    ScheduleOfUpdates,
)


def rates(schedule, steps):
    return [float(schedule(step)) for step in steps]


def test_inverse_square_root_in_numbers():
    schedule = InverseSquareRootSchedule(peak_learning_rate=0.6, warmup_steps=4)
    np.testing.assert_allclose(
        rates(schedule, [0, 1, 2, 3, 4, 9, 16, 64, 400]),
        [0.0, 0.15, 0.3, 0.45, 0.6, 0.4, 0.3, 0.15, 0.06],
        rtol=1e-6,
    )


def test_noam_is_equation_3():
    def equation_3(step):
        return 512**-0.5 * min(step**-0.5, step * 4000**-1.5)

    steps = [1, 2, 17, 3999, 4000, 4001, 20_000, 10**6]
    schedule = NoamSchedule(hidden_dim=512, warmup_steps=4000)
    np.testing.assert_allclose(rates(schedule, steps), [equation_3(s) for s in steps], rtol=2e-6)
    assert rates(schedule, [0]) == [0.0]


def test_noam_in_numbers():
    schedule = NoamSchedule(hidden_dim=64, warmup_steps=4, factor=2.0)
    np.testing.assert_allclose(
        rates(schedule, [0, 2, 4, 16, 100]), [0.0, 0.0625, 0.125, 0.0625, 0.025], rtol=1e-6
    )


def test_a_warm_up_of_one_step_falls_at_once():
    schedule = InverseSquareRootSchedule(1.0, warmup_steps=1)
    np.testing.assert_allclose(rates(schedule, [0, 1, 4, 9]), [0, 1, 0.5, 1 / 3], rtol=1e-6)


def test_a_cooldown_is_the_schedule_and_then_a_line_down_to_zero():
    schedule = InverseSquareRootSchedule(0.3, warmup_steps=7)
    steps = np.arange(103)
    expected = np.array(rates(schedule, steps))
    expected[80:100] *= (100 - steps[80:100]) / 20
    expected[100:] = 0
    np.testing.assert_allclose(rates(Cooldown(schedule, 100, 20), steps), expected, rtol=1e-6)
    # What comes before it does not depend on it.
    longer = rates(Cooldown(schedule, 140, 20), steps)
    assert longer == rates(schedule, steps)


SCHEDULES = [
    InverseSquareRootSchedule(0.5, 10),
    NoamSchedule(7, warmup_steps=11, factor=0.3),
    Cooldown(InverseSquareRootSchedule(0.5, 10), 17, 8),
    ScheduleOfUpdates(Cooldown(NoamSchedule(7, warmup_steps=3), 13, 4), 3),
]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_round_trip(schedule):
    again = keras.optimizers.schedules.deserialize(
        keras.optimizers.schedules.serialize(schedule),
        custom_objects={type(schedule).__name__: type(schedule)},
    )
    assert type(again) is type(schedule)
    assert again.get_config() == schedule.get_config()
    optimizer = keras.optimizers.Adam(schedule)
    twin = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert twin._learning_rate.get_config() == schedule.get_config()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("step", [5, np.int64(5), tf.constant(5, tf.int64)])
def test_any_kind_of_step(schedule, step):
    assert schedule(step).dtype == tf.float32
    np.testing.assert_allclose(schedule(step), schedule(5.0))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_compiled_equals_eager(schedule):
    compiled = tf.function(schedule, jit_compile=True)
    steps = [0, 1, 9, 10, 11, 12, 1000]
    np.testing.assert_allclose(
        [compiled(tf.constant(s)) for s in steps], rates(schedule, steps), rtol=1e-6
    )


def test_the_optimizer_counts_updates_from_zero():
    """SGD with gradient 1 moves by the rate: 0, peak / 2, peak, peak · sqrt(2 / 3)."""
    variable = keras.Variable([0.0])
    optimizer = keras.optimizers.SGD(InverseSquareRootSchedule(1.0, warmup_steps=2))
    seen = []
    for _ in range(4):
        optimizer.apply([np.ones(1, "float32")], [variable])
        seen.append(-float(variable.numpy()[0]))
    np.testing.assert_allclose(np.diff([0.0, *seen]), [0, 0.5, 1, (2 / 3) ** 0.5], rtol=1e-6)


BAD = {
    "no warm-up": (lambda: NoamSchedule(512, warmup_steps=0), "warmup_steps must be an integer"),
    "fractional warm-up": (
        lambda: InverseSquareRootSchedule(0.1, warmup_steps=1.5),
        r"at least 1. Received: 1.5. For no warm-up at all, pass 1",
    ),
    "boolean warm-up": (lambda: InverseSquareRootSchedule(0.1, True), "Received: True"),
    "no peak": (
        lambda: InverseSquareRootSchedule(0.0, 10),
        "number above 0, finite in float32. Received: 0.0",
    ),
    "endless peak": (lambda: InverseSquareRootSchedule(float("inf"), 10), "Received: inf"),
    "peak as text": (lambda: InverseSquareRootSchedule("0.1", 10), "Received: '0.1'"),
    "no width": (lambda: NoamSchedule(0), "hidden_dim must be an integer of at least 1"),
    "endless cool-down": (
        lambda: Cooldown(InverseSquareRootSchedule(0.1, 10), 30, 31),
        "at most total_steps = 30. Received: 31",
    ),
    "no cool-down": (
        lambda: Cooldown(InverseSquareRootSchedule(0.1, 10), 30, 0),
        "cooldown_steps must be an integer of at least 1. Received: 0",
    ),
    "negative factor": (lambda: NoamSchedule(8, factor=-1.0), "factor must be a number above 0"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_are_named(case):
    make, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        make()
