# %% exercise=1
accuracy_over_all = 0.75 * 12 / 60


# %% exercise=2
def last_word(ids):
    return (ids != 0).sum(axis=1) - 1


# %% exercise=3
def attention_weights(width, heads, head_width):
    return 4 * width * heads * head_width
