import sys
import tracemalloc

import keras
import matplotlib.image
import numpy as np
import pytest
from matplotlib.figure import Figure

from keras_addnorm.training import plot_curves

FULL = """epoch,accuracy,loss,perplexity,val_accuracy,val_bleu,val_chrf,val_loss,val_perplexity
0,0.1,4.0,54.6,0.1,1.5,9.0,4.1,60.3
1,0.4,2.0,7.4,0.3,nan,nan,2.5,12.2
2,0.6,1.0,2.7,0.5,30.0,50.0,2.6,NA
"""


@pytest.fixture
def drawn(monkeypatch):
    """The figures that were saved, to look into."""
    figures = []
    save = Figure.savefig

    def remember(figure, *args, **kwargs):
        figures.append(figure)
        save(figure, *args, **kwargs)

    monkeypatch.setattr(Figure, "savefig", remember)
    return figures


def curves(axes):
    return {
        line.get_label(): np.transpose(line.get_data()).tolist()
        for line in axes.get_lines()
        if not line.get_label().startswith("_")
    }


def plot(folder, text):
    (folder / "log.csv").write_text(text)
    return plot_curves(folder / "log.csv", folder / "pictures" / "curves.png")


def test_every_column_is_drawn_with_epochs_from_one(tmp_path, drawn):
    path = plot(tmp_path, FULL)
    assert path == tmp_path / "pictures" / "curves.png"
    panels = {axes.get_title(loc="left"): curves(axes) for axes in drawn[0].axes}
    assert panels == {
        "Loss per token": {
            "training": [[1, 4.0], [2, 2.0], [3, 1.0]],
            "validation": [[1, 4.1], [2, 2.5], [3, 2.6]],
        },
        "Accuracy per token": {
            "training": [[1, 0.1], [2, 0.4], [3, 0.6]],
            "validation": [[1, 0.1], [2, 0.3], [3, 0.5]],
        },
        "Perplexity": {
            "training": [[1, 54.6], [2, 7.4], [3, 2.7]],
            "validation": [[1, 60.3], [2, 12.2]],
        },
        "Translations": {"chrF": [[1, 9.0], [3, 50.0]], "BLEU": [[1, 1.5], [3, 30.0]]},
    }
    best = [axes.get_title(loc="right") for axes in drawn[0].axes]
    assert best == [
        "best validation 2.5, epoch 2",
        "best validation 50.0%, epoch 3",
        "best validation 12.20, epoch 2",
        "best BLEU 30.0, epoch 3",
    ]


def test_the_picture_is_a_whole_png_of_a_size_to_look_at(tmp_path):
    path = plot(tmp_path, FULL)
    pixels = matplotlib.image.imread(path)
    assert pixels.shape == (990, 1560, 4)
    assert len(np.unique(pixels.reshape(-1, 4), axis=0)) > 50
    assert [file.name for file in path.parent.iterdir()] == ["curves.png"]


def test_a_log_of_losses_alone(tmp_path, drawn):
    plot(tmp_path, "epoch,loss\n0,3.0\n1,2.0\n")
    assert [curves(axes) for axes in drawn[0].axes] == [{"training": [[1, 3.0], [2, 2.0]]}]
    assert drawn[0].axes[0].get_title(loc="right") == "best training 2, epoch 2"


def test_an_epoch_logged_again_counts_once(tmp_path, drawn):
    plot(tmp_path, "epoch,loss\n0,3.0\n1,2.9\n1,2.0\n2,1.0\n")
    assert curves(drawn[0].axes[0])["training"] == [[1, 3.0], [2, 2.0], [3, 1.0]]


def test_what_keras_writes_can_be_drawn(tmp_path, drawn):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    data = np.ones((2, 1), "float32")
    logger = keras.callbacks.CSVLogger(tmp_path / "log.csv")
    history = model.fit(data, data, epochs=2, callbacks=[logger], verbose=0).history
    plot_curves(tmp_path / "log.csv", tmp_path / "curves.png")
    expected = [[epoch + 1, loss] for epoch, loss in enumerate(history["loss"])]
    np.testing.assert_allclose(curves(drawn[0].axes[0])["training"], expected, rtol=1e-6)


def test_no_global_figure_is_left(tmp_path):
    plot(tmp_path, FULL)
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or pyplot.get_fignums() == []


def test_a_log_with_many_columns_and_short_rows_is_read_as_it_is(tmp_path, drawn):
    """A row has the values that stand in it, not one for each of thousands of columns."""
    columns = ",".join(f"x{number}" for number in range(2000))
    text = f"epoch,loss,{columns},val_loss\n" + "".join(f"{n},{n}\n" for n in range(2000))
    (tmp_path / "log.csv").write_text(text)
    tracemalloc.start()
    try:
        plot_curves(tmp_path / "log.csv", tmp_path / "curves.png")
        assert tracemalloc.get_traced_memory()[1] < 50 * 2**20
    finally:
        tracemalloc.stop()
    assert len(curves(drawn[0].axes[0])["training"]) == 2000


def test_bad_logs_are_named(tmp_path):
    with pytest.raises(FileNotFoundError):
        plot_curves(tmp_path / "none.csv", tmp_path / "curves.png")
    for text in ("", "loss\n1\n", "epoch,loss\n"):
        with pytest.raises(ValueError, match="is not a training log: expected a column 'epoch'"):
            plot(tmp_path, text)
    with pytest.raises(ValueError, match=r"nothing to draw. Expected .* Received: speed"):
        plot(tmp_path, "epoch,speed\n0,1\n")
    for value in ("NA", "1e101", "-1e101", "inf"):
        with pytest.raises(ValueError, match="nothing to draw"):
            plot(tmp_path, f"epoch,loss\n0,{value}\n")
    for epoch in ("x", "", "1e999", "nan", "1e18"):
        with pytest.raises(ValueError, match=r"log\.csv is not a .*: a row has no number"):
            plot(tmp_path, f"epoch,loss\n{epoch},1\n")
    with pytest.raises(ValueError, match=r"log\.csv is not a training log: it is no CSV"):
        plot(tmp_path, f'epoch,loss\n0,"{"x" * 200_000}"\n')
