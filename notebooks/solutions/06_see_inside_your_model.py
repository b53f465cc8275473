# %% exercise=1
most_needed = max((name for name in increases if name.startswith("decoder")), key=increases.get)


# %% exercise=2
def depth_of(increases):
    d = np.maximum(increases, 0.0)
    return d.sum() ** 2 / (d**2).sum()


# %% exercise=3
real = inputs["target"] != 0
effect = np.linalg.norm(f[real]) / np.linalg.norm(x[real])
