"""fairseq's options of trainings, searches and files, which change nothing in a model."""

from __future__ import annotations

from keras_addnorm.interop.families.fields import names

# Those of versions 0.6 to 0.12: of common use, of translation and denoising tasks, of criteria,
# optimisers and schedules, and of those of a model's that matter in training alone.
IGNORED = names(
    """
    _name adadelta_eps adadelta_rho adafactor_eps adam_betas adam_eps adamax_betas adamax_eps
    adaptive_softmax_dropout adaptive_softmax_factor add_lang_token aim_repo aim_run_hash
    align_suffix alignfile alignment_heads alignment_lambda alignment_layer all_gather_list_size
    amp amp_batch_retries amp_init_scale amp_scale_window anneal_eps arch average_sync
    azureml_logging base_shuffle base_sublayers batch_size batch_size_valid beam beam_mt
    best_checkpoint_metric beta1 bf16 block_lr block_momentum bmuf bpe broadcast_buffers
    bucket_cap_mb buffer_size checkpoint_activations checkpoint_shard_count checkpoint_suffix
    clip_norm clip_threshold combine_val combine_valid_subsets constraints context_window
    continue_once cpu cpu_offload criterion ctc_weight curriculum data data_buffer_size
    dataset_impl ddp_backend ddp_comm_hook debug_param_names decay_rate decay_steps
    decoder_embed_path decoder_langtok decoder_layerdrop decoding_format destdir device_id
    dict_only disable_validation distributed_backend distributed_init_method
    distributed_no_spawn distributed_num_procs distributed_port distributed_rank
    distributed_world_size diverse_beam_groups diverse_beam_strength diversity_rate
    dynamic_groups ema ema_decay ema_fp32 ema_seed_model ema_start_update ema_update_freq
    empty_cache_freq enable_lang_ids enable_reservsed_directions_shared_datasets
    encoder_embed_path encoder_langtok encoder_layerdrop end_learning_rate epoch2lr eval_bleu
    eval_bleu_args eval_bleu_detok eval_bleu_detok_args eval_bleu_print_samples
    eval_bleu_remove_bpe eval_lm eval_tokenized_bleu export extra_data extra_lang_pairs
    fast_stat_sync final_lr_scale find_unused_parameters finetune_from_model fix_batches_to_gpus
    fixed_dictionary fixed_validation_seed force_anneal fp16 fp16_adam_stats fp16_init_scale
    fp16_no_flatten_grads fp16_scale_tolerance fp16_scale_window fp32_reduce_scatter
    full_context_alignment gen_subset global_sync_iter gradient_as_bucket_view grouped_shuffling
    groups heartbeat_timeout hold_steps ignore_prefix_size ignore_unused_valid_subsets
    init_lr_scale input insert iter_decode_eos_penalty iter_decode_force_max_iter
    iter_decode_max_iter iter_decode_with_beam iter_decode_with_external_reranker
    joined_dictionary keep_best_checkpoints keep_inference_langtok keep_interval_updates
    keep_interval_updates_pattern keep_last_epochs label_smoothing lamb_betas lamb_eps lang_dict
    lang_pairs lang_tok_style langs langtoks langtoks_specs latency_avg_type latency_avg_weight
    latency_gather_method latency_update_after latency_var_type latency_var_weight lazy_load
    left_pad_source left_pad_target lenpen lenpen_mt load_alignments
    load_checkpoint_on_all_dp_ranks localsgd_frequency log_file log_format log_interval lr
    lr_deacy_period lr_decay lr_float lr_patience lr_period_updates lr_scheduler lr_shrink
    lr_threshold mask mask_length mask_random match_source_len max_epoch max_len_a max_len_a_mt
    max_len_b max_len_b_mt max_lr max_sentences max_sentences_valid max_target_positions
    max_tokens max_tokens_valid max_update max_valid_steps maximize_best_checkpoint_metric
    memory_efficient_bf16 memory_efficient_fp16 min_len min_loss_scale min_lr min_params_to_wrap
    model_overrides model_parallel_size momentum multilang_sampling_alpha nbest no_beamable_mm
    no_bias_correction no_early_stop no_epoch_checkpoints no_last_checkpoints no_progress_bar
    no_repeat_ngram_size no_reshard_after_forward no_save no_save_optimizer_state
    no_seed_provided no_whole_word_mask_langs noise not_fsdp_flatten_parameters nprocs_per_node
    num_batch_buckets num_shards num_workers nval nwordssrc nwordstgt offload_activations
    on_cpu_convert_precision only_source optimizer optimizer_overrides output_word_probs
    output_word_stats padding_factor path patience permute permute_sentences phase_ratio
    pipeline_balance pipeline_checkpoint pipeline_chunks pipeline_decoder_balance
    pipeline_decoder_devices pipeline_devices pipeline_encoder_balance pipeline_encoder_devices
    pipeline_model_parallel plasma_path poisson_lambda pooler_activation_fn pooler_dropout
    post_process power prefix_size print_alignment print_step profile quant_noise quant_noise_pq
    quant_noise_pq_block_size quant_noise_scalar quantization_config_path quiet raw_text
    rdrop_alpha relative_step relu_dropout remove_bpe replace_length replace_unk report_accuracy
    required_batch_size_multiple required_seq_len_multiple reset_dataloader reset_logging
    reset_lr_scheduler reset_meters reset_optimizer restore_file results_path retain_dropout
    retain_dropout_modules retain_iter_history rotate sacrebleu sample_break_mode sampling
    sampling_temperature sampling_topk sampling_topp sampling_weights sampling_weights_from_file
    save_async save_dir save_interval save_interval_updates scale_parameter score_reference
    scoring seed sentence_avg shard_id shorten_data_split_list shorten_method shrink_min
    shuffle_instance skip_invalid_size_inputs_valid_test skip_remainder_batch
    slowmo_base_algorithm slowmo_momentum softmax_batch source_dict source_lang
    spectral_norm_classification_head srcdict stop_min_lr stop_time_hours store_ema
    suppress_crashes t_mult target_dict target_lang task tbmf_wrapper temperature
    tensorboard_logdir testpref tgtdict threshold_loss_scale thresholdsrc thresholdtgt
    tie_adaptive_proj tokenizer tokens_per_sample total_num_update tpu train_subset trainpref
    truncate_source unkpen unnormalized update2lr update_epoch_batch_itr update_freq
    update_ordered_indices_seed upsample_primary use_bmuf use_nbm use_old_adam use_plasma_view
    use_sharded_state user_dir valid_subset validate_after_updates validate_interval
    validate_interval_updates validpref virtual_data_size virtual_epoch_size wandb_project
    warmup_init warmup_init_lr warmup_iterations warmup_steps warmup_updates weight_decay
    workers write_checkpoints_asynchronously zero_sharding
    """
)
