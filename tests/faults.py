"""Small faults, put into the code one at a time: does a test fail?

A suite that is made faster may lose what it catches. This script holds small faults of the kind
that people make, in every part of the package, and for each the narrowest tests that should notice.
It copies the working tree to a temporary folder, applies one fault, runs those tests in a process
of their own, and prints a table:

    python tests/faults.py                        # every fault, one after the other
    python tests/faults.py --only beam            # those with "beam" in their name
    python tests/faults.py --root ../older        # the same faults in another checkout

A fault is found by its text, wherever in the package that stands, and its tests by their names:
neither a file that moves nor a line that is inserted breaks it. Where a change of wording does,
`tests/test_faults.py` fails: then write down the new wording. Keep the old one beside it if older
checkouts are to be compared.
"""

import argparse
import contextlib
import gc
import importlib
import os
import re
import runpy
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TextIO

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "keras_addnorm"
SECONDS = 300


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        name: What it is called.
        room: The part of the package that it is in.
        breaks: What it breaks, in words.
        changes: (text, other text) for each wording of the place; one of them is there, once.
        tests: The tests that should fail, as "folder/file.py::test_name"; the path is a hint where
            several files have a test of that name.
        only: What pytest's `-k` gets, where a test has many cases.
    """

    name: str
    room: str
    breaks: str
    changes: tuple[tuple[str, str], ...]
    tests: tuple[str, ...]
    only: str = ""


def _fault(
    name: str, breaks: str, *changes: tuple[str, str], tests: str | tuple[str, ...], only: str = ""
) -> Fault:
    room, _, short = name.partition("/")
    return Fault(short, room, breaks, changes, (tests,) if isinstance(tests, str) else tests, only)


FAULTS = (
    # Schemes.
    _fault(
        "schemes/deep_norm_alpha",
        "DeepNorm's alpha of the encoder: the 8th root in place of the 16th",
        ("0.81 * (n**4 * m) ** (1 / 16)", "0.81 * (n**4 * m) ** (1 / 8)"),
        tests="schemes/test_schemes.py::test_deep_norm_gains",
    ),
    _fault(
        "schemes/deep_norm_without_alpha",
        "DeepNorm adds the skip without alpha",
        (
            "parts.post_norm(parts.plan.skip_gain * residual + branch)",
            "parts.post_norm(residual + branch)",
        ),
        tests="layers/test_add_norm.py::test_equals_the_formula",
        only="deep_norm",
    ),
    _fault(
        "schemes/keel_without_alpha",
        "Keel adds the skip without alpha",
        ("merged = parts.plan.skip_gain * residual + branch", "merged = residual + branch"),
        tests="layers/test_add_norm.py::test_equals_the_formula",
        only="keel",
    ),
    _fault(
        "schemes/gpas_stops_no_gradient",
        "GPAS scales gradients as it scales the stream",
        ("ops.dtype(x)) * ops.stop_gradient(x)", "ops.dtype(x)) * x"),
        tests="schemes/test_one_stream_oracles.py::test_gpas_scales_forwards_and_not_backwards",
    ),
    _fault(
        "schemes/hybrid_norm_skips_the_raw_stream",
        "HybridNorm's feed-forward has the raw stream on its skip",
        ("return parts.pre_norm(residual) + branch", "return residual + branch"),
        tests="schemes/test_one_stream_oracles.py::test_hybrid_norms_feed_forward_does_not_see_how_long_the_stream_is",
    ),
    _fault(
        "schemes/dense_former_says_all_weights",
        "A lone layer of DenseFormer has the first of its weights",
        (
            "precise(parts.depth_weights)[-num_sources:]",
            "precise(parts.depth_weights)[:num_sources]",
        ),
        tests="schemes/test_stream_schemes.py::test_a_deep_layer_of_dense_former_alone_has_its_last_weights",
    ),
    _fault(
        "layers/a_batch_counts_twice",
        "HybridNorm's batch norm counts a batch once for the sublayer and once for the skip",
        ("functools.partial(self.pre_norm.again,", "functools.partial(self.pre_norm,"),
        tests="norms/test_norms_in_layers.py::test_averages_count_a_batch_once",
    ),
    _fault(
        "schemes/mix_ln_boundary",
        "Mix-LN has one Post-LN layer too many",
        ("position.layer_index < num_post_ln", "position.layer_index <= num_post_ln"),
        tests="schemes/test_schemes.py::test_mix_ln_is_post_ln_first",
    ),
    _fault(
        "schemes/ln_scaling_sign",
        "LN-scaling multiplies by the root of the layer's number",
        ("layer_number**-0.5", "layer_number**0.5"),
        tests="schemes/test_schemes.py::test_ln_scaling_by_layer",
    ),
    # Norms.
    _fault(
        "norms/epsilon",
        "epsilon is added behind the root",
        (
            "ops.rsqrt(row_means(ops.square(c)) + epsilon)",
            "ops.rsqrt(row_means(ops.square(c))) + epsilon",
        ),
        tests="norms/test_norms.py::test_equals_the_formula",
    ),
    _fault(
        "norms/biased_deviation",
        "the Annotated Transformer's norm divides by D",
        ("/ (x.shape[-1] - 1))", "/ x.shape[-1])"),
        tests="norms/test_norms.py::test_std_layer_norm_is_the_annotated_transformers",
    ),
    _fault(
        "norms/gradient_without_mean",
        "LayerNorm's gradient forgets the mean of the row",
        (
            "scaled = upstream * gamma - row_sums(upstream, _shares(gamma))",
            "scaled = upstream * gamma",
        ),
        tests="norms/test_norms.py::test_gradients_are_those_of_the_formula",
        only="layer_norm",
    ),
    _fault(
        "norms/padding_in_statistics",
        "padding counts in batch normalisation's statistics",
        (
            "weights = ops.cast(ops.expand_dims(mask, -1), x.dtype)",
            "weights = ops.ones_like(x[..., :1])",
        ),
        tests="norms/test_norms_in_layers.py::test_padding_is_left_out_of_the_statistics",
    ),
    _fault(
        "norms/momentum",
        "the moving averages keep what they should lose",
        (
            "ops.where(count > 0, 1.0 - self.momentum, 0.0)",
            "ops.where(count > 0, self.momentum, 0.0)",
        ),
        tests="norms/test_norms_in_layers.py::test_moving_averages_are_those_of_the_real_positions",
    ),
    # Layers.
    _fault(
        "layers/causal_mask",
        "a decoder sees the next token",
        ("causal = distances <= 0 if is_causal", "causal = distances <= 1 if is_causal"),
        tests="layers/test_attention.py::test_self_attention_equals_the_formula",
    ),
    _fault(
        "layers/padding_mask_inverted",
        "attention sees the padding alone",
        (
            'masks.append(ops.cast(padding_mask, "bool")[:, None, None, :])',
            'masks.append(ops.logical_not(ops.cast(padding_mask, "bool"))[:, None, None, :])',
        ),
        tests="layers/test_masks.py::test_masks_are_combined_by_and",
    ),
    _fault(
        "layers/nothing_to_attend_to",
        "a row without a visible key averages all values",
        ("return weights * ops.cast(has_key, weights.dtype)", "return weights"),
        tests="layers/test_attention.py::test_with_nothing_to_attend_to_there_are_zeros_and_finite_gradients",
    ),
    _fault(
        "layers/window_boundary",
        "a window sees one position too far",
        ("ops.abs(distances) < window", "ops.abs(distances) <= window"),
        tests="layers/test_attention_choices.py::test_self_attention_equals_the_formula",
        only="window",
    ),
    _fault(
        "layers/gain_on_key",
        "DeepNorm's beta falls on the key kernel instead of the value kernel",
        (
            "memory_dim, self.key_initializer, memory_shape)\n"
            "        self.value_projection = make(\n"
            '            "value_projection", memory_dim, self.value_initializer, '
            "memory_shape, gain",
            "memory_dim, self.key_initializer, memory_shape, gain)\n"
            "        self.value_projection = make(\n"
            '            "value_projection", memory_dim, self.value_initializer, '
            "memory_shape",
        ),
        tests="layers/test_attention.py::"
        "test_each_projection_has_its_initializer_and_the_gain_falls_on_value_and_output",
    ),
    _fault(
        "layers/cache_index",
        "a cached step is written one position too late",
        (
            'offset = ops.arange(cache.shape[2], dtype="int32") - index',
            'offset = ops.arange(cache.shape[2], dtype="int32") - index - 1',
        ),
        tests="layers/test_attention.py::test_cached_self_attention_equals_the_full_pass_step_by_step",
    ),
    _fault(
        "layers/wrong_gate",
        "the gated feed-forward applies its activation to the other branch",
        (
            "h = self._activation.function(self.gate_projection(x)) * h",
            "h = self.gate_projection(x) * self._activation.function(h)",
        ),
        tests="layers/test_feed_forward.py::test_equals_the_formula",
    ),
    _fault(
        "layers/dropout_seed",
        "dropout drops the same elements at each step",
        (
            "self.seed_generator.next()) >= _word(dropped)",
            "self.seed_generator.state) >= _word(dropped)",
        ),
        (
            "random_words(ops.shape(inputs), self.seed_generator.next()) >= word(",
            "random_words(ops.shape(inputs), self.seed_generator.state) >= word(",
        ),
        tests="layers/test_dropout.py::test_what_stays_is_scaled_and_what_goes_has_no_gradient",
        only="float32",
    ),
    _fault(
        "layers/dropout_scale",
        "what dropout keeps is not scaled up",
        ("inputs * (1 / (1 - dropped / 2**32))", "inputs"),
        tests="layers/test_dropout.py::test_what_stays_is_scaled_and_what_goes_has_no_gradient",
        only="float32",
    ),
    _fault(
        "layers/drop_path_decay",
        "drop path's decay over the layers starts one layer late",
        (
            "self.drop_path * (index + 1) / self.num_layers",
            "self.drop_path * index / self.num_layers",
        ),
        tests="layers/test_transformer_layers.py::test_drop_path_grows_linearly_with_depth",
    ),
    _fault(
        "layers/embedding_scale",
        "embeddings are divided by the root of the width",
        ("scale = self.hidden_dim**0.5 if", "scale = self.hidden_dim**-0.5 if"),
        tests="layers/test_positional_embedding.py::test_sinusoidal_embedding_equals_the_formula",
    ),
    _fault(
        "layers/alibi_sign",
        "ALiBi prefers far keys",
        (
            "return -slopes * ops.cast(ops.abs(distances), dtype)",
            "return slopes * ops.cast(ops.abs(distances), dtype)",
        ),
        tests="layers/test_positions.py::test_alibi_falls_off_on_both_sides",
    ),
    _fault(
        "layers/t5_bucket",
        "T5 counts the position itself to the future",
        ("buckets + num_buckets * (distances > 0)", "buckets + num_buckets * (distances >= 0)"),
        tests="layers/test_positions.py::test_t5_buckets_by_hand",
    ),
    _fault(
        "layers/rotary_sign",
        "rotary positions mirror instead of turning",
        ("second * cosine + first * sine", "second * cosine - first * sine"),
        tests="layers/test_positions.py::test_rotation_is_a_product_of_complex_numbers",
    ),
    # Models.
    _fault(
        "models/mask_of_the_source",
        "the encoder's mask hides the end token in place of the padding",
        (
            "keras.ops.not_equal(source_ids, self.config.pad_id)",
            "keras.ops.not_equal(source_ids, self.config.end_id)",
        ),
        tests="decoding/test_generate.py::test_greedy_search_is_the_argmax_of_the_full_pass",
    ),
    _fault(
        "models/depth_of_the_other_side",
        "the decoder is told its own depth as that of the encoder",
        (
            "num_other_layers=config.num_encoder_layers",
            "num_other_layers=config.num_decoder_layers",
        ),
        tests="models/test_seq2seq.py::test_attributes_are_the_sublayers",
    ),
    _fault(
        "models/special_ids",
        "padding may be the end",
        ("self.pad_id == self.end_id or not all(", "not all("),
        tests="models/test_config.py::test_bad_values_are_named",
    ),
    _fault(
        "models/lora_left_behind",
        "a copy has the kernels without what LoRA has learned",
        ("return values | dict(merged_weight(layer) for layer in layers)", "return values"),
        tests="models/test_lora.py::test_f1_a_fold_has_what_lora_learned",
    ),
    # Decoding.
    _fault(
        "decoding/compiled_for_ever",
        "a compiled search goes on when its layers have other variables",
        ("[reference() for reference in self.variables], variables", "variables, variables"),
        tests="decoding/test_changed_layers.py::test_f2_scores_follow_the_layers",
    ),
    _fault(
        "decoding/beam_length",
        "the length penalty of a finished hypothesis leaves its end token out",
        (
            "candidates.sums / length_penalty.divisor(state.index + 1)",
            "candidates.sums / length_penalty.divisor(state.index)",
        ),
        (
            "candidates.sums / self.length_penalty.divisor(state.index + 1)",
            "candidates.sums / self.length_penalty.divisor(state.index)",
        ),
        tests="decoding/test_search.py::test_the_score_is_that_of_the_sequence",
    ),
    _fault(
        "decoding/gnmt_penalty",
        "GNMT's length penalty divides by 5",
        ("return (5.0 + length) / 6.0", "return (5.0 + length) / 5.0"),
        tests="decoding/test_length_penalties.py::test_the_three_formulas",
    ),
    _fault(
        "decoding/score_not_divided",
        "the score of a greedy row is divided by the penalty of one token",
        (".divisor(lengths)", ".divisor(0 * lengths + 1)"),
        tests="decoding/test_search.py::test_the_score_is_that_of_the_sequence",
    ),
    _fault(
        "decoding/beam_frozen",
        "a sentence that is done goes on collecting hypotheses",
        (
            "(ends_now, ops.expand_dims(ops.logical_not(state.is_done), -1))",
            "(ends_now, ends_now)",
        ),
        tests="decoding/test_beam.py::test_a_narrow_beam_does_what_plain_python_does",
    ),
    _fault(
        "decoding/beam_bound",
        "the bound on what is still reachable is too low",
        (
            "best_sum / ops.maximum(divisor(shortest), divisor(longest))",
            "best_sum / ops.minimum(divisor(shortest), divisor(longest))",
        ),
        ("reachable = progress.best_sum / ops.max(divisors)", "reachable = progress.best_sum"),
        tests="decoding/test_beam.py::test_a_narrow_beam_does_what_plain_python_does",
    ),
    _fault(
        "decoding/diverse_sign",
        "groups of a diverse beam imitate one another",
        ("own - ops.tile(cost, (1, num_beams))", "own + ops.tile(cost, (1, num_beams))"),
        tests="decoding/test_beam.py::test_a_group_avoids_the_tokens_of_the_group_before_it",
    ),
    _fault(
        "decoding/no_repeat_ngram",
        "the last n-gram is not looked at",
        ("+ n - 1 < view.index", "+ n < view.index"),
        tests="decoding/test_constraints.py::test_rules_and_scores_hold_in_every_strategy",
    ),
    _fault(
        "decoding/min_length",
        "outputs may be one token shorter than the minimum",
        ("view.index + 1 >= minimum", "view.index + 2 >= minimum"),
        tests="decoding/test_constraints.py::test_a_wide_beam_finds_the_n_best_of_what_is_allowed",
    ),
    _fault(
        "decoding/prefix",
        "the last token of a prefix is not forced",
        (
            "is_forced = ops.logical_and(index < length,",
            "is_forced = ops.logical_and(index < length - 1,",
        ),
        tests="decoding/test_constraints.py::test_a_wide_beam_finds_the_best_ends_of_a_prefix",
    ),
    _fault(
        "decoding/start_is_end",
        "a start that is the end, too, is never generated",
        ("({self.pad_id, self.start_id} - {self.end_id})", "({self.pad_id, self.start_id})"),
        tests="decoding/test_special_ids.py::test_a_wide_beam_finds_the_n_best_of_all_sequences",
    ),
    _fault(
        "decoding/free_prefix",
        "a forced token costs what the model says, though it is free",
        ("cost = ops.zeros_like(own) if self.is_free else own", "cost = own"),
        tests="decoding/test_prefix.py::test_a_wide_beam_ranks_by_what_is_not_free",
    ),
    _fault(
        "decoding/current_length",
        "the rule of the current length compares with the best finished hypothesis",
        ("progress.finished_scores[:, -1] >= score", "progress.finished_scores[:, 0] >= score"),
        tests="decoding/test_beam.py::test_a_narrow_beam_does_what_plain_python_does",
    ),
    _fault(
        "decoding/sample_step",
        "a sample draws with the same noise at each step",
        (
            "keys_now = ops.expand_dims(spread(keys, index), -1)",
            "keys_now = ops.expand_dims(spread(keys, 0 * index), -1)",
        ),
        tests="decoding/test_sample.py::test_sequences_are_drawn_with_their_probabilities",
    ),
    _fault(
        "decoding/source_end",
        "a text is given to the encoder without its end token",
        (
            "return [*prefix, *tokens, self.end_id]",
            "return [*prefix, *tokens]",
        ),
        tests="decoding/test_translate.py::test_sources_are_tokens_and_an_end_and_empty_ones_are_padding",
    ),
    _fault(
        "decoding/score_of_a_text",
        "the score of a text is the sum of its sentences' scores, whatever the length penalty is",
        ("(np.array(scores) * divisors[:-1]).sum() / divisors[-1]", "np.array(scores).sum()"),
        tests="decoding/test_translate.py::test_the_score_of_a_text_is_that_of_all_its_tokens",
    ),
    _fault(
        "decoding/abbreviations",
        "a language that is given has no abbreviations of its own",
        (
            "words=tuple(dict.fromkeys(COMMON.words + own.words))",
            "words=tuple(dict.fromkeys(COMMON.words))",
        ),
        tests="decoding/test_splitting.py::test_sentences",
    ),
    _fault(
        "decoding/coverage",
        "a source token that is read twice counts twice",
        ("ops.clip(attention, _UNREAD, 1.0)", "ops.clip(attention, _UNREAD, 2.0)"),
        tests="decoding/test_score.py::test_the_term_is_equation_14",
    ),
    # Training.
    _fault(
        "training/bleu_of_a_region",
        "BLEU of zh-TW splits at spaces, as that of a language that it does not know",
        ('_OF_LANGUAGE.get(fold(language or ""))', "_OF_LANGUAGE.get(language)"),
        tests="training/test_translation_score.py::test_a_region_and_a_name_say_the_same_language",
    ),
    _fault(
        "training/padding_in_the_loss",
        "padding counts in the loss",
        (
            "return ops.not_equal(wide_ids(labels), pad_id)",
            "return ops.not_equal(wide_ids(labels), pad_id - 1)",
        ),
        tests="training/test_losses.py::test_value_and_gradient_are_those_of_the_definition",
    ),
    _fault(
        "training/smoothing_gradient",
        "label smoothing's gradient divides by V - 1",
        (
            "label_smoothing / ops.cast(vocabulary_size, dtype) * upstream",
            "label_smoothing / ops.cast(vocabulary_size - 1, dtype) * upstream",
        ),
        tests="training/test_losses.py::test_value_and_gradient_are_those_of_the_definition",
    ),
    _fault(
        "training/r_drop_half",
        "R-Drop's second term counts twice",
        (
            "values + 0.5 * self.alpha * _disagreement(logits)",
            "values + self.alpha * _disagreement(logits)",
        ),
        tests="training/test_losses.py::test_r_drop_is_the_definition",
    ),
    _fault(
        "training/cooldown_sign",
        "the learning rate rises over the cool-down",
        (
            'left = float(self.total_steps) - ops.cast(step, "float32")',
            'left = ops.cast(step, "float32") - float(self.total_steps)',
        ),
        tests="training/test_schedules.py::test_a_cooldown_is_the_schedule_and_then_a_line_down_to_zero",
    ),
    _fault(
        "runs/digest_not_compared",
        "a damaged file of a run is taken for a whole one",
        ("            if found != digest:", "            if found != found:"),
        tests="basics/test_manifest.py::test_what_has_changed_is_named_with_what_to_do",
    ),
    _fault(
        "interop/digest_not_compared",
        "a damaged folder of save_pretrained is read like a whole one",
        ("        require_whole(path)\n    kind", "        pass\n    kind"),
        tests="interop/test_damaged_folders.py::test_a_damaged_file_is_named_before_it_is_read",
    ),
    _fault(
        "runs/imported_weights_replaced",
        "a training begins anew in the place of weights that were imported",
        ("    require_place_to_go_on(directory)\n", ""),
        tests="runs/test_damaged_files.py::test_a_training_does_not_begin_anew_in_the_place_of_weights",
    ),
    _fault(
        "serving/every_mark_a_step",
        "a text of many marks on one letter takes a step for each",
        ("return order, rank <= self._most_joined", "return order, rank >= 0"),
        tests="serving/test_graph_normalization.py::test_many_characters_that_may_be_joined_are_a_few_steps",
    ),
    _fault(
        "serving/written_folder_removed",
        "a folder that another process writes is taken for one that was left over",
        ("if lock(descriptor, wait=False):", "if lock(descriptor, wait=False) or True:"),
        tests="basics/test_atomic.py::test_what_somebody_writes_stays",
    ),
    _fault(
        "runs/default_settings",
        "what the configuration of a run lacks is taken for its default",
        ("        if missing := missing_settings(settings):", "        if missing := []:"),
        tests="runs/test_damaged_files.py::test_an_empty_configuration_is_refused_and_stays",
    ),
    _fault(
        "training/digest_not_compared",
        "a damaged checkpoint is taken for a whole one",
        ("if found != written:", "if found != found:"),
        tests="training/test_checkpoints_and_guard.py::test_damaged_checkpoints_are_named_and_left_out",
    ),
    _fault(
        "training/checkpoint_order",
        "the end of an epoch counts as later than batches of the next one",
        (
            "if _FILE.fullmatch(path.name)), key=_place)",
            "if _FILE.fullmatch(path.name)), key=str)",
        ),
        ("return sorted(found, key=place_in_name)", "return sorted(found, key=str)"),
        tests="training/test_checkpoints_and_guard.py::test_going_on_anywhere_gives_the_same_bits",
    ),
    _fault(
        "training/resumed_step",
        "a training that goes on counts its first batch as none",
        ("min(self._first + batch + 1,", "min(self._first + batch,"),
        tests="training/test_checkpoints_and_guard.py::test_going_on_anywhere_gives_the_same_bits",
    ),
    _fault(
        "training/held_values",
        "a training that goes on has what layers have saved, and not what they held",
        ("                assign(pairs, file)\n", ""),
        tests="training/test_held_variables.py::test_all_variables_come_back_to_the_bit_and_go_on",
    ),
    _fault(
        "training/execution_behind_a_batch",
        "a checkpoint is due only where an execution ends with its batch",
        ("done // every > before // every", "done % every == 0"),
        tests="training/test_resumed_fit.py"
        "::test_a_checkpoint_is_written_at_the_first_end_of_an_execution",
    ),
    _fault(
        "training/missing_fsync",
        "a file gets its name before its content is on the disk",
        ("        flush_to_disk(temporary)\n", ""),
        tests=(
            "training/test_files.py::test_content_is_on_the_disk_before_its_name_and_its_name_thereafter",
        ),
    ),
    _fault(
        "training/average",
        "the mean of checkpoints is divided by one too many",
        ("(total / len(tensors)).astype", "(total / (len(tensors) + 1)).astype"),
        tests="training/test_checkpoint_averages.py::test_the_mean_is_exact",
    ),
    # Diagnostics.
    _fault(
        "diagnostics/fold_epsilon",
        "DeepNorm folds into an epsilon divided by alpha, not by its square",
        (
            "post_norm.epsilon / gain**post_norm.epsilon_power",
            "post_norm.epsilon / gain",
        ),
        tests="diagnostics/test_fold.py::test_deep_norms_epsilon_shrinks_by_alpha_squared_on_each_side",
    ),
    _fault(
        "diagnostics/entropy",
        "attention's entropy is compared with the logarithm to base 2",
        ("entropy[several] / np.log(keys[several])", "entropy[several] / np.log2(keys[several])"),
        tests="diagnostics/test_inspect.py::test_even_attention_has_the_entropy_of_log_n_and_no_copies",
    ),
    _fault(
        "diagnostics/column_error",
        "the error of the columns of a mixing matrix is that of its rows",
        ("ops.sum(mixing, axis=-2) - 1", "ops.sum(mixing, axis=-1) - 1"),
        tests="diagnostics/test_stream_statistics.py::test_numbers_are_those_of_numpy",
    ),
    _fault(
        "diagnostics/log_of_later_steps",
        "the log forgets the step that a training goes on from",
        ("for row in self.read() if row.step <= step", "for row in self.read() if row.step < step"),
        tests="diagnostics/test_residual_log.py::"
        "test_later_steps_are_dropped_and_earlier_ones_stay_as_they_are",
    ),
    _fault(
        "diagnostics/admin_root",
        "Admin's omega is the variance, not its root",
        ("sums[stack] ** 0.5 if stack in sums", "sums[stack] if stack in sums"),
        tests="diagnostics/test_admin.py::test_omega_is_the_root_of_the_sum_of_the_variances_so_far",
    ),
    # Data.
    _fault(
        "data/bucket_boundary",
        "a pair that fits a bucket exactly goes into the next one",
        (
            "np.searchsorted([bucket.length for bucket in buckets], lengths)",
            'np.searchsorted([bucket.length for bucket in buckets], lengths, "right")',
        ),
        tests="data/test_pipeline.py::test_every_pair_once_in_the_smallest_bucket_that_holds_it",
    ),
    _fault(
        "data/teacher_forcing",
        "the decoder reads the token that it has to predict",
        ("shape, pad_id, (start, *prefix), ())", "shape, pad_id, prefix, end)"),
        tests="data/test_pipeline.py::test_teacher_forcing_on_literals",
    ),
    _fault(
        "data/shuffle_seed",
        "each epoch has the order of the first one",
        ("np.random.default_rng(seed))", "np.random.default_rng(seed[0]))"),
        tests="data/test_pipeline.py::test_a_seed_shuffles_every_epoch_anew_and_every_run_alike",
    ),
    _fault(
        "data/rows_of_a_process",
        "each process reads the first rows",
        ("rows = slice(index * size, (index + 1) * size)", "rows = slice(0, size)"),
        tests="data/test_pipeline.py::test_processes_read_each_row_once",
    ),
    _fault(
        "data/gz",
        "compressed files are read as plain text",
        ('".gz": lambda file: gzip.GzipFile(fileobj=file)', '".gz": lambda file: file'),
        tests="data/test_folder.py::test_all_splits_plain_and_gzipped_in_the_order_of_the_files",
    ),
    _fault(
        "data/end_id",
        "decoding reads on behind the end token",
        (
            "                if token == self.end_id:\n                    break",
            "                if token == self.pad_id:\n                    break",
        ),
        tests="data/test_tokenizer.py::test_decode_stops_at_the_end_and_leaves_specials_out",
    ),
    _fault(
        "data/normal_form",
        "texts are brought into form NFC",
        ('normalize("NFKC", text).replace', 'normalize("NFC", text).replace'),
        tests="data/test_tokenizer.py::test_normalize",
    ),
    _fault(
        "data/format_characters",
        "marks of direction and soft hyphens stay in texts",
        ('category == "Cf" and character', 'category == "Cn" and character'),
        tests="data/test_normalization.py"
        "::test_f5_invisible_characters_are_read_as_if_they_were_not_there",
    ),
    _fault(
        "data/held_out_by_case",
        "translations of one sentence in two spellings are held out apart",
        ('" ".join(text.casefold().split())', '" ".join(text.split())'),
        tests="data/test_splits_and_held_out.py"
        "::test_m3_all_translations_of_a_sentence_are_on_one_side",
    ),
    # Serving.
    _fault(
        "serving/gzip_bomb",
        "the limit of a body holds for the bytes that come in",
        ("gzip.decompress(body, limit + 1 - len(found))", "gzip.decompress(body)"),
        tests="serving/test_server_rest.py::test_f10_a_bomb_is_not_inflated",
    ),
    _fault(
        "serving/rest_status",
        "a full queue answers 503 in place of 429",
        ('"RESOURCE_EXHAUSTED": (8, 429)', '"RESOURCE_EXHAUSTED": (8, 503)'),
        tests="serving/test_server_rest.py::test_a_full_queue_refuses_and_recovers",
    ),
    _fault(
        "serving/not_found",
        "an unknown model is the client's mistake in REST",
        (
            'raise ServingError("NOT_FOUND", f"Servable not found',
            'raise ServingError("INVALID_ARGUMENT", f"Servable not found',
        ),
        tests="serving/test_server_rest.py::test_calls_to_the_wrong_place",
    ),
    _fault(
        "serving/time_limit",
        "a request waits for ever",
        ("async with asyncio.timeout(limit):", "async with asyncio.timeout(None):"),
        tests="serving/test_server_rest.py::test_time_is_up",
    ),
    _fault(
        "serving/grpc_status",
        "every refusal has gRPC's status UNKNOWN",
        ("grpc.StatusCode[code], text", "grpc.StatusCode.UNKNOWN, text"),
        tests="serving/test_server_grpc.py::test_bad_requests",
    ),
    _fault(
        "serving/batch_size",
        "a batch of the server is never full",
        (
            "batch.rows + work.rows > largest",
            "batch.rows + work.rows >= largest",
        ),
        tests="serving/test_scheduler.py::test_a_batch_has_its_largest_size",
    ),
    _fault(
        "serving/order_of_texts",
        "texts that an export sorts by length come back in that order",
        ("back = tf.argsort(order)", "back = tf.range(tf.size(order))"),
        tests="serving/test_signatures.py::test_map_in_batches_sorts_trims_and_puts_back",
    ),
    _fault(
        "serving/alignments_of_a_text",
        "alignments count from the beginning of each sentence, not of the text",
        ("alignments + begins[:, None, None]", "alignments + 0 * begins[:, None, None]"),
        tests="serving/test_signatures.py::test_nbest_with_alignments",
    ),
    _fault(
        "serving/divided_at",
        "a sentence that is too long is divided in a graph where no space is",
        (
            "end = tf.where(space > start, space, part)",
            "end = tf.where(space < start, space, part)",
        ),
        tests="serving/test_graph_segments.py::test_the_same_segments",
    ),
    _fault(
        "serving/links",
        "a model's folder may link to files outside",
        (
            "if not entry.resolve().is_relative_to(directory)",
            "if not entry.is_relative_to(directory)",
        ),
        tests="serving/test_versions_watch.py::test_links_that_lead_out_are_refused",
    ),
    _fault(
        "serving/transposes",
        "a product of an export reads a transposed matrix as it lies",
        (
            'node.attr["transpose_b"].b ^= True',
            'node.attr["transpose_b"].b |= False',
        ),
        tests="serving/test_slim.py::test_products_read_transposed_matrices_as_they_lie",
    ),
    _fault(
        "serving/answer_limit",
        "an answer may be as large as memory",
        ("if size > settings.max_answer_bytes:", "if size > 2**60:"),
        tests="serving/test_server_limits.py"
        "::test_what_costs_too_much_is_refused_before_it_is_computed",
    ),
    _fault(
        "serving/turns",
        "a large request is computed to its end before the next one",
        ("self._large.append(large)", "self._large.appendleft(large)"),
        tests="serving/test_scheduler.py::test_large_requests_take_turns",
    ),
    _fault(
        "serving/not_read",
        "an answer that nobody reads is kept",
        ("self.transport.abort()", "self.transport.close()"),
        tests="serving/test_server_limits.py"
        "::test_a_connection_waits_for_a_reader_and_then_no_longer",
    ),
    _fault(
        "serving/long_words",
        "a graph cuts long words at other characters",
        (
            "tf.equal(place % LONGEST_WORD, 0)\n    room",
            "tf.equal(place % LONGEST_WORD, 1)\n    room",
        ),
        tests="serving/test_long_words.py::test_python_and_the_graph_cut_at_the_same_characters",
    ),
    # Interop.
    _fault(
        "interop/skip_gain",
        "CTranslate2 gets DeepNorm's branch without its alpha",
        ("return scale / _skip_gain(add_norm)", "return scale"),
        tests="interop/test_ctranslate2.py::test_same_tokens_and_scores",
        only="deep_norm",
    ),
    _fault(
        "interop/source_end",
        "CTranslate2 reads sources without their end token",
        ("add_source_eos = tokenizers", "add_source_eos = None and tokenizers"),
        tests="interop/test_ctranslate2.py::test_same_tokens_and_scores",
        only="deep_norm",
    ),
    _fault(
        "interop/leftover_folder",
        "an export that fails may leave its half-written folder",
        (
            "temporary.rename(directory)\n    finally:\n        shutil.rmtree(temporary,",
            "temporary.rename(directory)\n    finally:\n        dict(folder=temporary,",
        ),
        (
            "        flush_to_disk(final.parent)\n    finally:\n        shutil.rmtree(temporary,",
            "        flush_to_disk(final.parent)\n    finally:\n        dict(folder=temporary,",
        ),
        tests="interop/test_ctranslate2.py::test_a_failure_leaves_nothing",
    ),
    # Distribution.
    _fault(
        "distribution/divisible",
        "a size that devices cannot share evenly is let through",
        (
            "for name, size in sizes.items() if size % devices]",
            "for name, size in sizes.items() if size < devices]",
        ),
        tests="distribution/test_eight_devices.py::test_what_cannot_be_divided_is_refused",
    ),
    _fault(
        "distribution/half_told_place",
        "a process that is not told its number takes number 0",
        ("if not value.isdecimal():", "if value and not value.isdecimal():"),
        tests="distribution/test_eight_devices.py::test_a_place_that_is_half_told_is_refused",
    ),
    # Runs.
    _fault(
        "runs/lines_of_a_test_set",
        "an evaluation leaves out the lines that a training does",
        ("load_texts(run.config, split, keep_every_pair=True)", "load_texts(run.config, split)"),
        tests="runs/test_run_data.py::test_f6_every_line_of_a_test_set_is_translated_and_counted",
    ),
    _fault(
        "runs/best_epoch",
        "the worst epoch is kept as the best",
        (
            "key=lambda row: row[self.metric], reverse=self.high)",
            "key=lambda row: row[self.metric], reverse=not self.high)",
        ),
        tests="runs/test_run_checks.py::test_the_best_epochs_of_a_log",
    ),
    _fault(
        "runs/averaged_weights",
        "a run translates with its best weights although there are averaged ones",
        (
            "for path in (self.averaged_weights, self.best_weights):",
            "for path in (self.best_weights, self.averaged_weights):",
        ),
        tests="runs/test_run_config.py::test_averaged_weights_come_first",
    ),
    _fault(
        "runs/cooldown_of_batches",
        "a cool-down counts batches where several share an update",
        (
            "last = steps_per_epoch * training.cooldown_epochs // together",
            "last = steps_per_epoch * training.cooldown_epochs",
        ),
        tests="runs/test_run_checks.py::test_a_cooldown_takes_the_last_epochs_updates",
    ),
    _fault(
        "runs/full_disk",
        "a disk without room is found out after an hour",
        ("    if free < needed:", "    if free < 0 * needed:"),
        tests="runs/test_run_checks.py::test_a_disk_without_room_is_an_error_before_the_first_step",
    ),
    # The command line.
    _fault(
        "cli/exit_status",
        "a user's mistake exits with status 1",
        (
            "file=sys.stderr)\n        return 2",
            "file=sys.stderr)\n        return 1",
        ),
        tests="cli/test_cli.py::test_a_users_error_is_one_message_and_status_2",
    ),
    _fault(
        "cli/order_of_settings",
        "the settings file wins over the flags",
        ("settings |= given(options)", "settings = given(options) | settings"),
        tests="cli/test_cli.py::test_run_directory_then_file_then_flags",
    ),
    _fault(
        "cli/keyboard_interrupt",
        "Ctrl-C looks like success",
        ('getattr(stop, "exit_status", 130)', 'getattr(stop, "exit_status", 0)'),
        tests="cli/test_cli.py::test_u4_only_a_training_goes_on_after_ctrl_c",
    ),
    _fault(
        "cli/prefix_of_a_flag",
        "--max-len is taken for --max-length",
        ("allow_abbrev=False", "allow_abbrev=True"),
        tests="cli/test_cli.py::test_an_unknown_flag_is_named_in_a_line",
    ),
    _fault(
        "cli/one_name_for_two_settings",
        "train --max-length limits the evaluation",
        ("others = _JOBS - {own_table}", "others = _JOBS & {own_table}"),
        tests="cli/test_cli.py::test_flags_become_settings",
    ),
    _fault(
        "serving/inflate",
        "a body of gzip is inflated without a limit",
        ("gzip.decompress(body, limit + 1 - len(found))", "gzip.decompress(body)"),
        tests="serving/test_server_rest.py::test_f10_a_bomb_is_not_inflated",
    ),
)


def read(folder: Path, names: str = "*.py") -> dict[Path, str]:
    """Returns the text of each file below a folder."""
    return {path: path.read_text(encoding="utf-8") for path in sorted(folder.rglob(names))}


def find(fault: Fault, code: Mapping[Path, str]) -> tuple[Path, str, str]:
    """Finds where a fault goes.

    Args:
        fault: The fault.
        code: The text of each module.

    Returns:
        The file, the text in it, and the text to put in its place.

    Raises:
        LookupError: If not exactly one place fits.
    """
    places = []
    for path, text in code.items():
        for old, new in fault.changes:
            places += [(path, old, new)] * text.count(old)
    if len(places) != 1:
        where = ", ".join(str(path) for path, *_ in places) or "nowhere"
        raise LookupError(
            f"The text of the fault {fault.room}/{fault.name} stands in {len(places)} places "
            f"({where}). Expected one: write down the new wording of the place in `changes`."
        )
    return places[0]


def find_tests(fault: Fault, tests: Mapping[Path, str]) -> list[str]:
    """Finds the tests of a fault, by their names.

    Args:
        fault: The fault.
        tests: The text of each file of tests.

    Returns:
        What pytest is given.

    Raises:
        LookupError: If there is no test of that name, or several fit equally well.
    """
    found = []
    for test in fault.tests:
        hint, _, name = test.partition("::")
        defines = re.compile(rf"^def {name}\(", re.MULTILINE)
        files = [path for path, text in tests.items() if defines.search(text)]
        if len(files) > 1:
            folder, file = hint.split("/")
            exact = [path for path in files if (path.parent.name, path.name) == (folder, file)]
            files = exact or [path for path in files if path.parent.name == folder]
        if len(files) != 1:
            raise LookupError(
                f"There are {len(files)} tests {name} for the fault {fault.room}/{fault.name}. "
                "Expected one: write down its new name in `tests`."
            )
        found.append(f"{files[0]}::{name}")
    return found


def copy_of(root: Path, folder: Path) -> Path:
    """Copies a checkout, without what git or Python keeps in it."""
    left_out = shutil.ignore_patterns("__pycache__", ".*_cache", ".hypothesis")
    folder.mkdir()
    for name in ("keras_addnorm", "tests", "docs", "examples", "benchmarks", "saved_models"):
        if (root / name).is_dir():
            shutil.copytree(root / name, folder / name, ignore=left_out)
    for path in root.iterdir():
        if path.is_file() and not path.name.startswith(".git"):
            shutil.copy2(path, folder / path.name)
    return folder


class Trial:
    """A process that runs tests in a checkout, with or without a fault in it.

    It is a copy of this process (`os.fork`), which has imported what takes long to import, so that
    a trial takes seconds. The package and the tests it imports itself.

    Args:
        checkout: The folder to run them in; nobody else may use it meanwhile.
        tests: What pytest is given.
        only: Its `-k`.
        change: A file, the text in it, and the text to put in its place while the tests run.
    """

    def __init__(
        self,
        checkout: Path,
        tests: list[str],
        only: str = "",
        change: tuple[Path, str, str] | None = None,
    ) -> None:
        self.checkout = checkout
        self.change = change
        self._started = time.monotonic()
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with the result)
        if change is not None:
            path, old, new = change
            self._text = path.read_text(encoding="utf-8")
            _write(path, self._text.replace(old, new))
        self._child = os.fork()
        if self._child == 0:
            _become_pytest(checkout, tests, only, self._said)

    @property
    def seconds(self) -> float:
        """How long it has been running."""
        return time.monotonic() - self._started

    def result(self, limit: float) -> tuple[str, str] | None:
        """Returns what became of it, once it is over.

        Args:
            limit: After how many seconds it is ended.

        Returns:
            "passed", "failed" or what else happened, and what pytest printed; or None if it runs.
        """
        child, status = os.waitpid(self._child, os.WNOHANG)
        if not child:
            if self.seconds < limit:
                return None
            os.killpg(self._child, signal.SIGKILL)
            os.waitpid(self._child, 0)
        if self.change is not None:
            _write(self.change[0], self._text)
        with self._said as file:
            file.seek(0)
            said = file.read()
        if not child:
            return "the time was up", said
        code = os.waitstatus_to_exitcode(status)
        return {0: "passed", 1: "failed", 5: "no test ran"}.get(code, f"ended with {code}"), said


def _become_pytest(checkout: Path, tests: list[str], only: str, said: TextIO) -> NoReturn:
    status = 70
    try:
        os.setsid()
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
        os.chdir(checkout)
        os.environ["PYTHONPATH"] = str(checkout)  # For processes that tests start.
        sys.path.insert(0, str(checkout))
        options = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not browser", "--tb=line"]
        status = int(pytest.main([*options, *(["-k", only] if only else []), *tests]))
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


def import_what_takes_long(checkout: Path) -> None:
    """Imports what all trials need, in the environment that the tests' `conftest.py` sets."""
    if (checkout / "tests" / "conftest.py").exists():
        runpy.run_path(str(checkout / "tests" / "conftest.py"))
    for name in ("tensorflow", "keras", "h5py", "sentencepiece"):
        importlib.import_module(name)
    gc.freeze()


