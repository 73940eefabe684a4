"""Whole or not at all, also when the build is killed: nothing stays behind for long, nothing of others is touched."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.toolchain.errors import RecipeError
from paceline.toolchain.staging import clean_stale, staging_folder

KILLED = """
import os, signal, sys
from pathlib import Path
from paceline.toolchain import staging
if len(sys.argv) > 2:
    def replace(output, room):  # killed between the two renames
        output.rename(room / staging.OLD)
        os.kill(os.getpid(), signal.SIGKILL)
    staging._replace = replace
with staging.staging_folder(Path(sys.argv[1])) as folder:
    (folder / "manifest.json").write_text("new")
    if len(sys.argv) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
"""
WAITING = """
import sys
from pathlib import Path
from paceline.toolchain.staging import staging_folder
with staging_folder(Path(sys.argv[1])) as folder:
    print(folder, flush=True)
    sys.stdin.read()
    (folder / "manifest.json").write_text("late")
"""


def killed(output: Path, *arguments: str) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(output), *arguments], timeout=60)
    assert done.returncode == -signal.SIGKILL


def write(output: Path, text: str) -> None:
    with staging_folder(output) as folder:
        (folder / "manifest.json").write_text(text)


def test_the_folder_takes_the_place_of_the_goal(tmp_path: Path) -> None:
    output = tmp_path / "bundle"
    for text in ("first", "second"):
        write(output, text)
        assert (output / "manifest.json").read_text() == text
        assert [path.name for path in tmp_path.iterdir()] == ["bundle"]
    assert output.stat().st_mode & 0o777 == 0o755


def test_an_error_leaves_the_goal_as_it_was(tmp_path: Path) -> None:
    output = tmp_path / "bundle"
    write(output, "first")
    with pytest.raises(FileNotFoundError), staging_folder(output) as folder:
        (folder / "manifest.json").rename(folder / "no such folder" / "manifest.json")
    assert (output / "manifest.json").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


def test_a_goal_that_is_a_link_survives_an_error_and_is_replaced_by_a_bundle(tmp_path: Path) -> None:
    write(tmp_path / "v1", "first")
    (tmp_path / "current").symlink_to("v1")
    with pytest.raises(FileNotFoundError), staging_folder(tmp_path / "current") as folder:
        folder.rename(tmp_path / "away")  # now there is nothing to put in the place of the link
    assert (tmp_path / "current" / "manifest.json").read_text() == "first"
    write(tmp_path / "current", "second")
    assert (tmp_path / "current" / "manifest.json").read_text() == "second"
    assert (tmp_path / "v1" / "manifest.json").read_text() == "first"


def test_a_folder_of_others_is_refused(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    with pytest.raises(RecipeError, match="is no bundle"), staging_folder(tmp_path / "photos"):
        pass


def test_the_next_build_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    output = tmp_path / "bundle"
    killed(output)
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".paceline-build-")
    write(tmp_path / "another", "x")
    assert [path.name for path in tmp_path.iterdir()] == ["another"]


def test_a_bundle_in_the_hands_of_a_killed_build_is_put_back(tmp_path: Path) -> None:
    """Killed between taking the old bundle away and putting the new one there: the old one used to be gone."""
    output = tmp_path / "bundle"
    write(output, "old")
    killed(output, "between the renames")
    assert not output.exists()
    clean_stale(tmp_path)
    assert (output / "manifest.json").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


def test_a_build_at_work_is_left_alone(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WAITING, str(tmp_path / "bundle")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as builder:
        assert builder.stdout is not None
        folder = Path(builder.stdout.readline().strip())
        assert clean_stale(tmp_path) == []
        assert folder.is_dir()
        builder.communicate(timeout=60)
    assert (tmp_path / "bundle" / "manifest.json").read_text() == "late"


@pytest.mark.parametrize("owner", [None, "", "[]", "{}", '{"paceline_build": 3}', '{"paceline_build": "../up"}'])
def test_what_does_not_carry_our_mark_is_left_alone(tmp_path: Path, owner: str | None) -> None:
    room = tmp_path / ".paceline-build-mine"
    room.mkdir()
    (room / "diary.txt").write_text("dear diary")
    if owner is not None:
        (room / "owner").write_text(owner)
    assert clean_stale(tmp_path) == []
    assert (room / "diary.txt").exists()


def test_links_are_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "elsewhere" / "room"
    precious.mkdir(parents=True)
    (precious / "owner").write_text(json.dumps({"paceline_build": "bundle", "pid": os.getpid()}))
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / ".paceline-build-link").symlink_to(precious)
    assert clean_stale(tmp_path / "here") == []
    assert precious.exists()
