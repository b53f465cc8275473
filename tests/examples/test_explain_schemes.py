"""The example that makes docs/add_and_norm_by_hand.html."""

import pytest

from keras_addnorm import explain


def test_the_recipe_is_small_enough_for_the_page(load_example):
    with load_example("explain_schemes") as example:
        assert set(example.SCHEMES) <= set(explain.explained_schemes())
        assert example.RECIPE.training.monitor_every > 0


@pytest.mark.release
def test_it_runs(load_example, capsys):
    with load_example("explain_schemes") as example:
        example.main(example.parser().parse_args(["--smoke"]))
    out = capsys.readouterr().out
    assert "pre_ln: 16 bits move logits by" in out
