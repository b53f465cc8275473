"""The state of a training step on JAX, for the programs that lower one."""


def train_state(model, data):
    """Build what `fit` builds for such a batch; return the arrays that `train_step` takes."""
    model._symbolic_build(data_batch=data)
    model.optimizer.build(model.trainable_variables)
    return tuple(
        [v.value for v in variables]
        for variables in (
            model.trainable_variables,
            model.non_trainable_variables,
            model.optimizer.variables,
            model.metrics_variables,
        )
    )
