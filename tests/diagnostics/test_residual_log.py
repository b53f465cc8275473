"""The monitor's CSV: whole lines, read back as written, cut back for a training that goes on."""

import dataclasses
import math
import os

import pytest

from keras_addnorm.diagnostics.residual_log import COLUMNS, ResidualLog, ResidualRow


def row(step, sublayer="decoder/1/cross_attention", value=0.1):
    numbers = value, value / 3, value * 3, 1 / 3, -1e-7, float("nan"), -value, value / 7, 0.0
    return ResidualRow(step, sublayer, *numbers)


@pytest.fixture
def log(tmp_path):
    return ResidualLog(tmp_path / "run" / "residuals.csv")


def test_the_columns_are_documented_file_format(log):
    log.append([row(7)])
    header, line, rest = log.path.read_text(encoding="utf-8").split("\n")
    assert header == (
        "step,sublayer,residual_rms,branch_rms,merged_rms,residual_ratio,cosine,gradient_norm,"
        "residual_mean,branch_mean,merged_mean"
    )
    assert line.startswith("7,decoder/1/cross_attention,0.1,0.0333333")
    assert rest == ""


def test_rows_come_back_as_they_were(log):
    log.append([row(100, "a"), row(100, "b")])
    log.append([row(200, "a", 2.0)])
    rows = log.read()
    assert [(r.step, r.sublayer) for r in rows] == [(100, "a"), (100, "b"), (200, "a")]
    assert repr(rows[2]) == repr(row(200, "a", 2.0))


def test_without_a_file_there_are_no_rows(log):
    assert log.read() == []
    log.drop_after(3)
    assert not log.path.exists()


def test_later_steps_are_dropped_and_earlier_ones_stay_as_they_are(log):
    log.append([row(100, "a"), row(100, "b")])
    before = log.path.read_bytes()
    log.append([row(200, "a")])
    log.drop_after(150)
    assert log.path.read_bytes() == before
    log.drop_after(100)
    assert log.path.read_bytes() == before


def test_half_a_line_is_left_out_and_removed(log):
    log.append([row(100)])
    whole = log.path.read_bytes()
    with log.path.open("a", encoding="utf-8") as file:
        file.write("200,decoder/1/cross_att")
    assert [r.step for r in log.read()] == [100]
    log.drop_after(10**9)
    assert log.path.read_bytes() == whole


def test_a_log_of_before_there_were_means_goes_on(log):
    log.append([row(100), row(200)])
    lines = log.path.read_text(encoding="utf-8").splitlines()
    old = [line.rsplit(",", 3)[0] for line in lines]
    log.path.write_text("".join(f"{line}\n" for line in old), encoding="utf-8")
    first, _ = log.read()
    assert dataclasses.astuple(first)[:7] == dataclasses.astuple(row(100))[:7]
    assert all(map(math.isnan, dataclasses.astuple(first)[8:]))
    log.drop_after(100)
    log.append([row(300)])
    assert [(one.step, one.residual_mean) for one in log.read()[1:]] == [(300, -0.1)]


def test_another_csv_is_refused(log):
    log.path.parent.mkdir()
    log.path.write_text("epoch,loss\n1,2.0\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"Expected the columns step, .*Received: epoch, loss"):
        log.read()
    assert COLUMNS[0] == "step"


@pytest.mark.parametrize("content", [b"", b"\xff\n", b'"', b"x" * 200_000 + b"\n", b"\0\n"])
def test_what_is_no_log_is_refused_by_its_name(log, content):
    log.append([row(7)])
    log.path.write_bytes(content)
    with pytest.raises(ValueError, match=r"residuals\.csv' is no"):
        log.read()


# The last one: a file could have very many such numbers, which have one hash all together.
@pytest.mark.parametrize("value", ["x", "1e999x", "", "9" * 5000, str(2**61 - 1)])
def test_a_damaged_row_is_refused_by_the_name_of_its_file(log, value):
    log.append([row(7)])
    text = log.path.read_text(encoding="utf-8")
    log.path.write_text(text.replace("\n7,", f"\n{value},"), encoding="utf-8")
    with pytest.raises(ValueError, match=r"residuals\.csv' is damaged"):
        log.read()


def test_a_row_with_more_values_than_columns_is_damaged(log):
    log.append([row(7)])
    text = log.path.read_text(encoding="utf-8")
    log.path.write_text(text.removesuffix("\n") + ",8\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"residuals\.csv' is damaged"):
        log.read()


def test_a_pipe_in_the_place_of_a_log_is_refused(log):
    log.path.parent.mkdir()
    os.mkfifo(log.path)
    with pytest.raises(ValueError, match="is a pipe"):
        log.append([row(7)])
