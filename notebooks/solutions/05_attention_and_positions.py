# %% exercise=1
def window_mask(length):
    far = distances(length)
    return (far <= 0) & (far > -3)


# %% exercise=2
divisor = np.sqrt(64 * 4 * 4)


# %% exercise=3
def split(x, heads):
    batch, length, width = x.shape
    return x.reshape(batch, length, heads, width // heads).swapaxes(1, 2)


def merge(x):
    batch, heads, length, width = x.shape
    return x.swapaxes(1, 2).reshape(batch, length, heads * width)
