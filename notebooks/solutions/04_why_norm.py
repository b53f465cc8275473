# %% exercise=1
def rms_norm(x, epsilon=1e-6):
    return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + epsilon)


# %% exercise=2
variance_behind = 1 + 20 * 1


# %% exercise=3
def noam_rate(step, width, warmup):
    return width**-0.5 * min(step**-0.5, step * warmup**-1.5)
