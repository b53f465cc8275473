"""The settings of a folder's searches mean what transformers means by them."""

import dataclasses
import warnings

import numpy as np
import pytest
import torch

from keras_addnorm.decoding import (
    AveragePenalty,
    Beam,
    ForbiddenTokens,
    Greedy,
    MaxLength,
    MinLength,
    Sample,
)
from keras_addnorm.interop import GenerationSettings
from keras_addnorm.interop.families import generation_settings as module
from keras_addnorm.models import Seq2SeqConfig

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

transformers.logging.set_verbosity_error()

TABLES = {
    "followed": set(module._FOLLOWED),
    "others": set(module._OTHERS),
    "ids": set(module.SPECIAL_IDS),
    "without effect": set(module._WITHOUT_EFFECT),
}


def test_every_field_of_transformers_has_its_place():
    theirs = {name for name in vars(transformers.GenerationConfig()) if not name.startswith("_")}
    assert set.union(*TABLES.values()) == theirs
    assert sum(map(len, TABLES.values())) == len(theirs)  # one place each


@pytest.mark.parametrize(
    "mode", [{}, {"num_beams": 4}, {"do_sample": True}], ids=["greedy", "beam", "sample"]
)
def test_the_defaults_of_transformers_are_followed(mode):
    defaults = transformers.GenerationConfig._get_default_generation_params()
    found = GenerationSettings.of({**defaults, **mode}, 64)
    assert found.not_followed == () and found.constraints == ()
    # All are written as they came.
    assert found.to_dict() == {**defaults, **mode}


# A value that changes outputs, and the modes in which it does.
ALL = ("greedy", "beam", "sample")
CHANGES = {
    "max_time": (9.5, ALL),
    "stop_strings": (["stop"], ALL),
    "min_p": (0.1, ("sample",)),
    "top_h": (0.4, ("sample",)),
    "typical_p": (0.5, ("sample",)),
    "epsilon_cutoff": (3e-4, ("sample",)),
    "eta_cutoff": (3e-4, ("sample",)),
    "repetition_penalty": (1.3, ALL),
    "encoder_repetition_penalty": (1.3, ALL),
    "encoder_no_repeat_ngram_size": (3, ALL),
    "renormalize_logits": (True, ()),  # where no token is ruled out
    "forced_eos_token_id": (2, ALL),
    "exponential_decay_length_penalty": ([5, 1.5], ALL),
    "begin_suppress_tokens": ([5], ALL),
    "sequence_bias": ([[[5], -1.0]], ALL),
    "token_healing": (True, ALL),
    "guidance_scale": (1.5, ALL),
    "watermarking_config": ({"bias": 2.5}, ALL),
    "num_return_sequences": (3, ALL),
    "is_assistant": (True, ALL),
    "penalty_alpha": (0.6, ("greedy",)),
    "dola_layers": ("high", ("greedy", "sample")),
    "diversity_penalty": (0.5, ("beam",)),
    "num_beam_groups": (2, ("beam",)),
    "constraints": ([1], ALL),
    "force_words_ids": ([[5]], ALL),
}


def test_what_has_no_counterpart_is_said_where_it_matters():
    assert CHANGES.keys() == TABLES["others"]
    modes = {"greedy": {}, "beam": {"num_beams": 4}, "sample": {"do_sample": True}}
    for name, (value, matters) in CHANGES.items():
        for mode, settings in modes.items():
            found = GenerationSettings.of({**settings, name: value}, 64)
            expected = (f"{name} = {value!r}",) if mode in matters else ()
            assert found.not_followed == expected, (name, mode)
            neutral = [{**settings, name: each} for each in module._OTHERS[name].neutral]
            assert all(GenerationSettings.of(each, 64).not_followed == () for each in neutral)
    # What says how to compute, and how to return.
    quiet = dict.fromkeys(TABLES["without effect"], True)
    assert GenerationSettings.of(quiet, 64).not_followed == ()


