"""Languages given by literal tables, and every sequence of one, written out."""

import itertools

import numpy as np
from keras import ops

from keras_addnorm.decoding.search_inputs import Cache, SearchInputs
from keras_addnorm.decoding.strategy import StepModel


def penalty(length, alpha):
    return ((5 + length) / 6) ** alpha


def num_prefixes(vocabulary_size, max_length):
    return sum(vocabulary_size**n for n in range(max_length))


def child(node, token, vocabulary_size):
    """Number the prefixes: the empty one is 0, its continuations are 1 to V, and so on."""
    return node * vocabulary_size + token + 1


def random_table(batch_size, vocabulary_size, max_length, seed=0, scale=2.0):
    """Log-probabilities of the next token after every prefix: no two prefixes behave alike."""
    shape = (batch_size, num_prefixes(vocabulary_size, max_length), vocabulary_size)
    logits = np.random.default_rng(seed).normal(scale=scale, size=shape)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def sharp_table(batch_size, vocabulary_size, max_length, ids, seed=0):
    """As of a model of low loss: one sequence a sentence is certain, beside junk that soon ends.

    Returns the table, and the sequence of each sentence, its end included.
    """
    generator = np.random.default_rng(seed)
    table = random_table(batch_size, vocabulary_size, max_length, seed, scale=1.0)
    table[..., ids.end_id] += 2.0
    words = [t for t in range(vocabulary_size) if t not in (ids.pad_id, ids.start_id, ids.end_id)]
    lengths = generator.integers(max_length // 2, max_length, batch_size)
    sequences = [(*generator.choice(words, length), ids.end_id) for length in lengths]
    for row, sequence in zip(table, sequences, strict=True):
        node = 0
        for token in sequence:
            row[node, token] = max(row[node]) + generator.uniform(2.5, 5.0)
            node = child(node, token, vocabulary_size)
    return table - np.log(np.exp(table).sum(-1, keepdims=True)), sequences


def table_of(probabilities, vocabulary_size, max_length):
    """Return the table of one sentence from `{prefix: {token: probability}}`."""
    table = np.full((1, num_prefixes(vocabulary_size, max_length), vocabulary_size), -50.0)
    for prefix, nexts in probabilities.items():
        node = 0
        for token in prefix:
            node = child(node, token, vocabulary_size)
        for token, p in nexts.items():
            table[0, node, token] = np.log(p)
    return table


def step_on(table):
    """A model that reads `table`: its state is the sentence and the prefix of each row."""
    vocabulary_size = table.shape[-1]
    flat = ops.convert_to_tensor(table.reshape(-1, vocabulary_size).astype("float32"))

    def step(tokens, index, cache):
        node, sentence = cache.rows["node"], cache.rows["sentence"]
        # A row that has ended reads padding and may leave the tree: what it says must not count.
        moved = ops.minimum(child(node, tokens, vocabulary_size), table.shape[1] - 1)
        node = ops.where(ops.equal(index, 0), node, moved)
        logits = ops.take(flat, sentence * table.shape[1] + node, axis=0)
        return logits, Cache({"node": node, "sentence": sentence})

    return step


def search(strategy, table, max_length, ids, is_empty=None, step=None, **inputs):
    """Run a strategy on a table; ids (B, T) and scores (B,) of the best, or of all if several."""
    found = search_all(strategy, table, max_length, ids, is_empty, step, **inputs)
    if strategy.num_return == 1:
        return found.ids[:, 0], found.scores[:, 0]
    return found.ids, found.scores


def search_all(
    strategy, table, max_length, ids, is_empty=None, step=None, score_bonus=None, **inputs
):
    batch_size = len(table)
    sentence = np.repeat(np.arange(batch_size), strategy.rows_per_sentence).astype("int32")
    cache = {
        "node": ops.zeros((len(sentence),), dtype="int32"),
        "sentence": ops.convert_to_tensor(sentence),
    }
    if "source_ids" not in inputs:
        sources = np.full((batch_size, 3), ids.pad_id + 1)
        sources[np.zeros(batch_size, bool) if is_empty is None else is_empty] = ids.pad_id
        inputs["source_ids"] = sources
    inputs["source_ids"] = ops.convert_to_tensor(np.asarray(inputs["source_ids"], "int32"))
    if "prefix" in inputs:
        inputs["prefix"] = inputs["prefix"].rows(batch_size)
    inputs = SearchInputs(max_length=max_length, ids=ids, **inputs)
    model = StepModel(step or step_on(table), Cache(cache), score_bonus=score_bonus)
    found = strategy.search(model, inputs)
    return type(found)(*(ops.convert_to_numpy(tensor) for tensor in found))


def log_p_of(table_row, sequence):
    """Sum of log-probabilities of a sequence in one sentence's table."""
    node, total = 0, 0.0
    for token in sequence:
        total += table_row[node, token]
        node = child(node, token, table_row.shape[-1])
    return total


def all_sequences(max_length, ids, vocabulary_size):
    words = [t for t in range(vocabulary_size) if t not in (ids.pad_id, ids.start_id, ids.end_id)]
    for length in range(max_length):
        for prefix in itertools.product(words, repeat=length):
            yield (*prefix, ids.end_id)
    yield from itertools.product(words, repeat=max_length)


def exhaustive(table_row, max_length, ids, alpha):
    """The best of all sequences, `(sequence, score)`."""
    scored = [
        (log_p_of(table_row, s) / penalty(len(s), alpha), s)
        for s in all_sequences(max_length, ids, table_row.shape[-1])
    ]
    score, sequence = max(scored)
    return sequence, score


def padded(sequence, max_length, ids):
    return [*sequence, *[ids.pad_id] * (max_length - len(sequence))]


def n_best(table_row, max_length, ids, divisor, count, fulfils=lambda sequence: True):
    """The `count` best of all sequences that fulfil the rules, `[(score, sequence)]`."""
    scored = [
        (log_p_of(table_row, s) / divisor(len(s)), s)
        for s in all_sequences(max_length, ids, table_row.shape[-1])
        if fulfils(s)
    ]
    return sorted(scored, reverse=True)[:count]


def beam_reference(
    table_row,
    max_length,
    ids,
    divisor,
    *,
    num_beams,
    count,
    num_groups=1,
    diversity=0.0,
    early,
    may_follow=lambda prefix, token: True,
    bonus=lambda prefix: 0.0,
):
    """Beam search in plain Python, one sentence; `early` as `early_stopping` of `Beam`.

    False never stops before the end. `bonus(tokens)` is what reading them
    adds to a score.
    """

    def score(sequence, total):
        return total / divisor(len(sequence)) + bonus(sequence[:-1])

    vocabulary_size = table_row.shape[-1]
    never = {ids.pad_id, ids.start_id} - {ids.end_id}
    words = [t for t in range(vocabulary_size) if t not in never]
    alive = [[((), 0.0)] for _ in range(num_groups)]
    finished = [[] for _ in range(num_groups)]
    is_done = [False] * num_groups
    for length in range(1, max_length + 1):
        used = [0] * vocabulary_size
        for g in range(num_groups):
            continued = [
                ((*prefix, token), log_p_of(table_row, (*prefix, token)), used[token])
                for prefix, _ in alive[g]
                for token in words
                if may_follow(prefix, token)
            ]
            ranked = sorted(continued, key=lambda c: c[1] - diversity * c[2], reverse=True)
            for sequence, total, _ in ranked[:num_beams]:
                used[sequence[-1]] += 1
                if sequence[-1] == ids.end_id and not is_done[g]:
                    finished[g].append((score(sequence, total), sequence))
            alive[g] = [c[:2] for c in ranked[: 2 * num_beams] if c[0][-1] != ids.end_id]
            alive[g] = alive[g][:num_beams]
            stops = early is not False and len(finished[g]) >= num_beams
            if stops and early == "current_length" and alive[g]:
                worst, _ = sorted(finished[g], reverse=True)[num_beams - 1]
                stops = max(total for _, total in alive[g]) / divisor(length) <= worst
            is_done[g] = is_done[g] or stops
        if all(is_done):
            break
    found = []
    for g in range(num_groups):
        own = sorted(finished[g], reverse=True)[:num_beams]
        if not is_done[g]:
            own += [(score(s, total), s) for s, total in alive[g]]
        found += sorted(own, reverse=True)[:num_beams]
    return sorted(found, reverse=True)[:count]


def check_found(found, scores, expected, max_length, ids):
    """`expected` are `[(score, sequence)]`; what is missing is padding and minus infinity."""
    for row, score, (expected_score, sequence) in zip(found, scores, expected, strict=False):
        assert row.tolist() == padded(sequence, max_length, ids)
        assert abs(score - expected_score) < 1e-4
    assert (found[len(expected) :] == ids.pad_id).all()
    assert (scores[len(expected) :] == -np.inf).all()
