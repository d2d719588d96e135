"""Images in folders and texts in files, with ids and labels."""

from pathlib import Path

import pytest

from nearsure.encoders.inputs import image_inputs, input_kind, text_inputs
from nearsure.errors import EmbeddingsFileError


def write(path: Path, content: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")
    return path


def test_the_folder_of_an_image_is_its_label(tmp_path: Path) -> None:
    for name in ("b/2.png", "a/1.JPG", "a/notes.txt"):
        write(tmp_path / name)
    found = image_inputs(tmp_path)
    assert [(one.id, one.label) for one in found] == [("a/1.JPG", "a"), ("b/2.png", "b")]
    assert found[0].content() == b"x"


def test_images_without_folders_have_no_label(tmp_path: Path) -> None:
    write(tmp_path / "1.png")
    assert image_inputs(tmp_path)[0].label is None


def test_folders_of_one_name_are_not_one_class(tmp_path: Path) -> None:
    for name in ("a/owl/1.png", "b/owl/2.png"):
        write(tmp_path / name)
    with pytest.raises(EmbeddingsFileError, match=r"a/owl and .*b/owl have the same name"):
        image_inputs(tmp_path)


def test_groups_lie_below_classes(tmp_path: Path) -> None:
    for name in ("owl/monday/1.png", "owl/friday/2.png", "wren/monday/3.png"):
        write(tmp_path / name)
    found = image_inputs(tmp_path, groups_from_folder=True)
    assert [(one.label, one.group) for one in found] == [
        ("owl", "owl/friday"),
        ("owl", "owl/monday"),
        ("wren", "wren/monday"),
    ]
    write(tmp_path / "wren" / "4.png")
    with pytest.raises(EmbeddingsFileError, match="CLASS/GROUP"):
        image_inputs(tmp_path, groups_from_folder=True)


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("folder/1.png", "", "image"),
        ("1.PNG", "", "image"),
        ("a.txt", "pay", "text"),
        ("a.csv", "id,text\nx,pay\n", "text"),
        ("a.csv", "id,text,vector\nx,pay,[1]\n", None),
        ("a.csv", "id,x0,x1\nx,1,2\n", None),
        ("a.csv", 'id,label,text,x0,x1\nx,pay,"I\nowe",1,2e-3\n', None),
        ("a.csv", "text,answer1,answer2\npay?,how,where\n", "text"),
        ("a.csv", "id,label,text,x0,x1\nx,a,pay,,\ny,b,owe,1,2\n", None),
        ("a.csv", "text,answer1,answer2\npay?,,\nowe?,3,4\nwho?,you,me\n", "text"),
        ("a.csv", "text,answer1,answer2\npay?,,\n", "text"),
        ("a.csv", "\ntext,label\npay?,pay\n", "text"),
        ("a.csv", "text,label,year,votes\npay?,pay,1999,3\n", "text"),
        ("a.jsonl", '{"text": "pay"}\n', "text"),
        ("a.jsonl", '{"text": "pay", "embedding": [1]}\n', None),
        ("a.jsonl", "pay\n", None),
        ("a.npz", "PK", None),
    ],
)
def test_what_has_to_be_encoded(tmp_path: Path, name: str, content: str, kind: str | None) -> None:
    path = write(tmp_path / name, content)
    assert input_kind(str(path.parent if "/" in name else path)) == kind
    assert input_kind(str(tmp_path / "absent.csv")) is None


@pytest.mark.parametrize("names", [[], ["notes.txt"], ["1.png", "a/2.png"]])
def test_folders_that_say_nothing_clear(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        write(tmp_path / name)
    with pytest.raises(EmbeddingsFileError):
        image_inputs(tmp_path)
    with pytest.raises(EmbeddingsFileError, match="must be a folder"):
        image_inputs(tmp_path / "absent")


def test_a_text_a_line(tmp_path: Path) -> None:
    found = text_inputs(write(tmp_path / "a.txt", "pay\n\nrain\n"))
    assert [(one.id, one.label, one.content()) for one in found] == [
        ("1", None, "pay"),
        ("3", None, "rain"),
    ]


def test_columns_of_csv(tmp_path: Path) -> None:
    found = text_inputs(write(tmp_path / "a.csv", "id,text,label\nx,pay,bill\ny,rain,weather\n"))
    assert [(one.id, one.label, one.text) for one in found] == [
        ("x", "bill", "pay"),
        ("y", "weather", "rain"),
    ]


def test_a_text_of_several_lines_in_csv(tmp_path: Path) -> None:
    found = text_inputs(write(tmp_path / "a.csv", 'text,label\n"pay\nnow",bill\n'))
    assert found[0].text == "pay\nnow"


def test_objects_of_jsonl(tmp_path: Path) -> None:
    found = text_inputs(write(tmp_path / "a.jsonl", '{"text": "pay", "label": 3, "id": "x"}\n'))
    assert [(one.id, one.label, one.text) for one in found] == [("x", 3, "pay")]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.txt", "\n \n", "holds no text"),
        ("a.doc", "pay", "must end in"),
        ("a.csv", "label\nx\n", "column 'text'"),
        ("a.csv", "text,label\n,x\n", "must have a text"),
        ("a.csv", "text,label\npay,x\nrain,\n", "a label, or none"),
        ("a.csv", 'text,label\n"pay,x\n', "no CSV"),
        ("a.jsonl", "pay\n", "no JSON"),
        ("a.jsonl", "[1]\n", "must be an object"),
        ("a.jsonl", '{"text": "pay", "label": 1.5}\n', "a text or an integer"),
        ("a.jsonl", '{"text": 3}\n', "must have a text"),
    ],
)
def test_files_that_hold_no_texts(tmp_path: Path, name: str, content: str, sentence: str) -> None:
    with pytest.raises(EmbeddingsFileError, match=sentence):
        text_inputs(write(tmp_path / name, content))


def test_other_encodings_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(EmbeddingsFileError, match="UTF-8"):
        text_inputs(path)