def test_settings_that_are_followed_in_part():
    # It divides by what rules leave: nothing to do without a rule.
    ruled = {"num_beams": 4, "renormalize_logits": True, "bad_words_ids": [[7]]}
    assert GenerationSettings.of(ruled, 64).not_followed == ("renormalize_logits = True",)
    assert GenerationSettings.of(ruled, 64, end_id=7).not_followed == ()
    assert GenerationSettings.of({**ruled, "num_beams": 1}, 64).not_followed == ()
    beam_sample = GenerationSettings.of({"num_beams": 4, "do_sample": True}, 64)
    assert beam_sample.strategy == Beam(4, AveragePenalty(1.0), early_stopping=False)
    assert beam_sample.not_followed == ("do_sample = True",)
    assert beam_sample.to_dict() == {"num_beams": 4, "do_sample": True}
    assert GenerationSettings.of({"do_sample": True}, 64).not_followed == ()
    # The end is no bad word there, and a suppressed token all the same.
    bad = {"bad_words_ids": [[2], [7], [8, 9]]}
    found = GenerationSettings.of(bad, 64, end_id=2)
    assert found.constraints == (ForbiddenTokens((7,)),)
    assert found.not_followed == ("bad_words_ids = [[8, 9]]",)
    suppressed = GenerationSettings.of({"suppress_tokens": [2]}, 64, end_id=2)
    assert suppressed.constraints == (ForbiddenTokens((2,)),)
    assert GenerationSettings.of({"bad_words_ids": [[2]]}, 64, end_id=2).constraints == ()
    assert GenerationSettings.of({"eos_token_id": [2, 5]}, 64).not_followed == (
        "eos_token_id = [2, 5]",
    )
    # An end that never comes; theirs warns and cuts off.
    impossible = GenerationSettings.of({"min_length": 30, "max_length": 21}, 64)
    assert impossible.constraints == () and impossible.not_followed == ("min_length = 30",)
    longer = GenerationSettings.of({"max_new_tokens": 99}, 64)
    assert longer.max_length == 64 and longer.not_followed == ("max_new_tokens = 99",)


def test_a_way_back_keeps_what_is_not_followed():
    said = {
        **{"num_beams": 6, "max_new_tokens": 30, "bad_words_ids": [[29], [8, 9]]},
        **{"renormalize_logits": True, "forced_eos_token_id": 0, "suppress_tokens": [4]},
        **{"bos_token_id": 0, "eos_token_id": [0, 3], "transformers_version": "4.32.0"},
    }
    found = GenerationSettings.of(said, 64, end_id=0)
    assert found.to_dict() == said
    config = Seq2SeqConfig(30, 30, pad_id=29, start_id=29, end_id=0)
    ids = {"pad_token_id": 29, "decoder_start_token_id": 29}
    assert found.to_file(config) == {**said, **ids}
    changed = dataclasses.replace(
        found, strategy=Greedy(), max_length=20, constraints=(ForbiddenTokens((5,)), MinLength(3))
    )
    same = ("renormalize_logits", "forced_eos_token_id", "bos_token_id", "transformers_version")
    assert changed.to_dict() == {
        **{name: said[name] for name in same},
        **{"eos_token_id": [0, 3], "num_beams": 1, "do_sample": False, "length_penalty": 0.0},
        **{"max_length": 21, "bad_words_ids": [[5], [8, 9]], "min_length": 3},
    }
    for rule in (MaxLength(20), MinLength(3, 0.5)):
        with pytest.raises(ValueError, match=r"no such rule about the next token.*Received: M"):
            dataclasses.replace(found, constraints=(rule,)).to_dict()
    # The config of another toolkit says much else.
    assert GenerationSettings.of({"num_beams": 2, "beam-size": 4}, 64).to_dict() == {"num_beams": 2}
    without = dataclasses.replace(found, constraints=(), strategy=Sample(0.7, top_k=None))
    assert without.to_dict() == {
        **{name: said[name] for name in same},
        **{"eos_token_id": [0, 3], "max_new_tokens": 30, "bad_words_ids": [[8, 9]]},
        **{"do_sample": True, "temperature": 0.7, "top_k": 0, "top_p": 1.0},
    }


def test_settings_of_another_type_are_named_at_once():
    with pytest.raises(ValueError) as error:
        GenerationSettings.of(
            {
                **{"num_beams": "4", "max_length": 20.5, "do_sample": 1, "early_stopping": "soon"},
                **{"bad_words_ids": [7], "suppress_tokens": [[4]], "top_k": True},
            },
            64,
        )
    for problem in (
        "num_beams = '4'; expected int",
        "max_length = 20.5; expected int",
        "do_sample = 1; expected bool",
        "early_stopping = 'soon'; expected bool or 'never'",
        "bad_words_ids = [7]; expected token ids",
        "suppress_tokens = [[4]]; expected token ids",
        "top_k = True; expected int",
    ):
        assert problem in str(error.value)


