"""Our searches of a Hugging Face model find what its own `generate` finds, token for token.

The model is theirs on both sides: ours asks it for the logits of each step.
"""

import numpy as np
import pytest
import torch
import transformers
from keras import ops

from keras_addnorm.decoding import AveragePenalty, Beam, ForbiddenTokens, Greedy, Prefix
from keras_addnorm.decoding.decoder import SpecialIds
from keras_addnorm.decoding.search_inputs import Cache, SearchInputs
from keras_addnorm.decoding.strategy import StepModel
from keras_addnorm.decoding.tensor_ops import write_column

V, L, B = 20, 30, 6
PAD = V - 1
IDS = {
    "start is pad": SpecialIds(PAD, PAD, 0),  # Marian
    "start is end": SpecialIds(PAD, 0, 0),  # BART, M2M-100
}
RULES = {True: True, False: "current_length", "never": False}
"""Our name of each of theirs."""


@pytest.fixture(scope="module")
def marian():
    """A random one, in evaluation, whose outputs have from two tokens to the maximum."""
    torch.manual_seed(0)
    config = transformers.MarianConfig(
        vocab_size=V,
        d_model=8,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=12,
        decoder_ffn_dim=12,
        max_position_embeddings=42,
        pad_token_id=PAD,
        decoder_start_token_id=PAD,
        eos_token_id=0,
        bos_token_id=None,
        forced_eos_token_id=None,
        scale_embedding=True,
    )
    model = transformers.MarianMTModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5)
        model.model.shared.weight.normal_(std=0.3)
        model.final_logits_bias.zero_()
        model.final_logits_bias[0, 0] = 1.5
    return model


@pytest.fixture(scope="module")
def sources():
    ids = np.random.default_rng(4).integers(1, PAD, (B, 7))
    for row, length in zip(ids, [6, 3, 5, 1, 6, 4], strict=True):
        row[length:] = PAD
        row[length] = 0
    return ids


def theirs(marian, sources, ids, suppressed=(), **options):
    """Outputs without the start, padded, and scores."""
    with torch.no_grad():
        found = marian.generate(
            torch.tensor(sources),
            attention_mask=torch.tensor(sources != PAD),
            decoder_start_token_id=ids.start_id,
            max_length=L + 1,
            do_sample=False,
            suppress_tokens=[*ids.never_generated, *suppressed],
            return_dict_in_generate=True,
            output_scores=True,
            **options,
        )
    outputs = found.sequences[:, 1:].numpy()
    padding = ((0, 0), (0, L - outputs.shape[1]))
    scores = getattr(found, "sequences_scores", None)
    outputs = np.pad(outputs, padding, constant_values=PAD)
    return outputs, None if scores is None else scores.numpy()


def ours(marian, sources, ids, strategy, **inputs):
    with torch.no_grad():
        mask = torch.tensor(sources != PAD)
        memory = marian.get_encoder()(torch.tensor(sources), attention_mask=mask)
    memory = memory.last_hidden_state

    def step(tokens, index, cache):
        """The whole target anew at each step."""
        history = write_column(cache.rows["history"], index, tokens)
        sentence = torch.tensor(ops.convert_to_numpy(cache.rows["sentence"]))
        target = torch.tensor(ops.convert_to_numpy(history))[:, : int(index) + 1]
        with torch.no_grad():
            logits = marian(
                encoder_outputs=(memory[sentence],),
                attention_mask=mask[sentence],
                decoder_input_ids=target,
                use_cache=False,
            ).logits[:, -1]
        cache = Cache({**cache.rows, "history": history})
        return ops.convert_to_tensor(logits.numpy()), cache

    sentence = np.repeat(np.arange(B, dtype="int32"), strategy.rows_per_sentence)
    history = ops.full((len(sentence), L), PAD, dtype="int32")
    cache = Cache({"history": history, "sentence": ops.convert_to_tensor(sentence)})
    source_ids = ops.convert_to_tensor(sources, "int32")
    found = strategy.search(StepModel(step, cache), SearchInputs(source_ids, L, ids, **inputs))
    outputs, scores = (ops.convert_to_numpy(x) for x in (found.ids, found.scores))
    return outputs.reshape(-1, L), scores.reshape(-1)


def check_equal(found, expected):
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_allclose(found[1], expected[1], atol=1e-5)


@pytest.mark.fast_cases(9)
@pytest.mark.parametrize(("name", "num_beams"), [("start is pad", 3), ("start is end", 4)])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.0])
@pytest.mark.parametrize("rule", RULES)
def test_a_beam_and_its_stopping_rule(marian, sources, name, num_beams, alpha, rule):
    ids = IDS[name]
    expected = theirs(
        marian,
        sources,
        ids,
        num_beams=num_beams,
        length_penalty=alpha,
        early_stopping=rule,
        num_return_sequences=2,
    )
    strategy = Beam(num_beams, AveragePenalty(alpha), 2, early_stopping=RULES[rule])
    check_equal(ours(marian, sources, ids, strategy), expected)


def test_the_rules_differ_here(marian, sources):
    """Else the test above would show nothing about them: from two tokens to the maximum."""
    ids = IDS["start is pad"]
    found = [
        ours(marian, sources, ids, Beam(3, AveragePenalty(1.0), 2, early_stopping=rule))[0]
        for rule in RULES.values()
    ]
    for one, other in ((0, 1), (1, 2)):
        assert (found[one] != found[other]).any()
    lengths = (found[0] != PAD).sum(-1), (found[2] != PAD).sum(-1)
    assert max(lengths[0]) < L and len({*lengths[0], *lengths[1]}) > 2


@pytest.mark.parametrize("ids", IDS.values(), ids=IDS)
def test_greedy_search(marian, sources, ids):
    expected, _ = theirs(marian, sources, ids, num_beams=1)
    found, _ = ours(marian, sources, ids, Greedy())
    np.testing.assert_array_equal(found, expected)


@pytest.mark.fast_cases(2)
@pytest.mark.parametrize("ids", IDS.values(), ids=IDS)
@pytest.mark.parametrize("alpha", [0.0, 1.0, 2.0])
def test_a_forced_first_token_costs_nothing_and_counts(marian, sources, ids, alpha):
    options = {"num_beams": 3, "length_penalty": alpha, "early_stopping": False}
    expected = theirs(marian, sources, ids, forced_bos_token_id=7, **options)
    strategy = Beam(3, AveragePenalty(alpha), early_stopping="current_length")
    prefix = Prefix([7], is_free=True).rows(B)
    check_equal(ours(marian, sources, ids, strategy, prefix=prefix), expected)
    assert (expected[0][:, 0] == 7).all()


def test_tokens_that_have_no_piece(marian, sources):
    """The table is larger than the vocabulary: the others are suppressed there, forbidden here."""
    ids, strategy = IDS["start is pad"], Beam(3, AveragePenalty(2.0), early_stopping=False)
    free, _ = ours(marian, sources, ids, strategy)
    others = tuple(int(token) for token in np.unique(free) if token not in (ids.end_id, PAD))[:2]
    assert others
    options = {"num_beams": 3, "length_penalty": 2.0, "early_stopping": "never"}
    expected = theirs(marian, sources, ids, suppressed=others, **options)
    rules = (ForbiddenTokens(others),)
    check_equal(ours(marian, sources, ids, strategy, constraints=rules), expected)
