"""Each rule finds its planted fault, and the good lesson has none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from authoring import lint
from lessons import SAMPLE, TEXT, built_course, change, course, shown, stream, tagged
from nbformat import v4

from gpu_lab.course import notebooks
from gpu_lab.records import GpuLabError

IMPORTS = "import random\nimport time\n\nimport pandas\n\nfrom gpu_lab import units\n"
PLACE = "generator = random.Random(seed)\n"  # faulty lines are planted after it
VERDICT_TAGS = 'tags=["verdict", "nbval-check-output"]'

# what is planted: old text, new text -> part of the finding
SOURCE_FAULTS = {
    "no title": ("# # 90 Sample", "# 90 Sample", "cell 1: no title"),
    "no outcomes": ("# Afterwards you", "# You", "title without outcomes"),
    "no parameters": ('# %% tags=["parameters"]', "# %%", "0 cells tagged parameters"),
    "two parameters": (
        '# %% tags=["slide"]',
        '# %% tags=["parameters"]',
        "2 cells tagged parameters",
    ),
    "misspelt parameter": ("profile: str", "profil: str", "parameters device, profil,"),
    "Literal": ("device: str", 'device: Literal["auto"]', "device: wanted a plain str"),
    "no annotation": ("device: str", "device", "device: wanted a plain str"),
    "other default": ('"quick"', '"full"', 'profile: wanted a plain str = "quick"'),
    "seed not whole": ("seed: int = 0", "seed: int = 0.5", "seed: wanted a plain int"),
    "parameters not first": (
        '# %% tags=["parameters"]',
        '# %%\nx = 1\n\n# %% tags=["parameters"]',
        "first code cell, wanted the parameters",
    ),
    "no imports": (
        IMPORTS,
        f"x = 1\n{IMPORTS}",
        "second code cell, wanted the imports",
    ),
    "unknown tag": (
        '# %% tags=["slide"]',
        '# %% tags=["fun"]',
        "tag 'fun', wanted one of",
    ),
    "metadata": (
        "# %% [markdown]\n# ## S",
        '# %% [markdown] x="1"\n# ## S',
        "data 'x'",
    ),
    "raw cell": ("# %% [markdown]\n# ## S", "# %% [raw]\n# ## S", "a raw cell"),
    "class": (PLACE, "class A:\n    pass\n", "class A, wanted it in gpu_lab"),
    "third def": (
        PLACE,
        PLACE + "def a(): ...\ndef b(): ...\ndef c(): ...\n",
        "wanted at most 2",
    ),
    "long cell": (PLACE, PLACE + "x = 1\n" * 13, "16 lines, wanted at most 15"),
    "wide line": (PLACE, PLACE + "x = 1" + " + 1" * 19 + "\n", "81 columns, wanted at"),
    "number in text": ("twice as many", "in 12.5 ms", "'12.5 ms' in the text"),
    "size in text": ("twice as many", "64 MiB of", "'64 MiB' in the text"),
    "no summary": ("# ## Summary", "# ## End", "no summary"),
    "no control": ("# ## Negative control:", "# ## Again:", "no negative control"),
    "no verdict": (VERDICT_TAGS, "", "no verdict cell"),
    "verdict not checked": (
        VERDICT_TAGS,
        'tags=["verdict"]',
        "wanted both tags or none",
    ),
    "verdict ignored": (
        '"nbval-check-output"',
        '"nbval-check-output", "nbval-ignore-output"',
        "wanted one of them",
    ),
    "no solution": ('tags=["solution"]', "", "exercise, wanted its solution cell"),
    "no exercise": ('tags=["exercise"]', "", "solution, wanted its exercise cell"),
    "half ignored": (
        "# %%\n",
        '# %% tags=["nbval-ignore-output"]\n',
        "nbval-ignore-output, wanted at most half",
    ),
    "not Python": (PLACE, PLACE + "x = = 1\n", "wanted plain Python"),
}

# planted line of code -> part of the finding
LINE_FAULTS = {
    "!ls": "a shell line",
    "files = !ls": "a shell line",
    "%matplotlib inline": "a magic line",
    "get_ipython().system('ls')": "get_ipython",
    "numbers.sort();": "a trailing ;",
    "numbers.sort();  # sorted": "a trailing ;",
    "# NBVAL_SKIP": "an nbval comment",
    "# nbval-skip": "an nbval comment",
    "# NBVAL_IGNORE_OUTPUT": "an nbval comment",
    "# PYTEST_VALIDATE_IGNORE_OUTPUT": "an nbval comment",
    "numbers.cuda()": ".cuda(",
    "from torch.cuda import amp": "torch.cuda.amp",
    "torch.cuda.amp.autocast()": "torch.cuda.amp",
    "start = time.time()": "time.time",
    "from time import sleep, time": "time.time",
    "import pip": "pip",
    "table.style.bar()": "a pandas Styler",
    "plt.show()": "pyplot",
    "import matplotlib.pyplot": "pyplot",
    'name = input("name")': "input(",
}

TAGS_OF_TOOLS = ("raises-exception", "nbval-skip", "skip-execution", "hide-input")


def _cell(notebook: Any, number: int) -> Any:
    return notebook.cells[number - 1]


def _compared(output: Any) -> Callable[[Any], Any]:
    return lambda nb: notebooks.code_cells(nb)[2].outputs.append(output)


def _put(**metadata: Any) -> Callable[[Any], Any]:
    return lambda nb: nb.metadata.update(metadata)


def _cleared(notebook: Any) -> None:
    for cell in notebooks.code_cells(notebook):
        cell.execution_count, cell.outputs = None, []


ERROR = v4.new_output("error", ename="ValueError", evalue="no", traceback=[])
WIDGET = shown(**{"application/vnd.jupyter.widget-view+json": {"model_id": "1"}})

# what is done to a built notebook by hand -> part of the finding
BUILT_FAULTS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "text": (lambda nb: _cell(nb, 1).update(source="# x"), "cell 1: text differs"),
    "type": (lambda nb: _cell(nb, 3).update(cell_type="markdown"), "type differs"),
    "tags": (lambda nb: _cell(nb, 2).metadata.update(tags=[]), "metadata differs"),
    "id": (lambda nb: _cell(nb, 2).update(id="abc"), "cell 2: id differs"),
    "cell lost": (lambda nb: nb.cells.pop(), "cells, the source has"),
    "kernelspec": (
        _put(kernelspec={"name": "mine"}),
        "metadata of the notebook differ",
    ),
    "cleared": (_cleared, "was not run"),
    "one not run": (
        lambda nb: _cell(nb, 3).update(execution_count=None),
        "was not run",
    ),
    "count": (lambda nb: _cell(nb, 3).update(execution_count=9), "count 9, wanted 2"),
    "verdict cleared": (
        lambda nb: tagged(nb, "verdict").update(outputs=[]),
        "verdict with 0 ok lines",
    ),
    "verdict line lost": (
        lambda nb: tagged(nb, "verdict").update(
            outputs=[stream("90_sample: 2 checks\nok  one\n")]
        ),
        "verdict with 1 ok lines of 2",
    ),
    "error": (_compared(ERROR), "stored error ValueError"),
    "stderr": (_compared(stream("Warning: x", "stderr")), "stored text on stderr"),
    "widget": (_compared(WIDGET), "stored widget"),
    "widget state": (_put(widgets={}), "metadata 'widgets'"),
    "papermill": (_put(papermill={}), "metadata 'papermill'"),
    "papermill cell": (
        lambda nb: _cell(nb, 2).metadata.update(papermill={}),
        "'papermil",
    ),
    "home": (_compared(stream("see /home/ada/x")), "home folder in the output"),
    "home of Windows": (
        _compared(stream(r"C:\Users\Ada")),
        "home folder in the output",
    ),
    "path": (_compared(stream("in /opt/data/x.json")), "path '/opt/data"),
    "address": (
        _compared(shown(**{"text/plain": "<A at 0x7f00beef>"})),
        "memory address",
    ),
    "size": (_compared(stream("x" * 2**20)), "wanted at most 1 MiB"),
}


def texts(folder: Path) -> list[str]:
    return [str(finding) for finding in lint.lint(folder=folder)]


def test_the_good_lesson_has_no_finding(tmp_path: Path) -> None:
    assert texts(built_course(tmp_path)) == []


def test_no_notebook_is_exempt() -> None:
    assert lint.EXEMPT == ()


@pytest.mark.parametrize("name", SOURCE_FAULTS)
def test_faults_of_the_source_are_found(name: str, tmp_path: Path) -> None:
    old, new, wanted = SOURCE_FAULTS[name]
    assert old in TEXT
    found = texts(built_course(tmp_path, text=TEXT.replace(old, new)))
    assert any(wanted in text for text in found), found


@pytest.mark.parametrize("line", LINE_FAULTS)
def test_forbidden_lines_are_found(line: str, tmp_path: Path) -> None:
    text = TEXT.replace(PLACE, f"{PLACE}{line}\n")
    found = texts(built_course(tmp_path, text=text))
    assert any(LINE_FAULTS[line] in finding for finding in found), found


@pytest.mark.parametrize("tag", TAGS_OF_TOOLS)
def test_tags_of_other_tools_are_found(tag: str, tmp_path: Path) -> None:
    text = TEXT.replace('# %% tags=["slide"]', f'# %% tags=["{tag}"]')
    assert any(f"tag {tag!r}" in f for f in texts(built_course(tmp_path, text=text)))


@pytest.mark.parametrize("edition", ["student", "solutions"])
@pytest.mark.parametrize("name", BUILT_FAULTS)
def test_faults_of_either_edition_are_found(
    name: str, edition: str, tmp_path: Path
) -> None:
    alter, wanted = BUILT_FAULTS[name]
    built_course(tmp_path)
    change(tmp_path, alter, edition=edition)
    file = str(notebooks.built_path(SAMPLE, edition, Path()))
    found = texts(tmp_path)
    assert any(f.startswith(f"{file}:") and wanted in f for f in found), found


@pytest.mark.parametrize("edition", ["student", "solutions"])
def test_an_edition_that_is_not_built_is_found(edition: str, tmp_path: Path) -> None:
    path = notebooks.built_path(SAMPLE, edition, built_course(tmp_path))
    path.unlink()
    assert "not built" in "".join(texts(tmp_path))
    path.write_text("{")
    assert "not a notebook" in "".join(texts(tmp_path))


def test_a_changed_source_is_drift_in_both_editions(tmp_path: Path) -> None:
    built_course(tmp_path)
    course(tmp_path, text=TEXT.replace("Times of the same", "Two times of the same"))
    found = [text for text in texts(tmp_path) if "differs from the source" in text]
    assert [text.split(":")[0] for text in found] == [
        "90_sample.ipynb",
        "solutions/90_sample.ipynb",
    ]


def test_a_changed_solution_is_drift_in_one_edition(tmp_path: Path) -> None:
    built_course(tmp_path)
    course(tmp_path, text=TEXT.replace("answer = len(", "answer = 0 + len("))
    assert [t.split(":")[0] for t in texts(tmp_path)] == ["solutions/90_sample.ipynb"]


def test_a_notebook_without_source_is_found(tmp_path: Path) -> None:
    built_course(tmp_path)
    path = notebooks.built_path(SAMPLE, "student", tmp_path)
    path.with_name("91_other.ipynb").write_bytes(path.read_bytes())
    assert texts(tmp_path) == ["91_other.ipynb: no source, wanted one in src or none"]


def test_ignored_cells_may_hold_paths_but_no_home(tmp_path: Path) -> None:
    built_course(tmp_path)

    def alter(notebook: Any) -> None:
        tagged(notebook, "nbval-ignore-output").outputs = [stream("in /opt/data/x")]

    change(tmp_path, alter)
    assert texts(tmp_path) == []


@pytest.mark.parametrize(
    "text",
    [
        "12.3 GB/s, 4 samples/s, 1.2 TFLOPS, n/a",
        "<table><td>1</td></tr></table>",
        "https://docs.example.org/a/b",
        'src="data:image/png;base64,AAAA/opt/data/x+/home/ada/yy=="',
        "runs/lab/sessions",
        "df -h /dev/shm; cat /proc/driver/nvidia/version",
    ],
)
def test_what_only_looks_like_a_path_is_no_finding(text: str, tmp_path: Path) -> None:
    built_course(tmp_path)
    change(tmp_path, _compared(stream(text)))
    assert texts(tmp_path) == []


def test_unknown_notebooks_are_named_with_those_that_exist(tmp_path: Path) -> None:
    with pytest.raises(GpuLabError, match=r"no notebook '77'; wanted one of 90_sample"):
        lint.lint(("77",), folder=built_course(tmp_path))


@pytest.mark.parametrize("wanted", ["90", SAMPLE, f"notebooks/{SAMPLE}.ipynb"])
def test_notebooks_are_found_by_number_name_and_path(
    wanted: str, tmp_path: Path
) -> None:
    course(tmp_path)
    course(tmp_path, name="10_first")
    assert notebooks.names((wanted,), folder=tmp_path) == [SAMPLE]
    assert notebooks.names(folder=tmp_path) == ["10_first", SAMPLE]