def start(fault: Fault, checkout: Path) -> Trial:
    """Puts a fault in and starts its tests.

    Args:
        fault: The fault.
        checkout: A copy that may be changed.

    Returns:
        The trial, which takes the fault out again once it is over.

    Raises:
        LookupError: If the fault or a test of it is not there.
    """
    tests = find_tests(fault, read(checkout / "tests", "test_*.py"))
    change = find(fault, read(checkout / PACKAGE))
    return Trial(checkout, [_node(checkout, test) for test in tests], fault.only, change)


def _node(checkout: Path, test: str) -> str:
    return test.removeprefix(f"{checkout}/")


def _write(path: Path, text: str) -> None:
    """Writes a module, and removes its bytecode: a change within a second would not be seen."""
    path.write_text(text, encoding="utf-8")
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
        compiled.unlink()


def try_all(
    faults: Iterable[Fault], copies: list[Path], limit: float
) -> Iterator[tuple[Fault, str, float, str]]:
    """Tries faults, as many at a time as there are copies.

    Args:
        faults: The faults.
        copies: Checkouts that may be changed.
        limit: How many seconds the tests of a fault may take.

    Yields:
        Each fault as it is done, its result ("caught" is what should), the seconds that it took
        and what pytest printed.
    """
    waiting, free = list(reversed(list(faults))), list(copies)
    running: list[tuple[Fault, Trial]] = []
    names = {"failed": "caught", "passed": "NOT CAUGHT"}
    while waiting or running:
        while waiting and free:
            fault = waiting.pop()
            try:
                running.append((fault, start(fault, free[-1])))
                free.pop()
            except LookupError as error:
                yield fault, "not there", 0.0, str(error)
        for fault, trial in list(running):
            found = trial.result(limit)
            if found is not None:
                running.remove((fault, trial))
                free.append(trial.checkout)
                yield fault, names.get(found[0], found[0]), trial.seconds, found[1]
        time.sleep(0.05)


