"""The example of a distillation goes its whole way."""

import pytest


@pytest.mark.release
def test_a_teacher_has_a_student(load_example, tmp_path, capsys):
    with load_example("distill") as module:
        found = module.main(tmp_path, smoke=True)
    weights = found.student.weights, found.teacher.weights
    assert all(count > 0 for count in weights)
    assert found.report.pairs == 200
    card = (tmp_path / "student" / "README.md").read_text(encoding="utf-8")
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| BLEU")]
    assert rows and rows[0] in card
