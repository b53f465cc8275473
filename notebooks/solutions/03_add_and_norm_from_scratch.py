# %% exercise=1
branch = np.array([0.1, 0.9]) - np.array([0.5, 0.5])


# %% exercise=2
def sandwich(x, f):
    return x + layer_norm(f(layer_norm(x)))


# %% exercise=3
number_of_boxes = 4 * 2 + 3 * 3