@pytest.mark.parametrize("settings", [{"bad_words_ids": [[11]]}, {"suppress_tokens": [3, 11]}])
def test_forbidden_tokens_that_the_vocabulary_lacks_are_refused_at_once(settings):
    assert GenerationSettings.of(settings, 64, vocabulary_size=12).constraints
    with pytest.raises(ValueError, match=r"outside the vocabulary. Expected ids from 0 to 10"):
        GenerationSettings.of(settings, 64, vocabulary_size=11)


LENGTHS = [
    {},
    {"max_new_tokens": 5},
    {"max_length": 9},
    {"max_length": 9, "max_new_tokens": 5},
    {"min_length": 6},
    {"min_new_tokens": 4},
    {"min_length": 9, "min_new_tokens": 3},
]


@pytest.mark.slow
@pytest.mark.parametrize("positions", [64, 12])
def test_lengths_are_those_of_generate(positions):
    """A model that never ends shows the longest output, one that ends at once the shortest."""
    sizes = {
        **{f"{side}_layers": 1 for side in ("encoder", "decoder")},
        **{f"{side}_ffn_dim": 8 for side in ("encoder", "decoder")},
        **{f"{side}_attention_heads": 1 for side in ("encoder", "decoder")},
    }
    config = transformers.BartConfig(
        vocab_size=20, d_model=8, max_position_embeddings=positions, **sizes
    )
    model = transformers.BartForConditionalGeneration(config).eval()
    ids = {"decoder_start_token_id": 2, "eos_token_id": 2, "pad_token_id": 1}
    for settings in LENGTHS if positions == 64 else LENGTHS[:1]:
        ours = GenerationSettings.of(settings, positions, unsaid=min(20, positions - 1), end_id=2)
        shortest = max((each.length for each in ours.constraints), default=1)
        model.generation_config = transformers.GenerationConfig(**ids, **settings)
        found = []
        for bias in (1e3, -1e9):
            model.final_logits_bias[0, 2] = bias
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a length by default
                found.append(model.generate(torch.tensor(np.array([[5, 6, 7]]))).shape[1] - 1)
        assert found == [shortest, ours.max_length], settings


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"num_beams": 10**6}, "num_beams = 1000000; expected at most 31"),
        ({"num_beams": -1}, "num_beams = -1; expected 1 or more"),
        ({"num_beams": 0}, "num_beams = 0; expected 1 or more"),
        ({"max_length": -5}, "max_length = -5; expected 1 or more"),
        ({"max_new_tokens": -5}, "max_new_tokens = -5; expected 0 or more"),
        ({"min_length": -1}, "min_length = -1; expected 0 or more"),
        ({"no_repeat_ngram_size": -2}, "no_repeat_ngram_size = -2; expected 0 or more"),
        ({"top_k": -2, "do_sample": True}, "top_k = -2; expected 0 or more"),
        ({"forced_bos_token_id": -1}, "forced_bos_token_id = -1; expected 0 or more"),
        ({"num_beams": 2, "length_penalty": 500}, "for 64 tokens.*AveragePenalty"),
    ],
)
def test_numbers_that_mean_nothing_are_refused(settings, words):
    """They were loaded without a word: -1 beams as greedy search, a million as a million."""
    with pytest.raises(ValueError, match=words):
        GenerationSettings.of(settings, 64, vocabulary_size=31)


def test_a_length_beyond_the_model_is_cut_to_it_and_said():
    for name in ("max_length", "max_new_tokens"):
        found = GenerationSettings.of({name: 10**12}, 64, vocabulary_size=31)
        assert (found.max_length, found.not_followed) == (64, (f"{name} = {10**12}",))


@pytest.mark.parametrize(("size", "most"), [(58_101, 1000), (90, 90), (None, 1000)])
def test_a_checkpoint_asks_for_no_more_hypotheses_than_can_be_kept(size, most):
    assert GenerationSettings.of({"num_beams": most}, 64, vocabulary_size=size).strategy
    with pytest.raises(ValueError, match=f"num_beams = {most + 1}; expected at most {most}"):
        GenerationSettings.of({"num_beams": most + 1}, 64, vocabulary_size=size)
