# %% exercise=1
def training_rows(source, target):
    return {"source": [*source, 2], "target": [1, *target], "labels": [*target, 2]}


# %% exercise=2
def accuracy_over_words(labels, predictions):
    is_word = labels != 0
    return (labels == predictions)[is_word].mean()


# %% exercise=3
def beam_score(log_probabilities, alpha):
    return sum(log_probabilities) / ((5 + len(log_probabilities)) / 6) ** alpha