def passes_without_faults(faults: Iterable[Fault], checkout: Path) -> bool:
    """Runs the tests of faults on the code as it is: one that fails anyway catches nothing."""
    together: dict[str, list[str]] = {}
    texts = read(checkout / "tests", "test_*.py")
    for fault in faults:
        with contextlib.suppress(LookupError):
            tests = [_node(checkout, test) for test in find_tests(fault, texts)]
            together.setdefault(fault.only, []).extend(tests)
    for only, tests in together.items():
        trial = Trial(checkout, list(dict.fromkeys(tests)), only)
        while (found := trial.result(3600)) is None:
            time.sleep(0.05)
        print(f"Without a fault: {found[1].strip().splitlines()[-1]}", file=sys.stderr, flush=True)
        if found[0] != "passed":
            print(f"Without a fault, tests did not pass ({found[0]}):\n{found[1]}")
            return False
    return True


def main() -> int:
    """Runs the command; the exit status is 1 if a fault was not caught."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout (default: this one)")
    parser.add_argument("--only", default="", help="only faults whose room/name contains this")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time (default: 1)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="limit for a fault's tests")
    parser.add_argument(
        "--without-baseline", action="store_true", help="do not run the tests without a fault first"
    )
    options = parser.parse_args()
    chosen = [fault for fault in FAULTS if options.only in f"{fault.room}/{fault.name}"]
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        copies = [
            copy_of(options.root.resolve(), Path(folder) / str(job)) for job in range(options.jobs)
        ]
        import_what_takes_long(copies[0])
        if not options.without_baseline and not passes_without_faults(chosen, copies[0]):
            return 1
        print("| part | fault | what it breaks | found by | result | seconds |")
        print("|---|---|---|---|---|---:|")
        missed = 0
        for fault, result, took, said in try_all(chosen, copies, options.seconds):
            names = ", ".join(test.rpartition("::")[2] for test in fault.tests)
            cells = fault.room, fault.name, fault.breaks, f"`{names}`", result, f"{took:.0f}"
            print(f"| {' | '.join(cells)} |", flush=True)
            if result != "caught":
                missed += 1
                print(f"{fault.room}/{fault.name}: {result}\n{said[-2000:]}", file=sys.stderr)
    print(f"\n{len(chosen) - missed} of {len(chosen)} faults were caught.")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
